"""Published shapes of known models, so that a job can be planned before anything is downloaded.

Each entry is the part of the checkpoint's own `config.json` and `preprocessor_config.json` that
decides memory; everything else is derived, parameter counts included. Values for which no published
file was at hand are named in `unverified`, and a plan says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vlmcli.errors import ModelError
from vlmcli.memory.facts import ModelFacts
from vlmcli.memory.families import facts_from_config

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A published model: its configuration, its picture processor, what is not confirmed."""

    config: Config
    preprocessor: Config = field(default_factory=dict)
    unverified: tuple[str, ...] = ()


def _text(
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    intermediate: int,
    vocab: int,
    **more: Any,
) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": intermediate,
        "vocab_size": vocab,
    } | more


_QWEN_PIXELS = {"min_pixels": 3136, "max_pixels": 12_845_056}


def _qwen2_vl(tie: bool, *text: int) -> Preset:
    config = _text(*text, model_type="qwen2_vl", tie_word_embeddings=tie)
    config["vision_config"] = {"depth": 32, "embed_dim": 1280, "hidden_size": text[0]}
    return Preset(config=config, preprocessor=_QWEN_PIXELS)


def _qwen2_5_vl(tie: bool, vision_intermediate: int, *text: int) -> Preset:
    config = _text(*text, model_type="qwen2_5_vl", tie_word_embeddings=tie)
    config["vision_config"] = {
        "depth": 32,
        "hidden_size": 1280,
        "num_heads": 16,
        "intermediate_size": vision_intermediate,
        "out_hidden_size": text[0],
    }
    return Preset(config=config, preprocessor=_QWEN_PIXELS)


_QWEN3_VISION_S = {
    "depth": 24,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_heads": 16,
    "deepstack_visual_indexes": [5, 11, 17],
}
_QWEN3_VISION_M = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "deepstack_visual_indexes": [8, 16, 24],
}


def _qwen3_vl(tie: bool, vision: Config, *text: int) -> Preset:
    return Preset(
        config={
            "model_type": "qwen3_vl",
            "tie_word_embeddings": tie,
            "text_config": _text(*text, model_type="qwen3_vl_text", head_dim=128),
            "vision_config": dict(vision) | {"out_hidden_size": text[0]},
        },
        preprocessor={
            "patch_size": 16,
            "size": {"shortest_edge": 65_536, "longest_edge": 16_777_216},
        },
    )


def _internvl(kind: str, *text: int, **more: Any) -> Preset:
    return Preset(
        config={
            "model_type": "internvl",
            "tie_word_embeddings": False,
            "text_config": _text(*text, model_type=kind, **more),
            "vision_config": {"attention_bias": True, "hidden_size": 1024},
        },
        preprocessor={"size": {"height": 448, "width": 448}, "min_patches": 1, "max_patches": 12},
    )


def _llava_onevision(tie: bool, *text: int) -> Preset:
    return Preset(
        config={
            "model_type": "llava_onevision",
            "tie_word_embeddings": tie,
            "text_config": _text(*text, model_type="qwen2"),
            "vision_config": {
                "model_type": "siglip_vision_model",
                "num_hidden_layers": 26,
                "hidden_size": 1152,
                "intermediate_size": 4304,
                "num_attention_heads": 16,
                "image_size": 384,
                "patch_size": 14,
                "vision_use_head": False,
            },
        },
    )


_SIGLIP_B_512 = {
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "image_size": 512,
    "patch_size": 16,
}
_SIGLIP_SO_384 = {
    "num_hidden_layers": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_attention_heads": 16,
    "image_size": 384,
    "patch_size": 14,
}


def _smolvlm(
    vision: Config,
    scale: int,
    longest_edge: int,
    tie: bool,
    *text: int,
    kind: str = "smolvlm",
    unverified: tuple[str, ...] = (),
) -> Preset:
    return Preset(
        config={
            "model_type": kind,
            "tie_word_embeddings": tie,
            "scale_factor": scale,
            "text_config": _text(*text, model_type="llama", head_dim=64, tie_word_embeddings=tie),
            "vision_config": dict(vision),
        },
        preprocessor={
            "size": {"longest_edge": longest_edge},
            "max_image_size": {"longest_edge": vision["image_size"]},
        },
        unverified=unverified,
    )


