"""Idefics2: a SigLIP tower, a perceiver resampler that leaves 64 tokens, a Mistral decoder.

Covers checkpoints of transformers' `idefics2` type whose processor takes pictures whole. Refuses
`do_image_splitting`, which shows the model four quarters as well. Where the decoder has a sliding
window, prompt and answer end before it would slide. Laurençon et al. 2024, "What matters when
building vision-language models?", arXiv 2405.02246.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from vlmcli.engine.config import (
    ModelConfig,
    ProcessorConfig,
    ResamplerConfig,
    RopeConfig,
    TextConfig,
    VisionConfig,
)
from vlmcli.engine.geometry import Idefics2Config, ImageGeometry, idefics2, idefics2_config
from vlmcli.engine.layers import GatedMLP
from vlmcli.engine.models import siglip
from vlmcli.engine.models.names import renamed, rules
from vlmcli.engine.models.parsing import (
    decoder_fields,
    faults_named,
    parse_pixels,
    picture_tower_fields,
    stored_dtype,
)
from vlmcli.engine.models.qwen2_vl import Qwen2VL
from vlmcli.engine.models.resampler import Resampler
from vlmcli.engine.models.siglip import SiglipTower
from vlmcli.engine.models.tower_inputs import Grid
from vlmcli.errors import ModelError
from vlmcli.kernels import Ops

CHAT = (
    "<s>User:<fake_token_around_image>",
    "<fake_token_around_image> {question}<end_of_utterance>\nAssistant:",
)
_MISTRAL = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
}
"""What transformers takes where a published file says nothing of its decoder."""
_VISION = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
_PIXELS = {"image_mean": (0.5, 0.5, 0.5), "image_std": (0.5, 0.5, 0.5), "resample": 2}
_NAMES = rules(
    (r"^model\.text_model\.", "model."),
    (r"^model\.vision_model\.", "visual."),
    (r"^model\.connector\.perceiver_resampler\.", "visual.resampler."),
    (r"^model\.connector\.", "visual."),
)


class Idefics2Tower(SiglipTower):
    """Patches of several images to visual tokens, the same number for each image."""

    def __init__(self, config: ModelConfig, ops: Ops) -> None:
        super().__init__(config.vision, config.processor, ops)
        assert config.vision.resampler is not None
        text = config.text
        self.modality_projection = GatedMLP(
            config.vision.hidden_size,
            text.intermediate_size,
            ops,
            bias=False,
            out_size=text.hidden_size,
        )
        self.resampler = Resampler(config.vision.resampler, ops)

    def forward(self, patches: Tensor, grids: Sequence[Grid]) -> Tensor:
        """[N, channels · size²] uint8 of images with the given grids to [tokens, out_hidden]."""
        context = self.modality_projection(self.features(patches, grids))
        lengths = [frames * rows * columns for frames, rows, columns in grids]
        tokens: Tensor = self.resampler(context, lengths)
        return tokens


class Idefics2(Qwen2VL):
    """The whole model: another tower in the frame of Qwen2-VL."""

    @staticmethod
    def make_tower(config: ModelConfig, ops: Ops, *, adjacent: bool) -> nn.Module:
        """The vision half; nothing in it turns."""
        return Idefics2Tower(config, ops)


def parse_config(raw: dict[str, Any], processor: dict[str, Any]) -> ModelConfig:
    """An `idefics2` config.json made typed.

    Raises:
        ModelError: a key is missing or has a value that this family file does not know, or pictures
            are to be split.
    """
    with faults_named("idefics2"):
        text = _parse_text(raw, _MISTRAL | raw["text_config"])
        return ModelConfig(
            model_type="idefics2",
            text=text,
            vision=_parse_vision(raw["vision_config"], raw.get("perceiver_config") or {}, text),
            processor=parse_pixels(_PIXELS | processor, idefics2_config(raw, processor)),
            image_token_id=int(raw.get("image_token_id", 32001)),
            dtype=stored_dtype(raw),
        )


def canonical_name(name: str) -> str | None:
    """Our name of a checkpoint tensor."""
    return renamed(renamed(name, _NAMES), siglip.NAMES)


def geometry(width: int, height: int, processor: ProcessorConfig) -> ImageGeometry:
    """Resized size, grid and token count of a picture of `width` × `height` pixels."""
    assert isinstance(processor.geometry, Idefics2Config)
    return idefics2(width, height, processor.geometry)


def _parse_text(raw: dict[str, Any], text: dict[str, Any]) -> TextConfig:
    rope = text.get("rope_parameters") or {}
    kind = text.get("model_type", "mistral")
    if kind != "mistral" or rope.get("rope_type", "default") != "default":
        raise ModelError(f"a decoder of type {kind!r}, or scaled rotary embeddings, in idefics2")
    if text.get("hidden_act", "silu") != "silu":
        raise ModelError(f"activation {text['hidden_act']!r} of idefics2 is not supported")
    shared = decoder_fields(text)
    window = text["sliding_window"]
    longest = int(text.get("max_position_embeddings", 131072))
    return TextConfig(
        **shared,
        head_dim=int(text.get("head_dim") or shared["hidden_size"] // shared["num_heads"]),
        rms_norm_eps=float(text.get("rms_norm_eps", 1e-6)),
        max_position_embeddings=longest if window is None else min(longest, int(window)),
        rope=RopeConfig(theta=float(rope.get("rope_theta") or text.get("rope_theta") or 1e4)),
        qkv_bias=False,
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
    )


def _parse_vision(
    vision: dict[str, Any], perceiver: dict[str, Any], text: TextConfig
) -> VisionConfig:
    activation = vision.get("hidden_act", "gelu_pytorch_tanh")
    if activation != "gelu_pytorch_tanh" or perceiver.get("hidden_act", "silu") != "silu":
        raise ModelError(f"activations of idefics2 beside its own, {activation!r} of the tower")
    patch_size = int(vision.get("patch_size", 32))
    resampler = _parse_resampler(perceiver, text)
    return VisionConfig(
        **picture_tower_fields(_VISION | vision),
        out_hidden_size=text.hidden_size,
        patch_size=patch_size,
        merge_size=1,
        activation="gelu_tanh",
        rope_theta=0.0,
        position_side=int(vision.get("image_size", 224)) // patch_size,
        resampler=resampler,
    )


def _parse_resampler(perceiver: dict[str, Any], text: TextConfig) -> ResamplerConfig:
    # transformers takes the decoder's width and its eps where the file has another width.
    is_own = int(perceiver.get("hidden_size", 4096)) == text.hidden_size
    return ResamplerConfig(
        hidden_size=text.hidden_size,
        num_latents=int(perceiver.get("resampler_n_latents", 64)),
        num_layers=int(perceiver.get("resampler_depth", 3)),
        num_heads=int(perceiver.get("resampler_n_heads", 16)),
        num_kv_heads=int(perceiver.get("num_key_value_heads", 4)),
        head_dim=int(perceiver.get("resampler_head_dim", 96)),
        norm_eps=float(perceiver.get("rms_norm_eps", 1e-6)) if is_own else text.rms_norm_eps,
    )
