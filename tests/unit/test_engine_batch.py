"""The index arrays of a batch equal what one would write down token by token."""

import numpy as np
import torch
from engine_fakes import IMAGE_TOKEN, make_request, picture
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.engine.batch import build_batch
from vlmcli.engine.drafts import Draft
from vlmcli.engine.positions import mrope_positions
from vlmcli.engine.sequence import Sequence
from vlmcli.engine.step import ScheduledSequence

IMAGES = st.builds(picture, st.integers(0, 2), st.integers(1, 3), st.integers(1, 4))
PARTS = st.lists(st.one_of(st.integers(0, 9), IMAGES), min_size=1, max_size=5)


def embedding_of(sequence: Sequence, mm_hash: bytes) -> torch.Tensor:
    image = next(i for i in sequence.request.images if i.mm_hash == mm_hash)
    size = image.pixels.size
    return torch.arange(size)[:, None] + 1000.0 * mm_hash[0]


@st.composite
def scheduled(draw: st.DrawFn) -> tuple[list[ScheduledSequence], int]:
    block_size = draw(st.integers(1, 5))
    items, next_block = [], 1
    for i, parts in enumerate(draw(st.lists(PARTS, min_size=1, max_size=4))):
        request = make_request(f"{i}", parts, max_tokens=10)
        positions, delta = mrope_positions(len(request.prompt_token_ids), request.placeholders)
        sequence = Sequence(request, arrival=i, positions=positions, position_delta=delta)
        sequence.append(draw(st.lists(st.integers(0, 9), max_size=4)), [])
        start = draw(st.integers(0, sequence.num_tokens - 1))
        num = draw(st.integers(1, sequence.num_tokens - start))
        drafts = []
        if start + num == sequence.num_tokens:
            drafts = draw(st.lists(st.integers(0, 9), max_size=4))
        num_blocks = -(-(start + num + len(drafts)) // block_size)
        sequence.block_table = list(range(next_block, next_block + num_blocks))
        next_block += num_blocks
        items.append(ScheduledSequence(sequence, start, num, Draft(0, drafts)))
    return items, block_size


@given(scheduled())
def test_every_row_is_what_its_token_says(case: tuple[list[ScheduledSequence], int]) -> None:
    items, block_size = case
    lookup = {
        image.mm_hash: embedding_of(item.sequence, image.mm_hash)
        for item in items
        for image in item.sequence.request.images
    }
    batch = build_batch(items, block_size, lookup.__getitem__)
    row = 0
    logit_rows: list[int] = []
    embeds = torch.cat(list(batch.embeds))[:, 0].tolist() if batch.embeds else []
    embed_rows = batch.embed_rows.tolist()
    for s, item in enumerate(items):
        sequence = item.sequence
        tokens = [*sequence.token_ids[: sequence.num_tokens].tolist(), *item.draft.token_ids]
        for index in range(item.start, item.start + item.num_query_tokens):
            assert batch.input_ids[row] == tokens[index]
            if index < sequence.num_prompt_tokens:
                assert (batch.positions[:, row] == sequence.positions[:, index]).all()
            else:
                assert (batch.positions[:, row] == index + sequence.position_delta).all()
            block = sequence.block_table[index // block_size]
            assert batch.slot_mapping[row] == block * block_size + index % block_size
            assert (row in embed_rows) == (tokens[index] == IMAGE_TOKEN)
            if row in embed_rows:
                i, place = next(
                    (i, p) for i, p in enumerate(sequence.request.placeholders) if index < p.end
                )
                mm_hash = sequence.request.images[i].mm_hash
                want = index - place.offset + 1000.0 * mm_hash[0]
                assert embeds[embed_rows.index(row)] == want
            if item.wants_logits and index >= sequence.num_tokens - 1:
                logit_rows.append(row)
            row += 1
        assert batch.cu_seqlens_q[s + 1] == row
        assert batch.context_lens[s] == item.start + item.num_query_tokens
        width = len(sequence.block_table)
        assert batch.block_tables[s, :width].tolist() == sequence.block_table
        assert not batch.block_tables[s, width:].any()
    assert batch.logit_rows.tolist() == logit_rows
    assert len(batch.input_ids) == row and batch.positions.shape == (3, row)
    dtypes = (batch.input_ids, batch.positions, batch.slot_mapping, batch.logit_rows)
    assert all(array.dtype == np.int64 for array in dtypes)
    assert batch.block_tables.dtype == batch.context_lens.dtype == np.int32
