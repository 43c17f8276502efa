"""Pixels against transformers' image processor, bit by bit, and the order of patches."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures_kit import SCALES, patch_embed
from tiny_checkpoints import as_input, load_runner, random_picture, write_checkpoint
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from vlmcli.engine.config import ProcessorConfig
from vlmcli.engine.geometry import SmartResizeConfig, qwen2_vl
from vlmcli.engine.preprocess import (
    as_channels,
    image_grid,
    normalise,
    pack,
    pad_line,
    patchify,
    resize,
)

LAYOUTS = [(14, 2), (7, 4)]
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def processor_of(patch_size, merge_size):
    return ProcessorConfig(
        geometry=SmartResizeConfig(
            patch_size=patch_size,
            merge_size=merge_size,
            min_pixels=28 * 28 * 4,
            max_pixels=28 * 28 * 30,
        ),
        rescale_factor=1 / 255,
        image_mean=MEAN,
        image_std=STD,
        resample=3,
    )


def theirs(picture, processor):
    geometry = processor.geometry
    reference = Qwen2VLImageProcessorPil(
        patch_size=geometry.patch_size,
        merge_size=geometry.merge_size,
        min_pixels=geometry.min_pixels,
        max_pixels=geometry.max_pixels,
        image_mean=list(MEAN),
        image_std=list(STD),
    )
    out = reference(images=[as_channels(picture, 3)], return_tensors="np")
    return out["pixel_values"], out["image_grid_thw"][0]


@pytest.mark.check("pixels", family="qwen2_vl")
@settings(max_examples=25, deadline=None)
@given(
    st.integers(20, 260),
    st.integers(20, 260),
    st.booleans(),
    st.sampled_from(LAYOUTS),
)
def test_pixel_values_equal_transformers(width, height, grey, layout):
    processor = processor_of(*layout)
    picture = random_picture(np.random.default_rng(width), height, width, grey=grey)
    geometry = qwen2_vl(width, height, processor.geometry)
    resized = resize(picture, geometry.width, geometry.height, processor.resample)
    patches = patchify(as_channels(resized, 3), *layout)
    ours = normalise(patches, processor)
    expected, grid = theirs(picture, processor)
    frames = expected.reshape(len(expected), 3, 2, -1)
    assert np.array_equal(frames[:, :, 0], frames[:, :, 1]), "frames of a picture are equal"
    assert np.array_equal(ours, frames[:, :, 0].reshape(len(ours), -1))
    assert image_grid(resized, processor) == tuple(grid)


@pytest.mark.parametrize("rescale", SCALES)
def test_the_model_normalises_as_the_host_does(rescale):
    """Bit by bit in float32, and so in whatever format follows; all bytes in all channels."""
    embed, processor = patch_embed(rescale)
    patches = np.tile(np.arange(256, dtype=np.uint8), 3 * 14 * 14).reshape(256, -1)
    assert np.unique(patches[:, :196]).size == np.unique(patches[:, -196:]).size == 256
    with torch.inference_mode():
        ours = embed.normalised(torch.from_numpy(patches))
    assert np.array_equal(ours.numpy(), normalise(patches, processor))
    assert (embed.divisor is None) == (rescale in SCALES[-2:])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_grey_and_colour_paths_agree(tmp_path, layout):
    """A grey picture sent with one channel is the picture sent with three."""
    kind = "merge2_patch14" if layout[0] == 14 else "merge4_patch7"
    runner = load_runner(write_checkpoint(tmp_path, kind))
    grey = random_picture(np.random.default_rng(0), 28, 84, grey=True)
    one, three = runner.encode([as_input(grey), as_input(as_channels(grey, 3))])
    torch.testing.assert_close(one, three, atol=2e-5, rtol=0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_patches_hold_every_pixel_once(layout):
    patch_size, merge_size = layout
    pixels = np.arange(56 * 84, dtype=np.uint32).reshape(56, 84)
    patches = patchify(pixels, *layout)
    assert patches.shape == (56 * 84 // patch_size**2, patch_size**2)
    assert np.array_equal(np.sort(patches.ravel()), pixels.ravel())
    cell = patches[: merge_size**2].ravel()
    assert set(cell) == set(pixels[:28, :28].ravel()), "the first cell is the top left corner"


@given(st.integers(1, 200), st.integers(0, 255))
def test_padded_lines(width, fill):
    line = np.full((28, width), 7, np.uint8)
    padded = pad_line(line, 28, fill)
    assert padded.shape[1] % 28 == 0
    assert 0 <= padded.shape[1] - width < 28
    assert (padded[:, :width] == 7).all()
    assert (padded[:, width:] == fill).all()


def test_pack_keeps_order_and_grids():
    processor = processor_of(14, 2)
    rng = np.random.default_rng(0)
    images = [random_picture(rng, 28, 28 * n, grey=True) for n in (3, 1, 2)]
    patches, grids = pack(images, processor)
    assert grids == [(1, 2, 6), (1, 2, 2), (1, 2, 4)]
    assert np.array_equal(patches[12:16], patchify(images[1], 14, 2))
    assert patches.dtype == np.uint8
