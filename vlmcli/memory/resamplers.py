"""Shapes of families whose resampler leaves the same number of tokens of every picture: Idefics2.

Pure arithmetic on the JSON of a checkpoint, as in `families`. The connector counts as a tower
without layers: its gated projection is wider than anything in the tower before it, and a plan has
to have room for it.
"""

from collections.abc import Mapping
from typing import Any

from vlmcli.memory.facts import TowerFacts, linear, norm

MISTRAL_DEFAULTS: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
"""What transformers takes where Idefics2's configuration says nothing of its decoder."""


def idefics2(config: Mapping[str, Any], hidden: int) -> tuple[tuple[TowerFacts, ...], int, int]:
    """Towers, connector parameters, DeepStack taps.

    Args:
        config: `config.json`.
        hidden: width of the decoder, and of the resampler.
    """
    text = MISTRAL_DEFAULTS | dict(config.get("text_config") or {})
    intermediate = int(text["intermediate_size"])
    vision = config.get("vision_config") or {}
    width, patch = int(vision.get("hidden_size", 768)), int(vision.get("patch_size", 32))
    positions = (int(vision.get("image_size", 224)) // patch) ** 2
    values = int(vision.get("num_channels", 3)) * patch * patch
    tower = TowerFacts(
        num_layers=int(vision.get("num_hidden_layers", 12)),
        hidden_size=width,
        intermediate_size=int(vision.get("intermediate_size", 3072)),
        num_heads=int(vision.get("num_attention_heads", 12)),
        patch_values=values,
        extra=linear(values, width, bias=True) + positions * width + norm(width, bias=True),
    )
    perceiver = config.get("perceiver_config") or {}
    heads = int(perceiver.get("resampler_n_heads", 16))
    connector = TowerFacts(
        num_layers=0,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=heads,
        patch_values=0,
        is_gated=True,
        extra=(2 * width + hidden) * intermediate + _resampler(perceiver, heads, hidden),
    )
    return (tower, connector), 0, 0


def _resampler(perceiver: Mapping[str, Any], heads: int, hidden: int) -> int:
    """Parameters of the resampler alone."""
    kv_heads = int(perceiver.get("num_key_value_heads", 4))
    head_dim = int(perceiver.get("resampler_head_dim", 96))
    layer = 2 * hidden * head_dim * (heads + kv_heads) + 3 * hidden * 4 * hidden + 3 * hidden
    latents = int(perceiver.get("resampler_n_latents", 64))
    return int(perceiver.get("resampler_depth", 3)) * layer + (latents + 1) * hidden
