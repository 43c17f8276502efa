"""What the family files share in making a checkpoint's JSON typed: keys that several of them have.

Functions that end in `_fields` give keyword arguments of a config, so that a family adds its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vlmcli.engine.config import Geometry, ProcessorConfig, RopeConfig, VisionConfig
from vlmcli.engine.geometry import SmartResizeConfig
from vlmcli.errors import ModelError

_CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
_BICUBIC = 3


@contextmanager
def faults_named(model_type: str) -> Iterator[None]:
    """A key that is missing or has a value of another kind becomes a ModelError that says so."""
    try:
        yield
    except KeyError as error:
        raise ModelError(f"config.json of a {model_type} model lacks {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"config.json of a {model_type} model has a bad value: {error}") from error


def decoder_fields(text: dict[str, Any]) -> dict[str, Any]:
    """Of `TextConfig`: what every decoder's config calls by the same name and must say."""
    heads = int(text["num_attention_heads"])
    return {
        "hidden_size": int(text["hidden_size"]),
        "num_layers": int(text["num_hidden_layers"]),
        "num_heads": heads,
        "num_kv_heads": int(text.get("num_key_value_heads") or heads),
        "intermediate_size": int(text["intermediate_size"]),
        "vocab_size": int(text["vocab_size"]),
    }


def require_known(model_type: str, *settings: tuple[dict[str, Any], str, Any]) -> None:
    """Refuse what no published checkpoint has.

    Args:
        model_type: of the whole model, for messages.
        settings: of each a part of config.json, its key, and the one value that is known, which is
            also what a missing key means.

    Raises:
        ModelError: a key has another value.
    """
    for part, key, known in settings:
        if part.get(key, known) != known:
            raise ModelError(f"{key} {part[key]!r} of {model_type} is not supported")


def stored_dtype(raw: dict[str, Any]) -> str:
    """The weights' dtype by config.json, which has it under an old name, a new one, or nested."""
    nested = (raw.get("text_config") or {}).get("dtype")
    return str(raw.get("dtype") or raw.get("torch_dtype") or nested or "float32")


def multimodal_rope(
    model_type: str,
    text: dict[str, Any],
    rotary_dim: int,
    *,
    theta: float,
    sections: tuple[int, int, int],
    is_interleaved: bool = False,
) -> RopeConfig:
    """M-RoPE of a decoder; `theta` and `sections` hold where its config says nothing.

    Raises:
        ModelError: it is scaled, or its sections do not add up to the elements that turn.
    """
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "mrope"):
        raise ModelError(f"rotary scaling {kind!r} of {model_type} is not supported")
    found = tuple(int(n) for n in rope.get("mrope_section", sections))
    if 2 * sum(found) != rotary_dim:
        raise ModelError(f"head size {rotary_dim} and rotary sections {found} do not agree")
    return RopeConfig(
        theta=float(rope.get("rope_theta") or text.get("rope_theta") or theta),
        sections=found,
        is_interleaved=is_interleaved,
    )


def tower_fields(raw: dict[str, Any], patch_size: int) -> dict[str, Any]:
    """Of `VisionConfig`: what the towers of Qwen-VL models have in common."""
    rope = raw.get("rope_parameters") or {}
    return {
        "num_layers": int(raw["depth"]),
        "num_heads": int(raw["num_heads"]),
        "in_channels": int(raw.get("in_channels") or raw.get("in_chans") or 3),
        "patch_size": patch_size,
        "temporal_patch_size": int(raw.get("temporal_patch_size", 2)),
        "merge_size": int(raw.get("spatial_merge_size", 2)),
        "norm_eps": 1e-6,
        "rope_theta": float(rope.get("rope_theta", 10000.0)),
    }


def picture_tower_fields(raw: dict[str, Any]) -> dict[str, Any]:
    """Of `VisionConfig`: what towers for pictures alone have in common, such as SigLIP, InternViT.

    A family puts its defaults into `raw`.
    """
    return {
        "hidden_size": int(raw["hidden_size"]),
        "num_layers": int(raw["num_hidden_layers"]),
        "num_heads": int(raw["num_attention_heads"]),
        "intermediate_size": int(raw["intermediate_size"]),
        "in_channels": int(raw.get("num_channels", 3)),
        "temporal_patch_size": 0,
        "norm_eps": float(raw.get("layer_norm_eps", 1e-6)),
        "has_split_qkv": True,
        "patch_bias": True,
    }


def width_fields(raw: dict[str, Any]) -> dict[str, Any]:
    """Of `VisionConfig`: the widths of a tower, as Qwen2.5-VL and later models name them."""
    names = ("hidden_size", "intermediate_size", "out_hidden_size")
    return {name: int(raw[name]) for name in names}


def parse_processor(
    raw: dict[str, Any], vision: VisionConfig, limits: SmartResizeConfig | None = None
) -> ProcessorConfig:
    """A preprocessor_config.json; what it leaves out takes `limits`, or transformers' defaults."""
    size = raw.get("size") or {}
    default = limits or SmartResizeConfig()
    geometry = SmartResizeConfig(
        patch_size=int(raw.get("patch_size", vision.patch_size)),
        merge_size=int(raw.get("merge_size", vision.merge_size)),
        temporal_patch_size=int(raw.get("temporal_patch_size", vision.temporal_patch_size)),
        min_pixels=int(raw.get("min_pixels") or size.get("shortest_edge") or default.min_pixels),
        max_pixels=int(raw.get("max_pixels") or size.get("longest_edge") or default.max_pixels),
    )
    return parse_pixels(raw, geometry)


def parse_pixels(
    raw: dict[str, Any], geometry: Geometry, *, tile_cell_size: int = 1
) -> ProcessorConfig:
    """What a preprocessor_config.json says of pixel values, beside a geometry known already."""
    return ProcessorConfig(
        geometry=geometry,
        rescale_factor=float(raw.get("rescale_factor", 1 / 255)),
        image_mean=tuple(float(x) for x in raw.get("image_mean", _CLIP_MEAN)),
        image_std=tuple(float(x) for x in raw.get("image_std", _CLIP_STD)),
        resample=int(raw.get("resample", _BICUBIC)),
        tile_cell_size=tile_cell_size,
    )
