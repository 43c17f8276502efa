"""From a checkpoint's configuration to the shapes that a plan needs, one function per family.

Reads the JSON of Hugging Face checkpoints (`config.json`, `preprocessor_config.json`); missing keys
get the defaults of transformers 5.24. Opens no file and loads no weights.
"""

from collections.abc import Callable, Mapping
from typing import Any

from vlmcli.engine.geometry import measure_for
from vlmcli.errors import ModelError
from vlmcli.memory.facts import (
    DecoderFacts,
    MixtureFacts,
    ModelFacts,
    TowerFacts,
    linear,
    norm,
)
from vlmcli.memory.resamplers import MISTRAL_DEFAULTS, idefics2

Config = Mapping[str, Any]
Vision = tuple[tuple[TowerFacts, ...], int, int]
"""Towers, connector parameters, DeepStack taps."""


def facts_from_config(
    name: str, config: Config, preprocessor: Config, *, unverified: tuple[str, ...] = ()
) -> ModelFacts:
    """The shapes behind a configuration.

    Args:
        name: what the plan calls the model.
        config: `config.json`.
        preprocessor: `preprocessor_config.json`; empty for the family's defaults.
        unverified: values in it that no published source confirms.

    Raises:
        ModelError: the family is not one of those listed here, or a needed key is missing.
    """
    model_type = str(config.get("model_type", ""))
    family = _FAMILIES.get(model_type)
    if family is None:
        raise ModelError(
            f"cannot plan for model type {model_type!r} of {name}",
            remedy="run it with --engine transformers; known types: "
            + ", ".join(sorted(_FAMILIES)),
        )
    try:
        decoder = _decoder(model_type, config)
        towers, connector, taps = family(config, decoder.hidden_size)
        measure = measure_for(model_type, config, preprocessor)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"incomplete configuration of {name}: {error!r}") from error
    return ModelFacts(
        name=name,
        model_type=model_type,
        decoder=decoder,
        towers=towers,
        connector_parameters=connector,
        measure=measure,
        embedding_width=decoder.hidden_size * (1 + taps),
        dtype=_dtype(config),
        unverified=unverified,
    )


def text_config(config: Config) -> Config:
    """The language model's part of a configuration, which older checkpoints keep at the top."""
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(config.get(key), Mapping):
            return config[key]  # type: ignore[no-any-return]
    return config


def _dtype(config: Config) -> str:
    for part in (config, text_config(config)):
        value = part.get("dtype", part.get("torch_dtype"))
        if isinstance(value, str):
            return value.removeprefix("torch.")
    return "bfloat16"


_QKV_BIAS = ("qwen2_vl", "qwen2_5_vl", "dots_ocr", "llava_onevision")
_TIED = ("lighton_ocr", "paddleocr_vl", "granite_docling")


