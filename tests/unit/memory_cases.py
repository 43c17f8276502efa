"""Pages, models and settings for the memory tests."""

import math
from dataclasses import dataclass

from hypothesis import strategies as st

from vlmcli.documents.base import PixelSize
from vlmcli.memory.presets import preset_names, require_preset
from vlmcli.memory.settings import PlanSettings


@dataclass(frozen=True)
class Page:
    """A page of points, as `documents.source.PageHandle` presents it."""

    number: int
    width: float
    height: float
    document: str = "a.pdf"

    def pixel_size(self, dpi: float, max_pixels: int) -> PixelSize:
        width, height = (max(1, round(side * dpi / 72)) for side in (self.width, self.height))
        shrink = min(1.0, math.sqrt(max_pixels / (width * height)))
        return PixelSize(
            width=max(1, math.floor(width * shrink)),
            height=max(1, math.floor(height * shrink)),
            dpi=dpi * shrink,
            downscaled=shrink < 1,
        )

    def drawing_bytes(self, size: PixelSize, *, grey: bool) -> int:
        return 0

    def is_refused(self, max_pixels: int) -> bool:
        return False

    def writing_bytes(self, max_pixels: int) -> int:
        return 0


A4 = (595.28, 841.89)


def a4_pages(count: int) -> list[Page]:
    return [Page(number, *A4) for number in range(1, count + 1)]


NAMES = [name for name in preset_names() if "olmocr" not in name]
FACTS = {name: require_preset(name) for name in NAMES}

facts = st.sampled_from(NAMES).map(FACTS.__getitem__)
pages = st.lists(
    st.builds(
        Page,
        number=st.integers(1, 500),
        width=st.floats(40, 3400),
        height=st.floats(40, 3400),
    ),
    min_size=1,
    max_size=12,
)
settings = st.builds(
    PlanSettings,
    dpi=st.integers(50, 400),
    max_pixels=st.integers(100_000, 30_000_000),
    device=st.sampled_from(["cpu", "cuda"]),
    dtype=st.sampled_from(["auto", "float32", "bfloat16"]),
    kv_dtype=st.sampled_from(["auto", "int8"]),
    vision_kv_dtype=st.sampled_from(["auto", "int8"]),
    max_tokens=st.none() | st.integers(1, 9000),
    vision_cache=st.none() | st.integers(0, 1 << 32),
    max_pages_in_flight=st.none() | st.integers(1, 32),
    jobs=st.integers(1, 8),
    compares_pages=st.booleans(),
    keeps_results=st.booleans(),
)
