"""Families with tiles against transformers' models and image processors, in float32."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from tiled_checkpoints import (
    KINDS,
    pictures_of,
    reference_inputs,
    tiled_prompt,
    write_tiled_checkpoint,
)
from tiny_checkpoints import Chunk, load_reference, load_runner, make_batch, random_picture

TOLERANCE = 1e-5
BLOCK = 16


@pytest.fixture(scope="module", params=sorted(KINDS))
def sides(request, tmp_path_factory):
    path = write_tiled_checkpoint(tmp_path_factory.mktemp(request.param), request.param)
    return request.param, load_reference(path), load_runner(path, num_blocks=256)


def prompts():
    """Text alone; pictures that are one tile, wide, tall, grey; several unlike ones."""
    rng = np.random.default_rng(7)
    wide, tall = random_picture(rng, 50, 150, grey=False), random_picture(rng, 170, 90, grey=False)
    small, grey = random_picture(rng, 40, 44, grey=False), random_picture(rng, 60, 120, grey=True)
    return [
        [1, 2, 3, 4, 5],
        [small],
        [10, 11, wide, 12],
        [20, tall, 21, 22, small, 23, 24, wide, 25],
        [grey, tall, 30, grey],
    ]


def reference_logits(kind, model, parts, ids):
    with torch.no_grad():
        return model(**reference_inputs(kind, ids, pictures_of(parts))).logits[0]


def assert_close(ours, theirs):
    assert theirs.std() > 0.1, "a flat reference proves nothing"
    torch.testing.assert_close(ours, theirs, atol=TOLERANCE, rtol=0)


def blocks_from(first, num_tokens):
    return tuple(range(first, first + -(-num_tokens // BLOCK)))


@pytest.mark.check("logits", "batch", "images")
def test_prompts_alone_and_together(sides):
    kind, reference, runner = sides
    chunks, theirs, first = [], [], 1
    for parts in prompts():
        prompt = tiled_prompt(runner, parts)
        blocks = blocks_from(first, len(prompt.ids))
        chunks.append(Chunk(prompt, 0, len(prompt.ids), blocks))
        theirs.append(reference_logits(kind, reference, parts, prompt.ids))
        assert_close(runner.execute(make_batch(runner, chunks[-1:])), theirs[-1])
        first = blocks[-1] + 1
    assert_close(runner.execute(make_batch(runner, chunks)), torch.cat(theirs))


@pytest.mark.check("chunks", "images")
@pytest.mark.parametrize("step", [3, 11])
def test_chunks_across_tile_borders(sides, step):
    kind, reference, runner = sides
    parts = prompts()[3]
    prompt = tiled_prompt(runner, parts)
    blocks = blocks_from(5, len(prompt.ids))[::-1]
    borders = [*range(0, len(prompt.ids), step), len(prompt.ids)]
    pieces = [
        runner.execute(make_batch(runner, [Chunk(prompt, start, end, blocks)]))
        for start, end in pairwise(borders)
    ]
    assert any(
        place.offset < border < place.end for place in prompt.placeholders for border in borders
    )
    theirs = reference_logits(kind, reference, parts, prompt.ids)
    assert_close(torch.cat(pieces), theirs)


def test_some_mosaics_are_cut_and_some_are_shrunk(sides):
    """What the prompts above must contain for LLaVA-OneVision to be covered by them."""
    kind, _, runner = sides
    images = [image for parts in prompts() for image in tiled_prompt(runner, parts).pictures]
    mosaics = [image.mosaic for image in images if image.mosaic is not None]
    side = runner.model_config.vision.tile_side
    assert bool(mosaics) == (kind == "llava_onevision")
    if mosaics:
        assert any(mosaic.shape != mosaic.kept for mosaic in mosaics)
        assert any(mosaic.shape == mosaic.kept for mosaic in mosaics)
        whole = [tuple(side * n for n in mosaic.tiles) for mosaic in mosaics]
        assert any(mosaic.kept != size for mosaic, size in zip(mosaics, whole, strict=True))
