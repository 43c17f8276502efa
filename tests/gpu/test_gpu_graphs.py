"""On the card: the reference's logits, with captured graphs and without, whatever padding holds."""

import logging

import numpy as np
import pytest
import torch
from pictures_kit import SCALES, inputs_of, patch_embed, poison
from tiled_checkpoints import write_tiled_checkpoint
from tiny_checkpoints import Chunk, load_runner, make_batch, make_prompt, write_checkpoint

from vlmcli.engine.preprocess import normalise
from vlmcli.kernels.upload import upload

pytestmark = pytest.mark.gpu
KINDS = ("merge2_patch14", "qwen2_5_vl", "qwen3_vl", "lighton_ocr")
BLOCK_SIZE = 4
CLOSE = {"atol": 2e-3, "rtol": 2e-3}
"""In float32; products of matrices are summed up in another order than on a CPU."""


def prefilled(path, **config):
    """A runner whose pool holds eight sequences of unlike length, and their next decode step."""
    runner = load_runner(
        path, num_blocks=48, block_size=BLOCK_SIZE, dtype="float32", verify_widths=(4, 8), **config
    )
    rng = np.random.default_rng(1)
    prompts = [make_prompt(runner, rng.integers(0, 90, 2 + 2 * i).tolist()) for i in range(8)]
    blocks = [tuple(range(1 + 5 * i, 6 + 5 * i)) for i in range(8)]
    pairs = list(zip(prompts, blocks, strict=True))
    runner.execute(make_batch(runner, [Chunk(p, 0, len(p.ids) - 1, b) for p, b in pairs]))
    return runner, [Chunk(p, len(p.ids) - 1, len(p.ids), b) for p, b in pairs]


def widened(steps, widths):
    """Steps that also verify the rows before their last one."""
    return [
        Chunk(step.prompt, step.end - rows, step.end, step.blocks)
        for step, rows in zip(steps, widths, strict=False)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_a_cpu(tmp_path, kind):
    path = write_checkpoint(tmp_path / kind, kind)
    on_card, steps = prefilled(path, device="cuda")
    on_cpu, _ = prefilled(path)
    for chunks in (steps, steps[:3], widened(steps[4:], (2, 8, 5))):
        found = on_card.execute(make_batch(on_card, chunks)).cpu()
        torch.testing.assert_close(found, on_cpu.execute(make_batch(on_cpu, chunks)), **CLOSE)


def test_graphs_change_nothing_whatever_padding_holds(tmp_path):
    path = write_checkpoint(tmp_path / "model", "merge2_patch14")
    captured, steps = prefilled(path, device="cuda")
    eager, _ = prefilled(path, device="cuda", enable_graphs=False)
    assert captured.graphs is not None and eager.graphs is None
    for pool in (captured.cache.keys, captured.cache.values):
        pool[:, 0] = float("nan")
    captured.execute(make_batch(captured, steps))
    batches = [steps[:n] for n in range(1, 9)] + [widened(steps[4:], (2, 8, 5))]
    kept = []
    for chunks in batches:
        batch = make_batch(captured, chunks)
        assert captured.graphs.takes(batch)
        kept.append((captured.execute(batch), eager.execute(batch)))
    for found, expected in kept:
        torch.testing.assert_close(found, expected, **CLOSE)
    assert captured.cache.keys[:, 0].isnan().all()


def test_graphs_without_room_are_dropped_and_steps_run_all_the_same(tmp_path, caplog):
    path = write_checkpoint(tmp_path / "model", "merge2_patch14")
    with caplog.at_level(logging.WARNING):
        cramped, steps = prefilled(path, device="cuda", graph_bytes=-1)
    assert cramped.graphs.buckets == () and "does not fit" in caplog.text
    eager, _ = prefilled(path, device="cuda", enable_graphs=False)
    batch = make_batch(cramped, steps)
    torch.testing.assert_close(cramped.execute(batch), eager.execute(batch), **CLOSE)


@pytest.mark.parametrize("kind", (*KINDS, "dots_ocr", "paddleocr_vl"))
def test_graphs_of_crops_change_nothing_whatever_padding_holds(tmp_path, kind):
    path = write_checkpoint(tmp_path / "model", kind)
    settings = {"device": "cuda", "dtype": "float32", "encoder_graph_tokens": 64}
    captured = load_runner(path, **settings, encoder_graph_step=16)
    eager = load_runner(path, **settings, enable_graphs=False)
    assert len(captured.encoder_graphs.buckets) == 4
    images = inputs_of([(28, 56), (84, 28), (56, 112), (28, 196), (56, 56), (112, 112)])
    kept = []
    for number in (6, 1, 3, 5, 2, 4):
        poison(captured.encoder_graphs)
        kept.append((captured.encode(images[:number]), eager.encode(images[:number])))
    for found, expected in kept:
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.parametrize("kind", ["internvl3", "smolvlm"])
def test_graphs_of_tiles_change_nothing(tmp_path, kind):
    path = write_tiled_checkpoint(tmp_path / "model", kind)
    captured = load_runner(path, device="cuda", dtype="float32", encoder_graph_tokens=64)
    eager = load_runner(path, device="cuda", dtype="float32", enable_graphs=False)
    vision = captured.model_config.vision
    side = vision.tile_side * vision.patch_size
    images = inputs_of([(side, side)] * 3)
    for number in (3, 1, 2):
        poison(captured.encoder_graphs)
        found, expected = captured.encode(images[:number]), eager.encode(images[:number])
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, **CLOSE)


def test_a_page_is_encoded_beside_decoding(tmp_path):
    """In a stream of its own, with the tokens that it has when everything waits for it."""
    path = write_checkpoint(tmp_path / "model", "qwen2_5_vl")
    runner = load_runner(path, device="cuda", dtype="float32", encoder_graph_tokens=0)
    eager = load_runner(path, dtype="float32")
    images = inputs_of([(560, 560), (280, 560), (84, 28)])
    expected = eager.encode(images)
    for _ in range(3):
        pending = runner.encode_ahead(images)
        assert pending.stream != torch.cuda.current_stream()
        for one, other in zip(pending.wait(), expected, strict=True):
            torch.testing.assert_close(one.cpu(), other, **CLOSE)
        assert pending.is_done()


@pytest.mark.parametrize("rescale", SCALES)
def test_the_card_normalises_as_the_host_does(card, rescale):
    embed, processor = patch_embed(rescale)
    patches = np.tile(np.arange(256, dtype=np.uint8), 3 * 14 * 14).reshape(256, -1)
    with torch.inference_mode():
        ours = embed.to(card).normalised(upload(patches, card)).cpu()
    assert np.array_equal(ours.numpy(), normalise(patches, processor))
