"""SmolVLM and SmolVLM2: Idefics3 under another name; see `models.idefics3`. No video."""

from functools import partial

from vlmcli.engine.models.idefics3 import (
    CHAT_BY_TOKEN,
    Idefics3,
    canonical_name,
    cut,
    geometry,
    parse_idefics3,
)

__all__ = ["CHAT", "SmolVLM", "canonical_name", "cut", "geometry", "parse_config"]

SmolVLM = Idefics3
CHAT = CHAT_BY_TOKEN["<|im_start|>"]
parse_config = partial(parse_idefics3, "smolvlm")
"""A `smolvlm` config.json made typed.

Raises:
    ModelError: a key is missing or has a value that this family file does not know.
"""
