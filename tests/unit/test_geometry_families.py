"""From a checkpoint's JSON to its geometry: the settings that each family's processor reads."""

import importlib

import pytest
from geometry_sizes import is_strip, random_sizes

from vlmcli.engine import geometry
from vlmcli.engine.geometry import measure_for, smart_resize_config

SIZES = [size for size in random_sizes(300, seed=21) if not is_strip(*size)]


@pytest.mark.parametrize(
    "preprocessor",
    [
        {},
        {"min_pixels": 50_000, "max_pixels": 500_000},
        {"size": {"shortest_edge": 50_000, "longest_edge": 500_000}},
        {"size": {"shortest_edge": 1, "longest_edge": 2}, "max_pixels": 500_000},
        {
            "patch_size": 16,
            "merge_size": 1,
            "size": {"shortest_edge": 4_000, "longest_edge": 9_000},
        },
    ],
)
def test_grid_settings_are_read_as_the_processor_reads_them(preprocessor: dict) -> None:
    module = importlib.import_module("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    theirs = module.Qwen2VLImageProcessorPil(**preprocessor)
    measure = measure_for("qwen2_vl", {}, preprocessor)
    for height, width in SIZES:
        assert measure(width, height).num_patches == theirs.get_number_of_image_patches(
            height, width
        )


@pytest.mark.parametrize(
    ("model_type", "config", "preprocessor", "function"),
    [
        ("qwen3_vl", {}, {}, lambda w, h: geometry.qwen2_vl(w, h, geometry.QWEN3_VL)),
        ("paddleocr_vl", {}, {}, geometry.paddleocr_vl),
        ("glm_ocr", {}, {}, geometry.glm4v),
        ("internvl", {"vision_config": {}}, {}, geometry.internvl),
        (
            "internvl_chat",
            {"force_image_size": 448, "max_dynamic_patch": 6, "min_dynamic_patch": 1},
            {},
            lambda w, h: geometry.internvl(w, h, geometry.TileConfig(max_tiles=6)),
        ),
        (
            "smolvlm",
            {"scale_factor": 4, "vision_config": {"patch_size": 16}},
            {"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}},
            lambda w, h: geometry.idefics3(w, h, geometry.SMOLVLM),
        ),
        (
            "idefics2",
            {"vision_config": {"patch_size": 14}},
            {"size": {"shortest_edge": 100, "longest_edge": 500}, "do_image_splitting": False},
            lambda w, h: geometry.idefics2(
                w, h, geometry.Idefics2Config(shortest_edge=100, longest_edge=500)
            ),
        ),
        ("idefics3", {}, {"do_image_splitting": False}, None),
        ("granite_docling", {}, {}, geometry.granite_docling),
        ("llava_onevision", {"vision_config": {}}, {}, geometry.llava_onevision),
        ("deepseek_vl_v2", {}, {}, geometry.deepseek_ocr),
        (
            "unlimited_ocr",
            {"model_type": "unlimited_ocr"},
            {},
            lambda w, h: geometry.deepseek_ocr(w, h, geometry.DeepSeekOcrConfig(max_tiles=32)),
        ),
        (
            "mistral3",
            {"vision_config": {"patch_size": 14}, "spatial_merge_size": 2},
            {"size": {"longest_edge": 1540}, "patch_size": {"height": 14, "width": 14}},
            geometry.pixtral,
        ),
    ],
)
def test_each_family_gets_its_function_and_settings(
    model_type, config, preprocessor, function
) -> None:
    measure = measure_for(model_type, config, preprocessor)
    for height, width in SIZES[:100]:
        ours = measure(width, height)
        if function is None:
            assert ours.tiles == (1, 1)
        else:
            assert ours == function(width, height)


@pytest.mark.parametrize("architectures", [[], ["LightOnOCRForConditionalGeneration"]])
def test_lighton_ocr_aligns_to_patches_and_drops_an_odd_one(architectures: list[str]) -> None:
    module = importlib.import_module("transformers.models.lighton_ocr.processing_lighton_ocr")
    images = importlib.import_module("transformers.models.pixtral.image_processing_pil_pixtral")
    config = {
        "model_type": "mistral3" if architectures else "lighton_ocr",
        "architectures": architectures,
        "vision_config": {"patch_size": 14},
    }
    measure = measure_for(
        config["model_type"], config, {"size": {"longest_edge": 1540}, "patch_size": 14}
    )
    import numpy as np

    for height, width in SIZES:
        pixels = np.broadcast_to(np.uint8(0), (height, width, 3))
        size = module.get_resize_output_image_size(pixels, 1540, 14, "channels_last")
        assert size == images.get_resize_output_image_size(pixels, 1540, 14, "channels_last")
        ours = measure(width, height)
        assert (ours.height, ours.width) == size
        assert ours.num_positions == (size[0] // 28) * (size[1] // 28)


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(ValueError, match="mystery"):
        measure_for("mystery", {}, {})
    assert smart_resize_config({"max_pixels": 7}).max_pixels == 7
