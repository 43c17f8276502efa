"""The plan for pages of known sizes, and the engine configuration that a job would make of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vlmcli.documents.base import PixelSize
from vlmcli.engine.config import EngineConfig
from vlmcli.memory.checkpoint_facts import facts_from_directory
from vlmcli.memory.plan import plan_job
from vlmcli.memory.settings import Plan, PlanSettings
from vlmcli.options import OcrOptions
from vlmcli.readers.config import engine_config

_NO_CAP = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A page of a known size in pixels, as a plan wants it."""

    number: int
    width: int
    height: int
    document: str = "made up"

    def pixel_size(self, dpi: float, max_pixels: int) -> PixelSize:
        """Its size, whatever is asked for."""
        return PixelSize(self.width, self.height, dpi, False)

    def drawing_bytes(self, size: PixelSize, *, grey: bool) -> int:
        """Nothing: it is drawn before."""
        return 0

    def is_refused(self, max_pixels: int) -> bool:
        """Never."""
        return False

    def writing_bytes(self, max_pixels: int) -> int:
        """Nothing: no PDF is made of it."""
        return 0


def planned(
    sizes: Sequence[tuple[int, int]],
    path: Path,
    max_tokens: int,
    device: str,
    dtype: str,
    *,
    in_flight: int | None = None,
) -> tuple[Plan, EngineConfig]:
    """The plan for reading pages without reuse or drafts, and its engine.

    Args:
        sizes: width and height of each page's picture in pixels.
        path: checkpoint directory.
        max_tokens: of each answer.
        device: where the model runs.
        dtype: of its weights.
        in_flight: pages that are read at once; None for all.
    """
    settings = PlanSettings(
        device="cuda" if device.startswith("cuda") else "cpu",
        dtype=dtype,
        max_tokens=max_tokens,
        vision_cache=0,
        max_pages_in_flight=in_flight or len(sizes),
    )
    sheets = [
        Sheet(number=number, width=width, height=height)
        for number, (width, height) in enumerate(sizes, 1)
    ]
    plan = plan_job(sheets, facts_from_directory(path, path.name), settings, _NO_CAP)
    options = OcrOptions(
        inputs=(), device=device, dtype=dtype, drafts="off", reuse="off", max_tokens=max_tokens
    )
    return plan, engine_config(options, plan.budgets, reads="page")
