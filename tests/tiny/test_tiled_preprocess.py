"""Tiles against transformers' image processors, bit by bit, and what stands between them."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiled_checkpoints import KINDS, encode_markers, tiled_config, write_tokenizer
from tiny_checkpoints import random_picture
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
from transformers.models.internvl.processing_internvl import InternVLProcessor
from transformers.models.llava_onevision.processing_llava_onevision import (
    LlavaOnevisionProcessor,
)
from transformers.models.smolvlm.processing_smolvlm import SmolVLMProcessor

from vlmcli.engine.models.registry import find_family
from vlmcli.engine.preprocess import as_channels, normalise, patchify
from vlmcli.engine.tokenizer import load_tokenizer
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


@pytest.mark.check("pixels")
@pytest.mark.parametrize("kind", sorted(KINDS))
@settings(max_examples=8, deadline=None)
@given(sides, sides, st.booleans())
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
    laid_out = lay_out(parts_of(kind, picture), encode_markers, image_token_id=-1, offset=7)
    assert geometry.num_positions == len(laid_out.token_ids)
    for place in laid_out.placeholders:
        start, end = place.offset - 7, place.end - 7
        assert set(laid_out.token_ids[start:end]) == {-1}
    assert laid_out.token_ids.count(-1) == geometry.num_tokens


@settings(max_examples=40, deadline=None)
@given(kinds, sides, sides)
def test_markers_are_those_of_the_processor(kind, width, height):
    picture = random_picture(np.random.default_rng(height), height, width, grey=True)
    ours = "".join(
        part if isinstance(part, str) else "@" * part.num_tokens for part in parts_of(kind, picture)
    )
    assert ours == MARKERS[CONFIGS[kind].model_type](kind, picture)


def markers_of(processor, kind, picture, **more):
    """What a processor of transformers writes for a picture; each looks at some of the names."""
    num_tokens = CONFIGS[kind].processor.geometry.tokens_per_tile
    names = SimpleNamespace(
        start_image_token="<img>",
        end_image_token="</img>",
        fake_image_token="<fake_token_around_image>",
        global_image_tag="<global-img>",
        global_image_token="<global-img>",
        image_token="@",
        image_seq_len=num_tokens,
        image_seq_length=num_tokens,
    )
    return processor.replace_image_token(names, theirs(kind, picture, **more), 0)


def llava_onevision_tokens(kind, picture):
    """No markers, and the number of tokens that the processor works out."""
    facts, side = KINDS[kind], CONFIGS[kind].processor.geometry.side
    processor = LlavaOnevisionProcessor.__new__(LlavaOnevisionProcessor)
    processor.image_processor = facts.make_processor(**facts.processor)
    processor.num_image_tokens = side**2
    processor.vision_aspect_ratio = facts.config["vision_aspect_ratio"]
    size = facts.processor["size"]["height"]
    return "@" * processor._get_number_of_features(*picture.shape[:2], size, size)


MARKERS = {
    "idefics3": partial(markers_of, Idefics3Processor, return_row_col_info=True),
    "internvl": partial(markers_of, InternVLProcessor),
    "llava_onevision": llava_onevision_tokens,
    "smolvlm": partial(markers_of, SmolVLMProcessor, return_row_col_info=True),
}


def test_square_tiles_hold_every_pixel_once():
    canvas = np.arange(6 * 9, dtype=np.uint8).reshape(6, 9)
    tiles = square_tiles(canvas, 3)
    assert [int(tile[0, 0]) for tile in tiles] == [0, 3, 6, 27, 30, 33]
    assert np.array_equal(np.sort(np.concatenate(tiles), axis=None), canvas.ravel())
    with pytest.raises(AssertionError):
        square_tiles(canvas, 4)


def test_the_chat_format_is_the_one_that_the_tokenizer_knows(tmp_path):
    write_tokenizer(tmp_path)
    family = find_family("idefics3")
    assert family.chat_for(load_tokenizer(tmp_path).encode).before == "<|begin_of_text|>User:"
    write_tokenizer(tmp_path, ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"))
    chat = family.chat_for(load_tokenizer(tmp_path).encode)
    assert chat.before == "<|start_of_role|>user<|end_of_role|>"
    assert chat.after.endswith("<|start_of_role|>assistant<|end_of_role|>")
