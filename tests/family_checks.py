"""Families × checks: which tests prove what of which native family, and the table of a run.

A test says what it proves with `@pytest.mark.check("logits", …)`, its family follows from the kind
of tiny checkpoint that it is parametrised with, or from `family=`. `tests/conftest.py` counts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import pytest

from vlmcli.engine.models.registry import native_families

CHECKS = {
    "logits": "logits of transformers within 1e-5",
    "greedy": "greedy tokens of transformers",
    "pixels": "pixels and token counts of transformers' processor",
    "images": "several images in one prompt",
    "chunks": "a prompt computed in chunks across an image border",
    "batch": "unlike requests in one batch",
    "m-rope": "positions on grids of unlike t, h and w",
    "quantised": "rounded weights stay near",
    "triton": "Triton kernels give the reference's logits",
}
OBLIGATORY = ("logits", "greedy", "pixels", "images", "chunks", "batch")
MROPE = frozenset({"glm_ocr", "paddleocr_vl", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"})
"""Families whose positions have three axes: for these `m-rope` is obligatory as well."""
FAMILY_OF = {
    "merge2_patch14": "qwen2_vl",
    "merge4_patch7": "qwen2_vl",
    "internvl3": "internvl",
    "internvl3_5": "internvl",
}
"""Kinds of tiny checkpoints that are not called as their family."""
PROPERTY = "check"
Cell = tuple[str, str]
"""Family and check."""
CELLS = pytest.StashKey[list[Cell]]()
"""Where a run's configuration has what the collected tests prove."""


def cells_of(item: pytest.Item) -> list[Cell]:
    """What a test proves, and of which family; nothing for a test without the mark.

    Raises:
        ValueError: the mark names no known check, or the test has no family or several.
    """
    cells = []
    for mark in item.iter_markers("check"):
        family = mark.kwargs.get("family") or _family_of(item)
        unknown = [name for name in mark.args if name not in CHECKS]
        if unknown or not mark.args:
            raise ValueError(f"{item.nodeid}: no such check: {unknown}")
        cells += [(family, name) for name in mark.args]
    return cells


def _family_of(item: pytest.Item) -> str:
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    names = {FAMILY_OF.get(value, value) for value in params if isinstance(value, str)}
    found = names & {*native_families()}
    if len(found) != 1:
        raise ValueError(f"{item.nodeid}: one family, not {sorted(found)}")
    return found.pop()


def missing(cells: Iterable[Cell]) -> list[Cell]:
    """Obligatory cells that no test fills."""
    wanted = {(family, check) for family in native_families() for check in OBLIGATORY}
    wanted |= {(family, "m-rope") for family in MROPE}
    return sorted(wanted - {*cells})


def table(passed: Mapping[Cell, int], failed: Mapping[Cell, int]) -> list[str]:
    """A line per family: tests passed per check, `–` for none at all, `!` for one that failed."""
    counts = Counter(passed) + Counter(failed)
    width = max(map(len, native_families()))
    lines = [" ".join([" " * width, *(f"{check:>9}" for check in CHECKS)])]
    for family in native_families():
        cells = []
        for check in CHECKS:
            shown = str(passed.get((family, check), 0)) if counts[family, check] else "–"
            cells.append(f"{shown + '!' * bool(failed.get((family, check))):>9}")
        lines.append(" ".join([f"{family:<{width}}", *cells]))
    return lines
