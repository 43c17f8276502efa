"""Parameter counts from shapes, against published totals and transformers' meta-device models."""

import copy
import warnings

import pytest

from vlmcli.errors import ModelError
from vlmcli.memory.facts import DTYPE_BYTES
from vlmcli.memory.families import facts_from_config, text_config
from vlmcli.memory.presets import _PRESETS, find_preset, preset_names

# Total numbers in the safetensors files of the published checkpoints.
PUBLISHED = {
    "qwen2-vl-2b": 2_208_985_600,
    "qwen2-vl-7b": 8_291_375_616,
    "qwen2-vl-72b": 73_405_560_320,
    "qwen2.5-vl-3b": 3_754_622_976,
    "qwen2.5-vl-7b": 8_292_166_656,
    "qwen2.5-vl-32b": 33_452_718_336,
    "qwen2.5-vl-72b": 73_410_777_344,
    "qwen3-vl-2b": 2_127_532_032,
    "qwen3-vl-4b": 4_437_815_808,
    "qwen3-vl-8b": 8_767_123_696,
    "internvl3-1b": 938_193_024,
    "internvl3-2b": 2_088_957_440,
    "internvl3-8b": 7_944_373_760,
    "smolvlm2-256m": 256_484_928,
    "smolvlm2-500m": 507_482_304,
    "smolvlm2-2.2b": 2_246_784_880,
    "dots.ocr": 3_039_179_264,
    "llava-onevision-0.5b": 893_618_208,
    "llava-onevision-7b": 8_030_348_832,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_as_many_parameters_as_published(name: str) -> None:
    facts = find_preset(name)
    assert facts is not None
    assert facts.num_parameters == PUBLISHED[name]


def test_glm_ocr_differs_from_its_file_by_the_prediction_layer_alone() -> None:
    facts = find_preset("glm-ocr")
    assert facts is not None
    hidden, vocab, text = 1536, 59_392, facts.decoder
    layer = hidden * text.qkv_size + text.num_heads * text.head_dim * hidden
    layer += 3 * hidden * text.intermediate_size + 4 * hidden
    extra = 2 * hidden * hidden + 3 * hidden + 2 * vocab * hidden
    assert facts.num_parameters + layer + extra == 1_325_258_240


def test_deepseek_ocr_differs_from_its_file_by_an_unused_patch_embedding() -> None:
    facts = find_preset("deepseek-ocr")
    assert facts is not None
    assert facts.num_parameters + 1024 * 3 * 14 * 14 == 3_336_106_240


def meta_parameters(config: dict) -> int:
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(**config))
    return sum(parameter.numel() for parameter in model.parameters())


ONE_OF_EACH = [
    "qwen2-vl-2b",
    "qwen2-vl-7b",
    "qwen2.5-vl-7b",
    "qwen3-vl-8b",
    "internvl3-8b",
    "internvl3.5-4b",
    "llava-onevision-0.5b",
    "smolvlm2-2.2b",
    "granite-docling-258m",
    "granite-docling-500m",
    "paddleocr-vl",
    "lightonocr-1b",
    "glm-ocr",
]


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_counts_equal_transformers_on_the_meta_device(name: str) -> None:
    preset = _PRESETS[name]
    config = copy.deepcopy(dict(preset.config))
    text_config(config)["num_hidden_layers"] = 2
    config.pop("density_router_hidden_size", None)
    tied = config.get("tie_word_embeddings", True)
    if name == "paddleocr-vl":  # the class always ties; the published file does not
        tied = config["tie_word_embeddings"] = True
    facts = facts_from_config(name, config, preset.preprocessor)
    assert facts.decoder.tie_word_embeddings == tied
    assert facts.num_parameters == meta_parameters(config)


def test_deepseek_shapes_equal_those_of_its_successor_in_transformers() -> None:
    config = dict(_PRESETS["deepseek-ocr"].config)
    text = dict(config["language_config"]) | {"num_hidden_layers": 2}
    facts = facts_from_config("x", config | {"language_config": text}, {})
    theirs = {
        "num_hidden_layers": 2,
        "mlp_layer_types": ["dense", "sparse"],
        "layer_types": ["reference_sliding_attention"] * 2,
    }
    assert facts.num_parameters == meta_parameters(
        {"model_type": "unlimited_ocr", "text_config": theirs}
    )


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_gives_facts(name: str) -> None:
    facts = find_preset(name)
    assert facts is not None
    assert facts.dtype in DTYPE_BYTES
    assert facts.measure(1240, 1754).num_tokens > 100
    assert facts.embedding_width % facts.decoder.hidden_size == 0


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-vl-7b"),
        ("OpenGVLab/InternVL3_5-8B", "internvl3.5-8b"),
        ("HuggingFaceTB/SmolVLM2-256M-Video-Instruct", "smolvlm2-256m"),
        ("lightonai/LightOnOCR-1B-1025", "lightonocr-1b"),
        ("opendatalab/MinerU2.5-2509-1.2B", "mineru2.5"),
        ("allenai/olmOCR-2-7B", "qwen2.5-vl-7b"),
        ("PaddlePaddle/PaddleOCR-VL-0.9B", "paddleocr-vl"),
        ("ibm-granite/granite-docling-258M", "granite-docling-258m"),
    ],
)
def test_published_names_are_understood(spelling: str, name: str) -> None:
    facts = find_preset(spelling)
    assert facts is not None and facts.name == name


def test_unknown_families_and_broken_configs_are_named() -> None:
    with pytest.raises(ModelError, match="mystery"):
        facts_from_config("m", {"model_type": "mystery"}, {})
    with pytest.raises(ModelError, match="num_attention_heads"):
        facts_from_config("m", {"model_type": "qwen2_vl"}, {})
    assert find_preset("no-such-model") is None


@pytest.mark.parametrize(
    ("name", "kib"),
    [
        ("mineru2.5", 12),
        ("paddleocr-vl", 18),
        ("smolvlm2-256m", 22.5),
        ("granite-docling-500m", 28),
        ("dots.ocr", 28),
        ("qwen2.5-vl-3b", 36),
        ("qwen2.5-vl-7b", 56),
        ("deepseek-ocr", 60),
        ("glm-ocr", 64),
        ("lightonocr-1b", 112),
        ("qwen3-vl-8b", 144),
    ],
)
def test_kv_bytes_of_a_token_in_sixteen_bits(name: str, kib: float) -> None:
    facts = find_preset(name)
    assert facts is not None
    assert facts.decoder.kv_values_per_token * 2 == kib * 1024
