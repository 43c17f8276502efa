"""Tiny random checkpoints in AWQ's layout, each beside the same numbers written out in float.

The layout is packed number by number, as its definition says, and not by the code under test.
"""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tiny_checkpoints import write_checkpoint

from vlmcli.engine.models.registry import find_family

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
GROUP = 32
CONFIG = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": GROUP,
    "zero_point": True,
    "version": "gemm",
    "modules_to_not_convert": ["visual"],
}
WEIGHTS = "model.safetensors"


def pack(codes: np.ndarray) -> torch.Tensor:
    """[n, m] codes up to 15 to [n, m / 8] int32: bits 4i to 4i + 3 hold column `ORDER[i]`."""
    packed = np.zeros((codes.shape[0], codes.shape[1] // 8), dtype=np.uint64)
    for row in range(packed.shape[0]):
        for column in range(packed.shape[1]):
            for i, place in enumerate(ORDER):
                packed[row, column] |= np.uint64(int(codes[row, 8 * column + place]) << (4 * i))
    return torch.from_numpy(packed.astype(np.uint32).view(np.int32))


def awq_matrix(rng: np.random.Generator, out: int, inputs: int):
    """Codes [in, out], zeros and scales [groups, out] of a random matrix, and its values."""
    groups = inputs // GROUP
    codes = rng.integers(0, 16, (inputs, out))
    zeros = rng.integers(0, 16, (groups, out))
    scales = rng.uniform(0.2, 1.0, (groups, out)).astype(np.float16) / np.float16(inputs**0.5 * 5)
    by_input = np.repeat(np.arange(groups), GROUP)
    values = (codes - zeros[by_input]).astype(np.float32) * scales[by_input].astype(np.float32)
    return codes, zeros, scales, torch.from_numpy(values.T.copy())


def write_pair(folder: Path, kind: str) -> tuple[Path, Path]:
    """The same model twice: in AWQ's layout, and with its matrices in float32."""
    plain = write_checkpoint(folder / "plain", kind)
    raw = json.loads((plain / "config.json").read_text())
    canonical = find_family(raw["model_type"]).canonical_name
    rng = np.random.default_rng(1)
    floats, packed = load_file(plain / WEIGHTS), {}
    for name, value in list(floats.items()):
        ours = canonical(name) or ""
        if not re.fullmatch(r"model\.layers\.\d+\..*_proj\.weight", ours):
            packed[name] = value
            continue
        codes, zeros, scales, floats[name] = awq_matrix(rng, *value.shape)
        stem = name.removesuffix("weight")
        packed |= {f"{stem}qweight": pack(codes), f"{stem}qzeros": pack(zeros)}
        packed[f"{stem}scales"] = torch.from_numpy(scales)
    awq = folder / "awq"
    shutil.copytree(plain, awq)
    save_file(floats, plain / WEIGHTS)
    save_file(packed, awq / WEIGHTS)
    (awq / "config.json").write_text(json.dumps(raw | {"quantization_config": CONFIG}))
    return awq, plain
