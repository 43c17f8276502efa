"""PaddleOCR-VL: a SigLIP tower for pictures of any size, an MLP merger, an Ernie 4.5 decoder.

Covers checkpoints of transformers' `paddleocr_vl` type, flat as they are published or nested as
transformers 5 writes them. Refuses biases in the decoder and sliding windows, which no published
checkpoint has. Cui et al. 2025, "PaddleOCR-VL", arXiv 2510.14528.
"""

from typing import Any

from vlmcli.engine.config import ModelConfig, ProcessorConfig, TextConfig, VisionConfig
from vlmcli.engine.geometry import (
    PADDLEOCR_VL,
    ImageGeometry,
    SmartResizeConfig,
    paddleocr_vl,
)
from vlmcli.engine.models import siglip
from vlmcli.engine.models.names import renamed, rules
from vlmcli.engine.models.parsing import (
    decoder_fields,
    multimodal_rope,
    picture_tower_fields,
)
from vlmcli.engine.models.qwen2_vl import Qwen2VL, parse_with
from vlmcli.errors import ModelError

PaddleOcrVL = Qwen2VL
CHAT = (
    "<|begin_of_sentence|>User: <|IMAGE_START|>",
    "<|IMAGE_END|>{question}\nAssistant:\n",
)
_IDS = {
    "image_token_id": 100295,
    "vision_start_token_id": 101305,
    "vision_end_token_id": 101306,
}
_VISION = {
    "hidden_size": 1152,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "intermediate_size": 4304,
}
_UNREAD = (".packing_position_embedding.", ".vision_model.head.")
"""Parts of SigLIP that published files carry and the model does not use."""
_NAMES = rules(
    (r"^(?:model\.projector|mlp_AR)\.", "visual.merger."),
    (r"^model\.language_model\.", "model."),
    (r"^model\.visual\.", "visual."),
    (r"^visual\.vision_model\.", "visual."),
    (r"^visual\.merger\.pre_norm\.", "visual.merger.ln_q."),
    (r"^visual\.merger\.linear_1\.", "visual.merger.mlp.0."),
    (r"^visual\.merger\.linear_2\.", "visual.merger.mlp.2."),
)


def parse_config(raw: dict[str, Any], processor: dict[str, Any]) -> ModelConfig:
    """A `paddleocr_vl` config.json, flat or nested, made typed.

    Raises:
        ModelError: a key is missing or has a value that this family file does not know.
    """

    def parse_vision(vision: dict[str, Any]) -> VisionConfig:
        return _parse_vision(vision, int((raw.get("text_config") or raw)["hidden_size"]))

    return parse_with(
        _parse_text, parse_vision, "paddleocr_vl", _IDS | raw, processor, PADDLEOCR_VL
    )


def canonical_name(name: str) -> str | None:
    """Our name of a checkpoint tensor; None for one that carries no weight of the model."""
    if any(part in name for part in _UNREAD):
        return None
    return renamed(renamed(name, _NAMES), siglip.NAMES)


def geometry(width: int, height: int, processor: ProcessorConfig) -> ImageGeometry:
    """Resized size, grid and token count of a picture of `width` × `height` pixels."""
    assert isinstance(processor.geometry, SmartResizeConfig)
    return paddleocr_vl(width, height, processor.geometry)


def _parse_text(raw: dict[str, Any], text: dict[str, Any]) -> TextConfig:
    kinds = set(text.get("layer_types") or ())
    if text.get("use_bias") or kinds - {"full_attention"}:
        raise ModelError("biases or sliding windows in a paddleocr_vl decoder are not supported")
    if text.get("hidden_act", "silu") != "silu":
        raise ModelError(f"activation {text['hidden_act']!r} of paddleocr_vl is not supported")
    shared = decoder_fields(text)
    head_dim = int(text.get("head_dim") or shared["hidden_size"] // shared["num_heads"])
    tied = raw.get("tie_word_embeddings", text.get("tie_word_embeddings", True))
    return TextConfig(
        **shared,
        head_dim=head_dim,
        rms_norm_eps=float(text.get("rms_norm_eps", 1e-5)),
        max_position_embeddings=int(text.get("max_position_embeddings", 131072)),
        rope=multimodal_rope("paddleocr_vl", text, head_dim, theta=5e5, sections=(16, 24, 24)),
        qkv_bias=False,
        tie_word_embeddings=bool(tied),
    )


def _parse_vision(vision: dict[str, Any], out_size: int) -> VisionConfig:
    activation = vision.get("hidden_act", "gelu_pytorch_tanh")
    if activation != "gelu_pytorch_tanh":
        raise ModelError(f"activation {activation!r} of the vision tower is not supported")
    rope = vision.get("rope_parameters") or {}
    patch_size = int(vision.get("patch_size", 14))
    return VisionConfig(
        **picture_tower_fields(_VISION | vision),
        out_hidden_size=out_size,
        patch_size=patch_size,
        merge_size=int(vision.get("spatial_merge_size", 2)),
        activation="gelu_tanh",
        merger_norm_eps=1e-5,
        rope_theta=float(rope.get("rope_theta", 10000.0)),
        position_side=int(vision.get("image_size", 384)) // patch_size,
        has_centred_positions=True,
        has_post_norm=True,
    )
