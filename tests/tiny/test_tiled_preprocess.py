"""Tiles against transformers' image processors, bit by bit, and what stands between them."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiled_checkpoints import KINDS, tiled_config
from tiny_checkpoints import random_picture
from transformers.models.internvl.processing_internvl import InternVLProcessor

from vlmcli.engine.models.registry import find_family
from vlmcli.engine.preprocess import as_channels, normalise, patchify
from vlmcli.engine.views import View, lay_out, square_tiles

CONFIGS = {kind: tiled_config(kind) for kind in KINDS}
kinds = st.sampled_from(sorted(KINDS))
sides = st.integers(20, 300)


def parts_of(kind, picture):
    config = CONFIGS[kind]
    return find_family(config.model_type).parts(picture, config)


def views_of(kind, picture):
    return [part for part in parts_of(kind, picture) if isinstance(part, View)]


def theirs(kind, picture, **more):
    facts = KINDS[kind]
    processor = facts.make_processor(**facts.processor)
    return processor(images=[as_channels(picture, 3)], return_tensors="np", **more)


def patches_of(tile, size):
    """[patches, 3 · size²] of a (3, H, W) tile, its last pixels left out as a convolution does."""
    kept = tile[:, : tile.shape[1] // size * size, : tile.shape[2] // size * size]
    return patchify(kept.transpose(1, 2, 0), size, 1)


@settings(max_examples=40, deadline=None)
@given(kinds, sides, sides, st.booleans())
def test_pixel_values_equal_transformers(kind, width, height, grey):
    picture = random_picture(np.random.default_rng(width), height, width, grey=grey)
    processor = CONFIGS[kind].processor
    size = processor.geometry.patch_size
    ours = [
        normalise(patchify(as_channels(view.pixels, 3), size, 1), processor)
        for view in views_of(kind, picture)
    ]
    tiles = np.asarray(theirs(kind, picture)["pixel_values"])
    tiles = tiles.reshape(-1, *tiles.shape[-3:])
    assert np.array_equal(
        np.concatenate(ours), np.concatenate([patches_of(t, size) for t in tiles])
    )


@settings(max_examples=40, deadline=None)
@given(kinds, sides, sides)
def test_the_plan_counts_what_the_prompt_holds(kind, width, height):
    """Line breaks are counted one by one: a tokenizer that merges two saves a position."""
    picture = random_picture(np.random.default_rng(height), height, width, grey=True)
    config = CONFIGS[kind]
    geometry = find_family(config.model_type).geometry(width, height, config.processor)
    views = views_of(kind, picture)
    assert geometry.num_tokens == sum(view.num_tokens for view in views)
    assert geometry.num_patches * config.vision.patch_size**2 == sum(v.pixels.size for v in views)
    laid_out = lay_out(parts_of(kind, picture), marker_ids, image_token_id=-1, offset=7)
    assert geometry.num_positions == len(laid_out.token_ids)
    for place in laid_out.placeholders:
        start, end = place.offset - 7, place.end - 7
        assert set(laid_out.token_ids[start:end]) == {-1}
    assert laid_out.token_ids.count(-1) == geometry.num_tokens


def marker_ids(text):
    """A token for each marker in angle brackets and for each line break."""
    assert text.replace("\n", "").startswith("<") or not text.strip()
    return [0] * (text.count("<") + text.count("\n"))


@settings(max_examples=40, deadline=None)
@given(kinds, sides, sides)
def test_markers_are_those_of_the_processor(kind, width, height):
    picture = random_picture(np.random.default_rng(height), height, width, grey=True)
    ours = "".join(
        part if isinstance(part, str) else "@" * part.num_tokens for part in parts_of(kind, picture)
    )
    assert ours == MARKERS[CONFIGS[kind].model_type](kind, picture)


def internvl_markers(kind, picture):
    namespace = SimpleNamespace(
        start_image_token="<img>",
        end_image_token="</img>",
        image_token="@",
        image_seq_length=CONFIGS[kind].processor.geometry.tokens_per_tile,
    )
    return InternVLProcessor.replace_image_token(namespace, theirs(kind, picture), 0)


MARKERS = {"internvl": internvl_markers}


def test_square_tiles_hold_every_pixel_once():
    canvas = np.arange(6 * 9, dtype=np.uint8).reshape(6, 9)
    tiles = square_tiles(canvas, 3)
    assert [int(tile[0, 0]) for tile in tiles] == [0, 3, 6, 27, 30, 33]
    assert np.array_equal(np.sort(np.concatenate(tiles), axis=None), canvas.ravel())
    with pytest.raises(AssertionError):
        square_tiles(canvas, 4)
