"""Our models against transformers' in float32: logits of whole prompts, chunks and batches."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_checkpoints import (
    FACTS,
    Chunk,
    as_input,
    load_reference,
    load_runner,
    make_batch,
    make_prompt,
    random_picture,
    reference_logits,
    write_checkpoint,
)

from vlmcli.engine import layers
from vlmcli.kernels import reference as reference_kernels
from vlmcli.kernels.packed import PackedWeight

TOLERANCE = 1e-5


@pytest.fixture(scope="module", params=sorted(FACTS))
def sides(request, tmp_path_factory):
    path = write_checkpoint(tmp_path_factory.mktemp(request.param), request.param)
    return load_reference(path), load_runner(path, block_size=4)


def prompts_of(runner):
    """Text alone, one picture, several unlike ones; text before, between and after."""
    rng = np.random.default_rng(7)
    wide, tall = random_picture(rng, 28, 252, grey=False), random_picture(rng, 168, 56, grey=False)
    square, line = random_picture(rng, 84, 84, grey=False), random_picture(rng, 28, 140, grey=True)
    return [
        make_prompt(runner, [1, 2, 3, 4, 5]),
        make_prompt(runner, [line]),
        make_prompt(runner, [10, 11, wide, 12]),
        make_prompt(runner, [20, tall, 21, 22, square, 23, 24, 25, wide]),
        make_prompt(runner, [line, tall, 30, line]),
    ]


def assert_close(ours, theirs):
    assert theirs.std() > 0.1, "a flat reference proves nothing"
    torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=0)


def blocks_for(prompt, first, size):
    return tuple(range(first, first + -(-len(prompt.ids) // size)))


@pytest.mark.check("logits")
def test_whole_prompts_alone(sides):
    reference, runner = sides
    for prompt in prompts_of(runner):
        chunk = Chunk(prompt, 0, len(prompt.ids), blocks_for(prompt, 1, 4))
        ours = runner.execute(make_batch(runner, [chunk]))
        assert_close(ours, reference_logits(reference, runner, prompt))


@pytest.mark.check("batch", "images")
def test_batch_of_unlike_prompts(sides):
    reference, runner = sides
    chunks, first = [], 1
    for prompt in prompts_of(runner):
        blocks = blocks_for(prompt, first, 4)
        chunks.append(Chunk(prompt, 0, len(prompt.ids), blocks))
        first = blocks[-1] + 1
    ours = runner.execute(make_batch(runner, chunks))
    theirs = [reference_logits(reference, runner, chunk.prompt) for chunk in chunks]
    assert_close(ours, torch.cat(theirs))


@pytest.mark.check("chunks", "images")
@pytest.mark.parametrize("step", [1, 3, 8])
def test_chunks_across_image_borders(sides, step):
    reference, runner = sides
    prompt = prompts_of(runner)[3]
    blocks = blocks_for(prompt, 5, 4)[::-1]
    pieces = [
        runner.execute(
            make_batch(runner, [Chunk(prompt, i, min(i + step, len(prompt.ids)), blocks)])
        )
        for i in range(0, len(prompt.ids), step)
    ]
    assert_close(torch.cat(pieces), reference_logits(reference, runner, prompt))


def test_wanted_rows_alone(sides):
    """Rows that nobody asked for change neither the others nor the cache."""
    _, runner = sides
    prompt = prompts_of(runner)[3]
    blocks = blocks_for(prompt, 1, 4)
    batch = make_batch(runner, [Chunk(prompt, 0, len(prompt.ids) - 1, blocks)])
    everything = runner.execute(batch)
    last = Chunk(prompt, len(prompt.ids) - 1, len(prompt.ids), blocks)
    after_everything = runner.execute(make_batch(runner, [last]))
    rows = np.array([0, 5, len(prompt.ids) - 2])
    some = runner.execute(replace(batch, logit_rows=rows))
    torch.testing.assert_close(some, everything[rows], atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(
        runner.execute(make_batch(runner, [last])), after_everything, atol=TOLERANCE, rtol=0
    )


def test_a_chunk_may_want_no_logits(sides):
    """Its keys and values are written all the same."""
    reference, runner = sides
    prompt = prompts_of(runner)[2]
    blocks = blocks_for(prompt, 1, 4)
    half = len(prompt.ids) // 2
    silent = make_batch(runner, [Chunk(prompt, 0, half, blocks)])
    silent = replace(silent, logit_rows=np.zeros(0, np.int64))
    assert runner.execute(silent).shape == (0, runner.model_config.text.vocab_size)
    ours = runner.execute(make_batch(runner, [Chunk(prompt, half, len(prompt.ids), blocks)]))
    assert_close(ours, reference_logits(reference, runner, prompt)[half:])


@pytest.mark.parametrize("kind", sorted(FACTS))
def test_both_rotary_layouts(tmp_path, monkeypatch, kind):
    """Pairs side by side or half a head apart: a matter of speed, never of values."""
    path = write_checkpoint(tmp_path, kind)
    adjacent = load_runner(path)
    monkeypatch.setattr(reference_kernels, "has_adjacent_rotary", lambda dtype, device: False)
    halves = load_runner(path)
    prompt = prompts_of(adjacent)[4]
    chunk = Chunk(prompt, 0, len(prompt.ids), blocks_for(prompt, 1, 16))
    assert adjacent.model.model.layers[0].self_attn.adjacent
    assert not halves.model.model.layers[0].self_attn.adjacent
    assert_close(*(side.execute(make_batch(side, [chunk])) for side in (adjacent, halves)))


@pytest.mark.parametrize("kind", ["merge2_patch14", "glm_ocr", "lighton_ocr"])
def test_layouts_of_wide_matrices(tmp_path, monkeypatch, kind):
    """By rows, by columns, packed: a matter of speed, never of values; none in the tower."""
    path = write_checkpoint(tmp_path, kind, vocab_size=200)
    rows = load_runner(path)
    monkeypatch.setattr(layers, "_LARGE_BYTES", 0)
    columns = load_runner(path, max_num_seqs=1)
    mlp = columns.model.model.layers[0].mlp
    for matrix in (mlp.gate_up_proj.weight, mlp.down_proj.weight):
        assert matrix.is_contiguous() == (matrix.shape[0] <= matrix.shape[1])
    assert not mlp.gate_up_proj.weight.is_contiguous()
    assert not columns.model.lm_head.weight.is_contiguous()
    assert all(weight.is_contiguous() for weight in columns.model.visual.parameters())
    assert all(weight.is_contiguous() for weight in rows.model.parameters())
    for one, other in zip(rows.model.parameters(), columns.model.parameters(), strict=True):
        assert torch.equal(one, other)
    # Heads in several parts, gate and up in two: whatever a part may hold.
    monkeypatch.setattr(layers, "_PART_BYTES", 3000)
    packed = load_runner(path)
    head = packed.model.lm_head.weight
    assert isinstance(head, PackedWeight) and len(head.parts) > 2
    layer = packed.model.model.layers[0]
    assert layer.mlp.gate_up_proj.weight.is_halved
    for matrix in (layer.mlp.down_proj, layer.self_attn.o_proj, layer.self_attn.qkv_proj):
        assert isinstance(matrix.weight, PackedWeight)
    assert set(dict(packed.model.visual.named_parameters())) == set(
        dict(rows.model.visual.named_parameters())
    )
    prompt = prompts_of(rows)[3]
    blocks = blocks_for(prompt, 1, 16)
    for start, end in ((0, len(prompt.ids) - 1), (len(prompt.ids) - 1, len(prompt.ids))):
        chunk = Chunk(prompt, start, end, blocks)
        found = [side.execute(make_batch(side, [chunk])) for side in (columns, packed, rows)]
        assert_close(found[0], found[2])
        assert_close(found[1], found[2])


def test_what_takes_more_memory_than_loading_is_not_packed(tmp_path, monkeypatch):
    monkeypatch.setattr(layers, "_LARGE_BYTES", 0)
    runner = load_runner(write_checkpoint(tmp_path, "merge2_patch14", vocab_size=200), 2)
    matrices = [m for m in runner.model.modules() if isinstance(m, layers.Linear)]
    assert any(isinstance(m.weight, PackedWeight) for m in matrices)
    layer = layers.Linear(8, 64, bias=False, for_few_rows=True)
    size = 64 * 8 * 4
    layer.pack(2 * size - 1)
    assert isinstance(layer.weight, torch.Tensor)
    layer.pack(2 * size)
    assert isinstance(layer.weight, PackedWeight)


def test_bfloat16_stays_near_float32(tmp_path):
    path = write_checkpoint(tmp_path, "merge2_patch14")
    wide, narrow = load_runner(path), load_runner(path, dtype="bfloat16")
    prompt = prompts_of(wide)[2]
    chunk = Chunk(prompt, 0, len(prompt.ids), blocks_for(prompt, 1, 16))
    expected, ours = (side.execute(make_batch(side, [chunk])) for side in (wide, narrow))
    assert narrow.bytes_per_block() * 2 == wide.bytes_per_block()
    assert ours.dtype == torch.float32
    assert torch.corrcoef(torch.stack((ours.ravel(), expected.ravel())))[0, 1] > 0.99


def test_images_do_not_depend_on_their_neighbours(sides):
    _, runner = sides
    rng = np.random.default_rng(3)
    sizes = [(28, 56), (84, 28), (28, 56), (56, 112), (28, 196)]
    images = [as_input(random_picture(rng, *size, grey=i % 2 == 0)) for i, size in enumerate(sizes)]
    for image, together in zip(images, runner.encode(images), strict=True):
        torch.testing.assert_close(runner.encode([image])[0], together, atol=TOLERANCE, rtol=0)


def test_patches_at_odd_edges_are_seen_and_dropped(tmp_path):
    """LightOnOCR's processor leaves odd rows and columns of patches; its projector drops them."""
    path = write_checkpoint(tmp_path, "lighton_ocr")
    reference, runner = load_reference(path), load_runner(path)
    rng = np.random.default_rng(4)
    sizes = [(42, 70), (28, 56), (70, 42)]
    parts = [part for size in sizes for part in (3, random_picture(rng, *size, grey=False))]
    prompt = make_prompt(runner, [*parts, 4, 5])
    assert [place.length for place in prompt.placeholders] == [2, 2, 2]
    chunk = Chunk(prompt, 0, len(prompt.ids), blocks_for(prompt, 1, 16))
    ours = runner.execute(make_batch(runner, [chunk]))
    assert_close(ours, reference_logits(reference, runner, prompt))
    kept = random_picture(rng, 42, 70, grey=False)
    other = kept.copy()
    other[28:] = 255 - other[28:]
    first, second = runner.encode([as_input(kept), as_input(other)])
    assert not torch.allclose(first, second), "the odd row has a say"
