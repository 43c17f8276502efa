"""A model with the draft in its prompt, real tensors: the same tokens every way."""

import pytest
import torch
from draft_checkpoints import (
    DRAFT_LENGTH,
    EOS,
    IMAGE,
    VOCABULARY,
    line,
    line_request,
    write_draft_checkpoint,
)
from tiny_checkpoints import as_input, load_reference, load_runner, reference_pixels

from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.model_runner import ModelRunner

COLUMNS = (2, 5, 3, 9, 7, 2, 6, 4)
MAX_TOKENS = 40


class Words:
    """Stands in for a tokenizer."""

    def stream(self):
        return self

    def push(self, token_ids):
        return "".join(map(chr, token_ids))

    def finish(self):
        return ""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_draft_checkpoint(tmp_path_factory.mktemp("draft") / "model")


def pictures():
    return [line(i, columns) for i, columns in enumerate(COLUMNS)]


def make_engine(path, **config):
    config = EngineConfig(**config)
    return Engine(ModelRunner.from_checkpoint(path, config), Words(), config)


def read(engine, some, name=""):
    requests = [
        line_request(engine.model_config, f"{name}{i}", pixels, MAX_TOKENS)
        for i, pixels in enumerate(some)
    ]
    outputs = engine.generate(requests)
    engine.check_integrity()
    assert engine.stats()["blocks_used"] == 0
    return outputs


def answers(outputs):
    return [(output.token_ids, output.num_prompt_tokens) for output in outputs]


@pytest.fixture(scope="module")
def alone(path):
    """One line at a time, everything off."""
    plain = {"enable_drafts": False, "enable_prefix_caching": False, "encoder_cache_bytes": 0}
    return [
        answer
        for pixels in pictures()
        for answer in answers(read(make_engine(path, **plain), [pixels]))
    ]


def test_the_texts_prove_something(alone):
    assert len({tokens for tokens, _ in alone}) == len(COLUMNS)
    assert {EOS} < {tokens[-1] for tokens, _ in alone}
    for (_, num_prompt), columns in zip(alone, COLUMNS, strict=True):
        assert num_prompt == columns + 2 + DRAFT_LENGTH + 1


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"enable_drafts": False},
        {"enable_prefix_caching": False},
        {"block_size": 1},
        {"max_num_seqs": 3, "max_encoder_tokens": 1},
        {"max_num_batched_tokens": 7, "max_num_seqs": 4},
        {"encoder_cache_bytes": 0, "vision_cache_bytes": 0},
        {"enable_graphs": True, "decode_buckets": (1, 2, 4)},
    ],
    ids=str,
)
def test_the_same_tokens_every_way(path, alone, config):
    engine = make_engine(path, **config)
    for name in "ab":
        assert answers(read(engine, pictures(), name)) == alone


def test_preempted_or_not(path, alone):
    engine = make_engine(path, block_size=4, kv_cache_bytes=150 * 768, enable_drafts=False)
    assert engine._runner.bytes_per_block() == 4 * 768
    assert answers(read(engine, pictures())) == alone
    assert engine.stats()["preemptions"] > 0


def test_aborted_at_every_step(path, alone):
    """Before its image is encoded, behind that, and while it writes; the others go on."""
    for num_steps in range(6):
        engine = make_engine(path, max_num_batched_tokens=16, max_num_seqs=4, enable_drafts=False)
        for i, pixels in enumerate(pictures()[:3]):
            engine.add_request(line_request(engine.model_config, str(i), pixels, MAX_TOKENS))
        for _ in range(num_steps):
            engine.step()
        engine.abort_request("1")
        engine.check_integrity()
        found = {}
        while engine.has_unfinished():
            for output in engine.step():
                found[output.request_id] = output.token_ids
        engine.check_integrity()
        assert engine.stats()["blocks_used"] == 0
        assert (found["0"], found["2"]) == (alone[0][0], alone[2][0])


def test_transformers_writes_the_same_behind_the_completed_prompt(path, alone):
    reference, runner = load_reference(path), load_runner(path)
    for (tokens, num_prompt), pixels in zip(alone, pictures(), strict=True):
        config = runner.model_config
        request = line_request(config, "", pixels, MAX_TOKENS)
        (draft,) = runner.draft(runner.encode([as_input(pixels)]))
        ids = torch.tensor([[*request.prompt_token_ids, *config.draft_head.in_prompt(draft)]])
        assert ids.shape[1] == num_prompt
        values, grids = reference_pixels(runner, [pixels])
        out = reference.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            pixel_values=values,
            image_grid_thw=grids,
            mm_token_type_ids=(ids == IMAGE).long(),
            do_sample=False,
            max_new_tokens=MAX_TOKENS,
            eos_token_id=EOS,
            pad_token_id=VOCABULARY - 1,
        )
        assert tuple(out[0, ids.shape[1] :].tolist()) == tokens


def test_images_of_one_size_have_their_own_drafts(path):
    engine = make_engine(path)
    same_size = [line(seed, 6) for seed in range(12)]
    together = read(engine, same_size)
    assert len({output.token_ids for output in together}) == len(same_size)
    again = read(engine, same_size[::-1], "again")
    assert answers(again) == answers(together)[::-1]
