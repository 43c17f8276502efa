"""Pictures for an encoder, poison for what its graphs hold beyond a batch, and ways of scaling.

Imported by tests here and in tests/gpu; nothing in it asserts.
"""

import numpy as np
import torch
from tiny_checkpoints import as_input, random_picture

from vlmcli.engine.config import ProcessorConfig, VisionConfig
from vlmcli.engine.encoder_graph import EncoderGraphs
from vlmcli.engine.geometry import SmartResizeConfig
from vlmcli.engine.models.vision import PatchEmbed
from vlmcli.engine.request import ImageInput


@torch.inference_mode()
def poison(found: EncoderGraphs) -> None:
    """All that a batch does not write itself: NaN where numbers are floats."""
    found.patches.fill_(255)
    for inputs in found.inputs.values():
        for pair in (inputs.rope, inputs.corners):
            for tensor in pair or ():
                if tensor.is_floating_point():
                    tensor.fill_(float("nan"))


def inputs_of(sizes, *, grey: bool = False, seed: int = 3) -> list[ImageInput]:
    """Random pictures of these (height, width) in pixels."""
    rng = np.random.default_rng(seed)
    return [as_input(random_picture(rng, *size, grey=grey)) for size in sizes]


SCALES = (1 / 255, 1 / 127.5, 1 / 256, 0.3, 0.0131)
"""Factors of processors; the last two are met by no division in float32."""


def patch_embed(rescale: float) -> tuple[PatchEmbed, ProcessorConfig]:
    """The first layer of a tower for pictures that are scaled by this, with Qwen2-VL's colours."""
    processor = ProcessorConfig(
        geometry=SmartResizeConfig(),
        rescale_factor=rescale,
        image_mean=(0.48145466, 0.4578275, 0.40821073),
        image_std=(0.26862954, 0.26130258, 0.27577711),
        resample=3,
    )
    vision = VisionConfig(
        hidden_size=4,
        num_layers=1,
        num_heads=1,
        intermediate_size=4,
        out_hidden_size=4,
        in_channels=3,
        patch_size=14,
        temporal_patch_size=2,
        merge_size=2,
        activation="gelu",
        norm_eps=1e-6,
        rope_theta=1e4,
    )
    return PatchEmbed(vision, processor), processor
