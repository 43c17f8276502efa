"""Pictures for an encoder, and poison for what its graphs hold beyond a batch. Asserts nothing."""

import numpy as np
import torch
from tiny_checkpoints import as_input, random_picture

from vlmcli.engine.encoder_graph import EncoderGraphs
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