def _decoder(model_type: str, config: Config) -> DecoderFacts:
    text = text_config(config)
    if model_type == "idefics2":
        text = MISTRAL_DEFAULTS | dict(text)
    heads = int(text["num_attention_heads"])
    hidden = int(text["hidden_size"])
    kind = str(text.get("model_type", model_type))
    is_qwen2 = model_type in _QKV_BIAS or kind in ("qwen2", "qwen2_vl_text", "qwen2_5_vl_text")
    tied = config.get("tie_word_embeddings", model_type in _TIED) or (
        text.get("tie_word_embeddings", False)
    )
    return DecoderFacts(
        num_layers=int(text["num_hidden_layers"]),
        hidden_size=hidden,
        intermediate_size=int(text["intermediate_size"]),
        num_heads=heads,
        num_kv_heads=int(text.get("num_key_value_heads") or heads),
        head_dim=int(text.get("head_dim") or hidden // heads),
        vocab_size=int(text.get("vocab_size", config.get("vocab_size", 0))),
        tie_word_embeddings=bool(tied),
        has_qkv_bias=bool(text.get("attention_bias", is_qwen2)),
        has_qk_norm=kind.startswith("qwen3"),
        norms_per_layer=4 if model_type in ("glm_ocr", "glm4v") else 2,
        mixture=_mixture(text),
    )


def _mixture(text: Config) -> MixtureFacts | None:
    if not text.get("n_routed_experts"):
        return None
    return MixtureFacts(
        num_experts=int(text["n_routed_experts"]),
        num_shared_experts=int(text.get("n_shared_experts") or 0),
        intermediate_size=int(text["moe_intermediate_size"]),
        num_dense_layers=int(text.get("first_k_dense_replace", 0)),
        num_active_experts=int(text["num_experts_per_tok"]),
    )


def _side(value: Any) -> int:
    return int(value[0] if isinstance(value, list | tuple) else value)


def _qwen2_vl(config: Config, hidden: int) -> Vision:
    vision = config.get("vision_config") or {}
    width, patch = int(vision.get("embed_dim", 1280)), int(vision.get("patch_size", 14))
    values = 3 * int(vision.get("temporal_patch_size", 2)) * patch * patch
    merged = width * int(vision.get("spatial_merge_size", 2)) ** 2
    tower = TowerFacts(
        num_layers=int(vision.get("depth", 32)),
        hidden_size=width,
        intermediate_size=int(width * vision.get("mlp_ratio", 4)),
        num_heads=int(vision.get("num_heads", 16)),
        patch_values=3 * patch * patch,
        extra=values * width,
    )
    mlp = linear(merged, merged, bias=True) + linear(merged, hidden, bias=True)
    return (tower,), norm(width, bias=True) + mlp, 0


def _qwen2_5_vl(config: Config, hidden: int) -> Vision:
    vision = config.get("vision_config") or {}
    width, patch = int(vision.get("hidden_size", 1280)), int(vision.get("patch_size", 14))
    values = 3 * int(vision.get("temporal_patch_size", 2)) * patch * patch
    merged = width * int(vision.get("spatial_merge_size", 2)) ** 2
    tower = TowerFacts(
        num_layers=int(vision.get("depth", 32)),
        hidden_size=width,
        intermediate_size=int(vision.get("intermediate_size", 3420)),
        num_heads=int(vision.get("num_heads", 16)),
        patch_values=3 * patch * patch,
        is_gated=True,
        has_norm_bias=False,
        extra=values * width,
    )
    mlp = linear(merged, merged, bias=True) + linear(merged, hidden, bias=True)
    return (tower,), width + mlp, 0


def _qwen3_vl(config: Config, hidden: int) -> Vision:
    vision = config["vision_config"]
    width, patch = int(vision["hidden_size"]), int(vision.get("patch_size", 16))
    values = 3 * int(vision.get("temporal_patch_size", 2)) * patch * patch
    merged = width * int(vision.get("spatial_merge_size", 2)) ** 2
    taps = len(vision.get("deepstack_visual_indexes", (8, 16, 24)))
    positions = int(vision.get("num_position_embeddings", 2304)) * width
    tower = TowerFacts(
        num_layers=int(vision["depth"]),
        hidden_size=width,
        intermediate_size=int(vision["intermediate_size"]),
        num_heads=int(vision["num_heads"]),
        patch_values=3 * patch * patch,
        extra=linear(values, width, bias=True) + positions,
    )
    mlp = linear(merged, merged, bias=True) + linear(merged, hidden, bias=True)
    stack = taps * (norm(merged, bias=True) + mlp)
    return (tower,), norm(width, bias=True) + mlp + stack, taps


def _internvl(config: Config, hidden: int) -> Vision:
    vision = config["vision_config"]
    width = int(vision.get("hidden_size", 1024))
    patch, image = _side(vision.get("patch_size", 14)), _side(vision.get("image_size", 448))
    positions = (image // patch) ** 2 + 1
    shuffled = int(width / float(config.get("downsample_ratio", 0.5)) ** 2)
    is_qk_normed = vision.get("use_qk_norm", vision.get("qk_normalization", False))
    has_post_norm = not vision.get("use_mean_pooling", True)
    tower = TowerFacts(
        num_layers=int(vision.get("num_hidden_layers", 24)),
        hidden_size=width,
        intermediate_size=int(vision.get("intermediate_size", 4096)),
        num_heads=int(vision.get("num_attention_heads", 16)),
        patch_values=3 * patch * patch,
        has_qkv_bias=bool(vision.get("attention_bias", vision.get("qkv_bias", False))),
        extra_per_layer=2 * width + (2 * width if is_qk_normed else 0),
        has_norm_bias=vision.get("norm_type", "layer_norm") != "rms_norm",
        extra=linear(3 * patch * patch, width, bias=True)
        + (positions + 1) * width
        + (norm(width, bias=True) if has_post_norm else 0),
    )
    mlp = linear(shuffled, hidden, bias=True) + linear(hidden, hidden, bias=True)
    return (tower,), norm(shuffled, bias=True) + mlp, 0


def _siglip(vision: Config, *, positions: int | None = None) -> TowerFacts:
    """SigLIP without its pooling head, as LLaVA-OneVision, Idefics3 and PaddleOCR-VL use it."""
    width, patch = int(vision.get("hidden_size", 1152)), _side(vision.get("patch_size", 14))
    if positions is None:
        positions = (_side(vision.get("image_size", 384)) // patch) ** 2
    return TowerFacts(
        num_layers=int(vision.get("num_hidden_layers", 27)),
        hidden_size=width,
        intermediate_size=int(vision.get("intermediate_size", 4304)),
        num_heads=int(vision.get("num_attention_heads", 16)),
        patch_values=3 * patch * patch,
        extra=linear(3 * patch * patch, width, bias=True)
        + positions * width
        + norm(width, bias=True),
    )


def _llava_onevision(config: Config, hidden: int) -> Vision:
    tower = _siglip({"num_hidden_layers": 26} | dict(config.get("vision_config") or {}))
    mlp = linear(tower.hidden_size, hidden, bias=True) + linear(hidden, hidden, bias=True)
    return (tower,), mlp + hidden, 0


def _idefics3(config: Config, hidden: int) -> Vision:
    defaults = {"num_hidden_layers": 12, "intermediate_size": 3072, "num_attention_heads": 16}
    defaults |= {"image_size": 224, "patch_size": 32}
    tower = _siglip(defaults | dict(config.get("vision_config") or {}))
    shuffled = tower.hidden_size * int(config.get("scale_factor", 2)) ** 2
    return (tower,), linear(shuffled, hidden, bias=False), 0


def _paddleocr_vl(config: Config, hidden: int) -> Vision:
    vision = config.get("vision_config") or {}
    tower = _siglip(vision)
    merged = tower.hidden_size * int(vision.get("spatial_merge_size", 2)) ** 2
    mlp = linear(merged, merged, bias=True) + linear(merged, hidden, bias=True)
    return (tower,), norm(tower.hidden_size, bias=True) + mlp, 0


def _pixtral(config: Config, hidden: int) -> Vision:
    vision = config["vision_config"]
    width, patch = int(vision["hidden_size"]), _side(vision["patch_size"])
    merged = width * int(config.get("spatial_merge_size", 2)) ** 2
    tower = TowerFacts(
        num_layers=int(vision["num_hidden_layers"]),
        hidden_size=width,
        intermediate_size=int(vision["intermediate_size"]),
        num_heads=int(vision["num_attention_heads"]),
        patch_values=3 * patch * patch,
        is_gated=True,
        has_qkv_bias=False,
        has_bias=False,
        has_norm_bias=False,
        extra=3 * patch * patch * width + width,
    )
    has_bias = bool(config.get("multimodal_projector_bias", False))
    mlp = linear(width, hidden, bias=has_bias) + linear(hidden, hidden, bias=has_bias)
    return (tower,), width + linear(merged, width, bias=False) + mlp, 0


def _dots_ocr(config: Config, hidden: int) -> Vision:
    vision = config["vision_config"]
    width, patch = int(vision["embed_dim"]), int(vision["patch_size"])
    merged = width * int(vision.get("spatial_merge_size", 2)) ** 2
    has_bias = bool(vision.get("use_bias", False))
    tower = TowerFacts(
        num_layers=int(vision["num_hidden_layers"]),
        hidden_size=width,
        intermediate_size=int(vision["intermediate_size"]),
        num_heads=int(vision["num_attention_heads"]),
        patch_values=3 * patch * patch,
        is_gated=True,
        has_qkv_bias=has_bias,
        has_bias=has_bias,
        has_norm_bias=False,
        extra=linear(3 * patch * patch, width, bias=True)
        + (2 if vision.get("post_norm", True) else 1) * width,
    )
    mlp = linear(merged, merged, bias=True) + linear(merged, hidden, bias=True)
    return (tower,), norm(width, bias=True) + mlp, 0


def _glm_ocr(config: Config, hidden: int) -> Vision:
    vision = config.get("vision_config") or {}
    width, patch = int(vision.get("hidden_size", 1024)), _side(vision.get("patch_size", 14))
    heads, out = int(vision.get("num_heads", 16)), int(vision.get("out_hidden_size", hidden))
    values = 3 * _side(vision.get("temporal_patch_size", 2)) * patch * patch
    merged = width * int(vision.get("spatial_merge_size", 2)) ** 2
    tower = TowerFacts(
        num_layers=int(vision.get("depth", 24)),
        hidden_size=width,
        intermediate_size=int(vision.get("intermediate_size", 4096)),
        num_heads=heads,
        patch_values=3 * patch * patch,
        is_gated=True,
        has_qkv_bias=bool(vision.get("attention_bias", True)),
        has_norm_bias=False,
        extra_per_layer=2 * (width // heads),
        extra=linear(values, width, bias=True) + width,
    )
    gated = 3 * linear(out, 3 * out, bias=False)
    connector = linear(merged, out, bias=True) + out * out + norm(out, bias=True) + gated
    return (tower,), connector, 0


def _granite_docling(config: Config, hidden: int) -> Vision:
    defaults: dict[str, Any] = {"num_hidden_layers": 12, "hidden_size": 768}
    defaults |= {"intermediate_size": 3072, "num_attention_heads": 12}
    defaults |= {"image_size": 512, "patch_size": 16}
    vision = defaults | dict(config.get("vision_config") or {})
    tower = _siglip(vision)
    taps = len(vision.get("deepstack_visual_indexes") or (3, 7, 10))
    scales = [int(vision.get("scale_factor", 4))]
    if vision.get("use_fine_route", True):
        scales.append(scales[0] // 2)
    connector = norm(tower.hidden_size, bias=True) + 2 * norm(hidden, bias=True) + hidden * hidden
    for scale in scales:
        shuffled = tower.hidden_size * scale**2
        merger = norm(shuffled, bias=True) + linear(shuffled, hidden, bias=True)
        merger += linear(hidden, hidden, bias=True)
        connector += shuffled * hidden + taps * merger
    return (tower,), connector, taps


def _deepseek_ocr(config: Config, hidden: int) -> Vision:
    """SAM-B with a convolutional neck, then CLIP-L: fixed in every published checkpoint."""
    width, window, globals_ = 768, 14, 4
    relative = (12 - globals_) * 2 * (2 * window - 1) * 64 + globals_ * 2 * (2 * 64 - 1) * 64
    neck = width * 256 + 256 * 256 * 9 + 2 * norm(256, bias=True)
    sam = TowerFacts(
        num_layers=12,
        hidden_size=width,
        intermediate_size=3072,
        num_heads=12,
        patch_values=3 * 16 * 16,
        extra=linear(3 * 16 * 16, width, bias=True)
        + 64 * 64 * width
        + relative
        + neck
        + 256 * 512 * 9
        + 512 * 1024 * 9,
    )
    clip = TowerFacts(
        num_layers=24,
        hidden_size=1024,
        intermediate_size=4096,
        num_heads=16,
        patch_values=1024,
        extra=(1 + 257) * 1024 + norm(1024, bias=True),
    )
    return (sam, clip), linear(2048, hidden, bias=True) + 2 * hidden, 0


_FAMILIES: dict[str, Callable[[Config, int], Vision]] = {
    "deepseek_ocr": _deepseek_ocr,
    "deepseek_vl_v2": _deepseek_ocr,
    "dots_ocr": _dots_ocr,
    "glm_ocr": _glm_ocr,
    "granite_docling": _granite_docling,
    "idefics2": idefics2,
    "idefics3": _idefics3,
    "internvl": _internvl,
    "internvl_chat": _internvl,
    "lighton_ocr": _pixtral,
    "llava_onevision": _llava_onevision,
    "mistral3": _pixtral,
    "paddleocr_vl": _paddleocr_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen2_vl": _qwen2_vl,
    "qwen3_vl": _qwen3_vl,
    "smolvlm": _idefics3,
    "unlimited_ocr": _deepseek_ocr,
}
