"""Grid families against the size arithmetic of transformers' own image processors."""

import importlib
from dataclasses import replace

import numpy as np
import pytest
from geometry_sizes import is_strip, random_sizes

from vlmcli.engine import geometry
from vlmcli.engine.geometry import SmartResizeConfig, smart_resize
from vlmcli.errors import PageError

LIMITS = [(56 * 56, 28 * 28 * 1280), (56 * 56, 12_845_056), (65_536, 16_777_216), (1, 50_000)]


def processing(family: str) -> object:
    return importlib.import_module(f"transformers.models.{family}.image_processing_pil_{family}")


@pytest.mark.parametrize("factor", [28, 32])
def test_smart_resize_equals_transformers(factor: int) -> None:
    theirs = processing("qwen2_vl").smart_resize
    for height, width in random_sizes(10_000):
        for limits in LIMITS:
            if is_strip(height, width):
                with pytest.raises(PageError):
                    smart_resize(height, width, factor, *limits)
                with pytest.raises(ValueError, match="aspect ratio"):
                    theirs(height, width, factor, *limits)
            else:
                ours = smart_resize(height, width, factor, *limits)
                assert ours == theirs(height, width, factor, *limits)


@pytest.mark.parametrize("limits", [(384 * 384, 1536 * 1536), (147_384, 2_822_400)])
def test_paddleocr_vl_equals_transformers(limits: tuple[int, int]) -> None:
    theirs = processing("paddleocr_vl").smart_resize
    config = SmartResizeConfig(temporal_patch_size=1, min_pixels=limits[0], max_pixels=limits[1])
    for height, width in random_sizes(5_000):
        try:
            expected = theirs(height, width, 28, *limits)
        except ValueError:
            with pytest.raises(PageError):
                geometry.paddleocr_vl(width, height, config)
            continue
        ours = geometry.paddleocr_vl(width, height, config)
        assert (ours.height, ours.width) == expected


@pytest.mark.parametrize("limits", [(112 * 112, 28 * 28 * 15_000), (112 * 112, 9_633_792)])
def test_glm4v_equals_transformers(limits: tuple[int, int]) -> None:
    theirs = processing("glm4v").smart_resize
    config = SmartResizeConfig(min_pixels=limits[0], max_pixels=limits[1])
    for height, width in random_sizes(5_000):
        try:
            expected = theirs(2, height, width, 2, 28, *limits)
        except ValueError:
            with pytest.raises(PageError):
                geometry.glm4v(width, height, config)
            continue
        ours = geometry.glm4v(width, height, config)
        assert (ours.height, ours.width) == expected


@pytest.mark.parametrize(
    ("family", "function", "name", "defaults"),
    [
        ("qwen2_vl", geometry.qwen2_vl, "Qwen2VLImageProcessorPil", geometry.QWEN2_VL),
        (
            "paddleocr_vl",
            geometry.paddleocr_vl,
            "PaddleOCRVLImageProcessorPil",
            geometry.PADDLEOCR_VL,
        ),
        ("glm4v", geometry.glm4v, "Glm4vImageProcessorPil", geometry.GLM4V),
    ],
)
def test_grid_is_what_the_processor_returns(family, function, name, defaults) -> None:
    """The whole processor, real pixels: grid, patch count, and the class's default limits."""
    processor = getattr(processing(family), name)()
    assert defaults.min_pixels == processor.size["shortest_edge"]
    assert defaults.max_pixels == processor.size["longest_edge"]
    for height, width in random_sizes(12, seed=9, max_side=700):
        if is_strip(height, width):
            continue
        pixels = np.zeros((height, width, 3), np.uint8)
        batch = processor(images=pixels, input_data_format="channels_last", return_tensors="np")
        ours = function(width, height)
        assert ours.grid_thw == tuple(batch["image_grid_thw"][0])
        assert ours.num_patches == len(batch["pixel_values"])
        assert ours.num_tokens * 4 == ours.num_patches


def test_more_pixels_allowed_never_give_fewer_tokens() -> None:
    for height, width in random_sizes(2_000, seed=11):
        if is_strip(height, width):
            continue
        counts = [
            geometry.qwen2_vl(
                width, height, replace(geometry.QWEN2_VL, max_pixels=limit)
            ).num_tokens
            for limit in (100_352, 501_760, 1_003_520, 12_845_056)
        ]
        assert counts == sorted(counts)
