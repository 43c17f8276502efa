"""Tiling families against transformers' own image processors and processors."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from geometry_sizes import random_sizes

from vlmcli.engine import geometry
from vlmcli.engine.geometry import GraniteDoclingConfig, Idefics3Config, TileConfig
from vlmcli.errors import PageError


def module(path: str):
    return importlib.import_module(f"transformers.models.{path}")


def no_pixels(height: int, width: int) -> np.ndarray:
    """A (3, height, width) picture that takes one byte."""
    return np.broadcast_to(np.uint8(0), (3, height, width))


@pytest.fixture
def sizes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processors' own control flow on pictures without pixels: resizing changes the shape."""
    backends = importlib.import_module("transformers.image_processing_backends")

    def resize(self, image, size, resample=None, **kwargs):
        assert size.height and size.width
        return no_pixels(size.height, size.width)

    monkeypatch.setattr(backends.PilBackend, "resize", resize)


@pytest.mark.parametrize("limits", [(1, 12), (1, 6), (2, 9), (1, 1), (1, 40)])
def test_internvl_equals_transformers(limits: tuple[int, int]) -> None:
    got = module("got_ocr2.image_processing_pil_got_ocr2")
    processor = got.GotOcr2ImageProcessorPil(
        size={"height": 448, "width": 448},
        crop_to_patches=True,
        min_patches=limits[0],
        max_patches=limits[1],
    )
    config = TileConfig(min_tiles=limits[0], max_tiles=limits[1])
    for height, width in random_sizes(3_000):
        ours = geometry.internvl(width, height, config)
        assert ours.grid_thw[0] == processor.get_number_of_image_patches(height, width)
        if limits[1] > 1:
            columns, rows = got.get_optimal_tiled_canvas((height, width), (448, 448), *limits)
            assert ours.tiles == (rows, columns)
        assert ours.num_tokens == 256 * ours.grid_thw[0]


@pytest.mark.parametrize("longest_edge", [1456, 1820, 2048, 5000])
@pytest.mark.parametrize(("tile", "patch", "scale"), [(364, 14, 2), (512, 16, 4), (384, 14, 3)])
def test_idefics3_equals_transformers(
    longest_edge: int, tile: int, patch: int, scale: int, sizes_only: None
) -> None:
    processor = module("idefics3.image_processing_pil_idefics3").Idefics3ImageProcessorPil(
        size={"longest_edge": longest_edge},
        max_image_size={"longest_edge": tile},
        do_pad=False,
        do_rescale=False,
        do_normalize=False,
    )
    config = Idefics3Config(
        longest_edge=longest_edge, tile_size=tile, patch_size=patch, scale_factor=scale
    )
    for height, width in random_sizes(400):
        batch = processor(
            [no_pixels(height, width)],
            input_data_format="channels_first",
            return_row_col_info=True,
        )
        ours = geometry.idefics3(width, height, config)
        expected = (batch["rows"][0][0], batch["cols"][0][0])
        assert ours.tiles == (expected if any(expected) else (1, 1))
        assert ours.grid_thw[0] == len(batch["pixel_values"][0])


def test_smolvlm_template_is_counted_mark_by_mark() -> None:
    processing = module("smolvlm.processing_smolvlm")
    for height, width in [(842, 595), (100, 90), (300, 3000)]:
        ours = geometry.idefics3(width, height, geometry.SMOLVLM)
        rows, columns = ours.tiles
        text = processing.get_image_prompt_string(
            rows, columns, 64, fake_token_around_image="F", image_token="I", global_image_token="G"
        )
        for row in range(rows):
            for column in range(columns):
                text = text.replace(f"<row_{row + 1}_col_{column + 1}>", "P", 1)
        assert text.count("I") == ours.num_tokens
        assert len(text) - text.count("I") == ours.num_markers


@pytest.mark.parametrize(
    "dense",
    [
        {},
        {
            "dense_max_patches": 48,
            "dense_max_scale": 0.8,
            "dense_min_aspect": 1.2,
            "dense_max_aspect": 6.0,
        },
        {"dense_max_patches": 64, "dense_max_scale": 0.5},
    ],
)
def test_granite_docling_equals_transformers(dense: dict[str, float]) -> None:
    processor = module("granite_docling.image_processing_pil_granite_docling")
    processor = processor.GraniteDoclingImageProcessorPil(**dense)
    renamed = {key.replace("patches", "tiles"): value for key, value in dense.items()}
    config = GraniteDoclingConfig(**renamed)
    for height, width in random_sizes(3_000):
        ours = geometry.granite_docling(width, height, config)
        assert ours.tiles == processor.get_tile_grid(height, width)
        assert ours.grid_thw[0] == processor.get_number_of_image_patches(height, width)


def test_granite_docling_template_is_counted_mark_by_mark() -> None:
    processing = module("granite_docling.processing_granite_docling")
    stub = SimpleNamespace(
        image_seq_len=64, image_token="I", fake_image_token="F", global_image_tag="G"
    )
    for fine in (False, True):
        for height, width in [(842, 595), (100, 90), (300, 3000)]:
            ours = geometry.granite_docling(width, height, GraniteDoclingConfig(fine=fine))
            rows, columns = ours.tiles
            inputs = {"rows": [[rows]], "cols": [[columns]]} | (
                {"tile_fine_mask": 1} if fine else {}
            )
            text = processing.GraniteDoclingProcessor.replace_image_token(stub, inputs, 0)
            for row in range(rows):
                for column in range(columns):
                    text = text.replace(f"<row_{row + 1}_col_{column + 1}>", "P", 1)
            assert text.count("I") == ours.num_tokens
            assert len(text) - text.count("I") == ours.num_markers