_QWEN25_7B = (3584, 28, 28, 4, 18944)

_PRESETS: dict[str, Preset] = {
    "qwen2-vl-2b": _qwen2_vl(True, 1536, 28, 12, 2, 8960, 151_936),
    "qwen2-vl-7b": _qwen2_vl(False, *_QWEN25_7B, 152_064),
    "qwen2-vl-72b": _qwen2_vl(False, 8192, 80, 64, 8, 29568, 152_064),
    "qwen2.5-vl-3b": _qwen2_5_vl(True, 3420, 2048, 36, 16, 2, 11008, 151_936),
    "qwen2.5-vl-7b": _qwen2_5_vl(False, 3420, *_QWEN25_7B, 152_064),
    "qwen2.5-vl-32b": _qwen2_5_vl(False, 3456, 5120, 64, 40, 8, 27648, 152_064),
    "qwen2.5-vl-72b": _qwen2_5_vl(False, 3456, 8192, 80, 64, 8, 29568, 152_064),
    "qwen3-vl-2b": _qwen3_vl(True, _QWEN3_VISION_S, 2048, 28, 16, 8, 6144, 151_936),
    "qwen3-vl-4b": _qwen3_vl(True, _QWEN3_VISION_S, 2560, 36, 32, 8, 9728, 151_936),
    "qwen3-vl-8b": _qwen3_vl(False, _QWEN3_VISION_M, 4096, 36, 32, 8, 12288, 151_936),
    "qwen3-vl-32b": _qwen3_vl(False, _QWEN3_VISION_M, 5120, 64, 64, 8, 25600, 151_936),
    "internvl3-1b": _internvl("qwen2", 896, 24, 14, 2, 4864, 151_674),
    "internvl3-2b": _internvl("qwen2", 1536, 28, 12, 2, 8960, 151_674),
    "internvl3-8b": _internvl("qwen2", *_QWEN25_7B, 151_674),
    "internvl3-14b": _internvl("qwen2", 5120, 48, 40, 8, 13824, 151_674),
    "internvl3.5-1b": _internvl("qwen3", 1024, 28, 16, 8, 3072, 151_936, head_dim=128),
    "internvl3.5-4b": _internvl("qwen3", 2560, 36, 32, 8, 9728, 151_936, head_dim=128),
    "internvl3.5-8b": _internvl("qwen3", 4096, 36, 32, 8, 12288, 151_936, head_dim=128),
    "llava-onevision-0.5b": _llava_onevision(True, 896, 24, 14, 2, 4864, 151_936),
    "llava-onevision-7b": _llava_onevision(False, *_QWEN25_7B, 152_064),
    "smolvlm2-256m": _smolvlm(_SIGLIP_B_512, 4, 2048, False, 576, 30, 9, 3, 1536, 49_280),
    "smolvlm2-500m": _smolvlm(_SIGLIP_B_512, 4, 2048, False, 960, 32, 15, 5, 2560, 49_280),
    "smolvlm2-2.2b": _smolvlm(
        _SIGLIP_SO_384, 3, 1536, False, 2048, 24, 32, 32, 8192, 49_280, unverified=("longest edge",)
    ),
    "granite-docling-258m": _smolvlm(
        _SIGLIP_B_512, 4, 2048, True, 576, 30, 9, 3, 1536, 100_352, kind="idefics3"
    ),
    "granite-docling-500m": Preset(
        config={
            "model_type": "granite_docling",
            "text_config": _text(1024, 28, 16, 4, 2048, 133_800),
            "vision_config": dict(_SIGLIP_B_512),
            "density_router_hidden_size": 256,
        },
        unverified=("density router", "tile limits of the picture processor"),
    ),
    "paddleocr-vl": Preset(
        config=_text(
            1024,
            18,
            16,
            2,
            3072,
            103_424,
            model_type="paddleocr_vl",
            head_dim=128,
            tie_word_embeddings=False,
            vision_config={"hidden_size": 1152, "num_hidden_layers": 27},
        ),
        preprocessor={"min_pixels": 147_384, "max_pixels": 2_822_400},
    ),
    "lightonocr-1b": Preset(
        config={
            "model_type": "lighton_ocr",
            "tie_word_embeddings": True,
            "spatial_merge_size": 2,
            "text_config": _text(1024, 28, 16, 8, 3072, 151_936, model_type="qwen3", head_dim=128),
            "vision_config": {
                "model_type": "pixtral",
                "hidden_size": 1024,
                "num_hidden_layers": 24,
                "num_attention_heads": 16,
                "head_dim": 64,
                "intermediate_size": 4096,
                "image_size": 1540,
                "patch_size": 14,
            },
        },
        preprocessor={"size": {"longest_edge": 1540}, "patch_size": 14},
    ),
    "dots.ocr": Preset(
        config=_text(
            1536,
            28,
            12,
            2,
            8960,
            151_936,
            model_type="dots_ocr",
            tie_word_embeddings=False,
            attention_bias=True,
            vision_config={
                "embed_dim": 1536,
                "hidden_size": 1536,
                "intermediate_size": 4224,
                "num_hidden_layers": 42,
                "num_attention_heads": 12,
                "patch_size": 14,
                "spatial_merge_size": 2,
                "temporal_patch_size": 1,
                "post_norm": True,
                "use_bias": False,
            },
        ),
        preprocessor={"min_pixels": 3136, "max_pixels": 11_289_600, "temporal_patch_size": 1},
    ),
    "glm-ocr": Preset(
        config={
            "model_type": "glm_ocr",
            "tie_word_embeddings": False,
            "text_config": _text(
                1536, 16, 16, 8, 4608, 59_392, model_type="glm_ocr_text", head_dim=128
            ),
            "vision_config": {
                "depth": 24,
                "hidden_size": 1024,
                "num_heads": 16,
                "intermediate_size": 4096,
                "out_hidden_size": 1536,
            },
        },
        preprocessor={"size": {"shortest_edge": 12_544, "longest_edge": 9_633_792}},
    ),
    "mineru2.5": Preset(
        config=_qwen2_vl(True, 896, 24, 14, 2, 4864, 151_936).config,
        preprocessor=_QWEN_PIXELS,
        unverified=("tied embeddings", "pixel limits of the picture processor"),
    ),
    "deepseek-ocr": Preset(
        config={
            "model_type": "deepseek_vl_v2",
            "language_config": _text(
                1280,
                12,
                10,
                10,
                6848,
                129_280,
                moe_intermediate_size=896,
                n_routed_experts=64,
                n_shared_experts=2,
                num_experts_per_tok=6,
                first_k_dense_replace=1,
                tie_word_embeddings=False,
            ),
        },
    ),
}
_ALIASES = {
    "olmocr": "qwen2.5-vl-7b",
    "olmocr-2-7b": "qwen2.5-vl-7b",
    "granite-docling": "granite-docling-258m",
}
_SUFFIXES = ("-instruct", "-video-instruct", "-hf", "-1025", "-0.9b", "-ov", "-2509-1.2b")


def preset_names() -> tuple[str, ...]:
    """Names that `find_preset` knows, in order."""
    return (*_PRESETS, *_ALIASES)


def find_preset(name: str) -> ModelFacts | None:
    """The facts of a published model; None where the name is none of ours.

    Case, an owner before a slash, and usual suffixes do not matter: `Qwen/Qwen2.5-VL-7B-Instruct`
    is `qwen2.5-vl-7b`.
    """
    key = name.rsplit("/", 1)[-1].lower().replace("_", ".")
    for suffix in ("", *_SUFFIXES):
        plain = key.removesuffix(suffix)
        plain = _ALIASES.get(plain, plain)
        if plain in _PRESETS:
            preset = _PRESETS[plain]
            return facts_from_config(
                plain, preset.config, preset.preprocessor, unverified=preset.unverified
            )
    return None


def require_preset(name: str) -> ModelFacts:
    """As `find_preset`.

    Raises:
        ModelError: no such preset.
    """
    facts = find_preset(name)
    if facts is None:
        raise ModelError(
            f"model not found: {name}",
            remedy=f"give a checkpoint directory or one of: {', '.join(preset_names())}",
        )
    return facts
