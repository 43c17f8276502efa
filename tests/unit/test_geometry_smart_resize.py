"""Grid families against the size arithmetic of transformers' own image processors."""

import random

import pytest

from vlmcli.engine.geometry import SmartResizeConfig, qwen2_vl, smart_resize
from vlmcli.errors import PageError

LIMITS = [(56 * 56, 28 * 28 * 1280), (56 * 56, 12_845_056), (65_536, 16_777_216), (1, 50_000)]


def random_sizes(count: int, seed: int = 7) -> list[tuple[int, int]]:
    """(height, width): pages, crops, strips and stamps, sides spread evenly in log space."""
    rng = random.Random(seed)
    sides = [max(1, round(2 ** rng.uniform(0, 13.5))) for _ in range(2 * count)]
    return list(zip(sides[::2], sides[1::2], strict=True))


@pytest.mark.parametrize("factor", [28, 32])
def test_smart_resize_equals_transformers(factor: int) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize as theirs

    for height, width in random_sizes(10_000):
        for min_pixels, max_pixels in LIMITS:
            if max(height, width) / min(height, width) > 200:
                with pytest.raises(PageError):
                    smart_resize(height, width, factor, min_pixels, max_pixels)
                with pytest.raises(ValueError, match="aspect ratio"):
                    theirs(height, width, factor, min_pixels, max_pixels)
            else:
                assert smart_resize(height, width, factor, min_pixels, max_pixels) == theirs(
                    height, width, factor, min_pixels, max_pixels
                )


def test_qwen2_vl_counts_what_the_processor_counts() -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil()
    for height, width in random_sizes(2_000, seed=8):
        if max(height, width) / min(height, width) <= 200:
            ours = qwen2_vl(width, height, SmartResizeConfig())
            assert ours.num_patches == processor.get_number_of_image_patches(height, width)
            assert ours.num_tokens * 4 == ours.num_patches
            assert ours.grid_thw == (1, ours.height // 14, ours.width // 14)