def test_deepseek_ocr2_equals_transformers(sizes_only: None) -> None:
    module_ = module("deepseek_ocr2.image_processing_pil_deepseek_ocr2")
    processor = module_.DeepseekOcr2ImageProcessorPil(do_rescale=False, do_normalize=False)
    processing = module("deepseek_ocr2.processing_deepseek_ocr2")
    stub = SimpleNamespace(
        image_processor=processor, patch_size=16, downsample_ratio=4, image_token="I"
    )
    for height, width in random_sizes(300):
        if max(height, width) > 2 * 1024 * min(height, width):
            continue  # its global view would have no rows
        batch = processor([no_pixels(height, width)], input_data_format="channels_first")
        text = processing.DeepseekOcr2Processor.replace_image_token(stub, batch, 0)
        assert geometry.deepseek_ocr2(width, height).num_tokens == len(text)


@pytest.mark.parametrize("max_tiles", [6, 32])
def test_deepseek_ocr_tokens_from_the_published_formula(max_tiles: int) -> None:
    """Rows of 16 and of 10 a tile, a break per row, one separator; the grid is transformers'."""
    canvas = module("deepseek_ocr2.image_processing_pil_deepseek_ocr2").get_optimal_tiled_canvas
    config = geometry.DeepSeekOcrConfig(max_tiles=max_tiles)
    for height, width in random_sizes(3_000):
        tokens = 16 * 17 + 1
        if max(height, width) > 640:
            columns, rows = canvas((height, width), (640, 640), 2, max_tiles)
            tokens += 10 * rows * (10 * columns + 1)
        assert geometry.deepseek_ocr(width, height, config).num_tokens == tokens


def test_llava_onevision_equals_transformers() -> None:
    processing = module("llava_onevision.processing_llava_onevision")
    images = module("llava_onevision.image_processing_pil_llava_onevision")
    llava = module("llava_onevision.modeling_llava_onevision")
    count = processing.LlavaOnevisionProcessor._get_number_of_features
    processor = images.LlavaOnevisionImageProcessorPil()
    stub = SimpleNamespace(
        image_processor=processor, num_image_tokens=729, vision_aspect_ratio="anyres_max_9"
    )
    stub._get_unpadded_features = lambda *args: (
        processing.LlavaOnevisionProcessor._get_unpadded_features(stub, *args)
    )
    for height, width in random_sizes(5_000):
        ours = geometry.llava_onevision(width, height)
        assert ours.num_tokens == count(stub, height, width, 384, 384)
        assert ours.grid_thw[0] == llava.image_size_to_num_patches(
            (height, width), processor.image_grid_pinpoints, 384
        )


@pytest.mark.parametrize("longest_edge", [1024, 1540])
def test_pixtral_equals_transformers(longest_edge: int) -> None:
    images = module("pixtral.image_processing_pil_pixtral")
    config = geometry.PixtralConfig(longest_edge=longest_edge)
    plain = geometry.PixtralConfig(longest_edge=longest_edge, has_breaks=False)
    for height, width in random_sizes(5_000):
        expected = images.get_resize_output_image_size(
            no_pixels(height, width), longest_edge, 28, "channels_first"
        )
        if 0 in expected:
            with pytest.raises(PageError):
                geometry.pixtral(width, height, config)
            continue
        ours = geometry.pixtral(width, height, config)
        rows, columns = expected[0] // 28, expected[1] // 28
        assert (ours.height, ours.width) == expected
        assert ours.num_positions == rows * (columns + 1)
        assert geometry.pixtral(width, height, plain).num_positions == rows * columns


A4 = {72: (595, 842), 150: (1240, 1754), 200: (1654, 2339), 300: (2480, 3508)}
HUB_QWEN = geometry.SmartResizeConfig(max_pixels=12_845_056)
QWEN3 = geometry.SmartResizeConfig(patch_size=16, min_pixels=65_536, max_pixels=16_777_216)
A4_TOKENS = [
    # dpi, Qwen2.5 default, hub, Qwen3-VL, PaddleOCR-VL, InternVL, DeepSeek-OCR, SmolVLM, Pixtral
    (72, 630, 630, 494, 630, 1792, 903, 832, 713),
    (150, 1260, 2772, 2145, 2772, 1792, 903, 832, 2200),
    (200, 1260, 4956, 3796, 2990, 1792, 903, 832, 2200),
    (300, 1260, 11125, 8580, 2990, 1792, 903, 832, 2200),
]


@pytest.mark.parametrize("row", A4_TOKENS, ids=lambda row: f"{row[0]}dpi")
def test_tokens_of_an_a4_page(row: tuple[int, ...]) -> None:
    dpi, *expected = row
    width, height = A4[dpi]
    assert [
        geometry.qwen2_vl(width, height).num_tokens,
        geometry.qwen2_vl(width, height, HUB_QWEN).num_tokens,
        geometry.qwen2_vl(width, height, QWEN3).num_tokens,
        geometry.paddleocr_vl(width, height).num_tokens,
        geometry.internvl(width, height).num_tokens,
        geometry.deepseek_ocr(width, height).num_tokens,
        geometry.idefics3(width, height, geometry.SMOLVLM).num_tokens,
        geometry.pixtral(width, height).num_positions,
    ] == expected
