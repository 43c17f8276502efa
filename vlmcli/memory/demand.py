"""What each page of a job asks for: pixels, patches, tokens, and what they weigh in a worker.

Pure arithmetic on sizes. A page that no model can take has no demand and is named instead.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from vlmcli.documents.base import PageHandle, PixelSize
from vlmcli.errors import PageError
from vlmcli.memory import estimate
from vlmcli.memory.estimate import Coefficients
from vlmcli.memory.facts import ModelFacts
from vlmcli.memory.settings import (
    IMAGE_DPI,
    LINE_PITCH_POINTS,
    LINE_TOKENS_PER_COLUMN,
    PAGE_MAX_TOKENS,
    PAGE_OUTPUT_TOKENS,
    PROMPT_TOKENS,
    REMOTE_BYTES_PER_PIXEL,
    PageShape,
    PlanSettings,
)

_A4_POINTS = (595.28, 841.89)
_MOST_PER_COLUMN = 8
"""Output tokens of a visual column that a line reader allows."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one page asks for.

    Attributes:
        label: document and page.
        page_pixels: of the picture that is drawn.
        worker_bytes: of a page worker while it has the page in hand.
        picture_bytes: of the page's pixels in the main process, as long as it is in work.
        staging_bytes: of copies made while the page is handed to the model.
        writing_bytes: of the main process while the page's document is copied into a PDF.
        patches: of one picture that is encoded: the page, or its widest line.
        visual_tokens: of the whole page.
        sequences: requests that the page becomes.
        vision_positions: KV positions of one of them that are visual tokens.
        positions: KV positions of one of them that room is kept for, output counted.
        most_positions: KV positions that the longest one may grow to.
    """

    label: str
    page_pixels: int
    worker_bytes: int
    picture_bytes: int = 0
    staging_bytes: int = 0
    writing_bytes: int = 0
    patches: int = 0
    visual_tokens: int = 0
    sequences: int = 0
    vision_positions: int = 0
    positions: int = 0
    most_positions: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """All pages' demands, with the model (None where no page is for a model) and the settings."""

    facts: ModelFacts | None
    settings: PlanSettings
    demands: tuple[Demand, ...]
    """Largest first: by positions, then by pixels."""
    unreadable: tuple[str, ...]

    @property
    def weigh(self) -> Coefficients:
        """What the shapes do not give."""
        return self.settings.weigh(self.facts)

    @property
    def model(self) -> ModelFacts:
        """The model of a job that has one."""
        assert self.facts is not None, "a job without a model was asked for its model"
        return self.facts


def measure_pages(
    pages: Sequence[PageShape], facts: ModelFacts | None, settings: PlanSettings
) -> Job:
    """The demands of the pages under the settings; equal sizes are measured once."""
    known: dict[tuple[PixelSize, int], Demand | None] = {}
    demands: list[Demand] = []
    unreadable: list[str] = []
    grey = is_grey(facts, settings)
    for page in pages:
        size = page.pixel_size(settings.dpi, settings.max_pixels)
        key = (size, page.drawing_bytes(size, grey=grey))
        if key not in known:
            known[key] = _demand(*key, facts, settings)
        demand = None if page.is_refused(settings.max_pixels) else known[key]
        label = f"{page.document}, page {page.number}"
        if demand is None:
            unreadable.append(label)
        else:
            writing = writing_bytes(page, settings)
            demands.append(replace(demand, label=label, writing_bytes=writing))
    return Job(facts, settings, in_order(demands), tuple(unreadable))


def writing_bytes(page: PageShape, settings: PlanSettings) -> int:
    """Of the main process while the page's document is copied into a PDF; 0 where none is made."""
    return page.writing_bytes(settings.max_pixels) if settings.writes_pdf else 0


def usual_page() -> PageHandle:
    """What is planned for where no page is known: A4."""
    width, height = _A4_POINTS
    return PageHandle(document="A4", index=0, num_pages=1, width=width, height=height, unit="pt")


def is_grey(facts: ModelFacts | None, settings: PlanSettings) -> bool:
    """Whether pages are drawn in grey: for lines, or for nobody."""
    return not settings.remote_pages if facts is None else facts.reads == "lines"


def in_order(demands: Iterable[Demand]) -> tuple[Demand, ...]:
    """Largest first: by positions, then by pixels."""
    return tuple(sorted(demands, key=lambda one: (-one.positions, -one.page_pixels)))


def _demand(
    size: PixelSize, decoded: int, facts: ModelFacts | None, settings: PlanSettings
) -> Demand | None:
    """What a picture of this size asks for; None where it has no size or the model refuses it."""
    if not (size.width and size.height):
        return None
    if facts is None:
        pixels = size.width * size.height
        crops = None if settings.remote_pages else 0
        drawn = _worker_bytes(size, decoded, None, settings, crops=crops)
        sent = REMOTE_BYTES_PER_PIXEL * pixels if settings.remote_pages else 0
        return Demand("", pixels, drawn, picture_bytes=sent)
    if facts.reads == "lines":
        return line_demand(size, decoded, facts, settings)
    return _page_demand(size, decoded, facts, settings)


def _page_demand(
    size: PixelSize, decoded: int, facts: ModelFacts, settings: PlanSettings
) -> Demand | None:
    width, height = size.width, size.height
    try:
        geometry = facts.measure(width, height)
    except PageError:
        return None
    most = settings.max_tokens or PAGE_MAX_TOKENS
    resized = geometry.width * geometry.height
    prompt = geometry.num_tokens + geometry.num_markers + PROMPT_TOKENS
    prompt += settings.question_tokens
    crops = _draft_crops(size, settings)
    drawing = _worker_bytes(size, decoded, facts, settings)
    if crops:
        # The picture in colour stays while its lines are looked for.
        lines = _worker_bytes(size, decoded, facts, settings, crops=crops)
        drawing = max(drawing, lines + 3 * width * height)
    return Demand(
        label="",
        page_pixels=width * height,
        worker_bytes=drawing,
        picture_bytes=3 * (width * height + resized) + crops,
        # Pillow keeps four bytes a pixel: of the page, of the page narrowed, and of the result.
        staging_bytes=4 * (width * height + geometry.width * height + resized),
        patches=geometry.num_patches,
        visual_tokens=geometry.num_tokens,
        sequences=1,
        vision_positions=geometry.num_tokens,
        positions=prompt + min(most, PAGE_OUTPUT_TOKENS),
        most_positions=prompt + most,
    )


def line_demand(size: PixelSize, decoded: int, facts: ModelFacts, settings: PlanSettings) -> Demand:
    """A page for a line reader: as if it were full of print, as wide as lines can be on it.

    Args:
        size: of the picture.
        decoded: bytes that decoders hold while it is drawn.
        facts: of the model.
        settings: resolutions, limits, coefficients.
    """
    width, height = size.width, size.height
    rows, row = _rows(size, facts.line_height, facts.max_line_width, settings)
    widest = facts.measure(facts.max_line_width, facts.line_height)
    # Small print fills a row with twice as many letters.
    share = min(1.0, 2 * row / facts.max_line_width)
    columns = math.ceil(widest.num_tokens * share)
    tokens = rows * max(1, round(row / facts.max_line_width * widest.num_tokens))
    crops = rows * row * facts.line_height
    return Demand(
        label="",
        page_pixels=width * height,
        worker_bytes=_worker_bytes(size, decoded, facts, settings, crops=crops),
        picture_bytes=crops,
        patches=math.ceil(widest.num_patches * share),
        visual_tokens=tokens,
        sequences=rows * -(-row // facts.max_line_width),
        vision_positions=columns,
        positions=_line_positions(columns, facts, settings, LINE_TOKENS_PER_COLUMN),
        # Whatever the page looks like, the widest line there can be must find room.
        most_positions=_line_positions(widest.num_tokens, facts, settings, _MOST_PER_COLUMN),
    )


def _rows(
    size: PixelSize, line_height: int, max_line_width: int, settings: PlanSettings
) -> tuple[int, int]:
    """Lines on a page full of print, and their width in pixels once they are `line_height` high."""
    pitch = max(1.0, LINE_PITCH_POINTS / 72 * _dpi(size, settings))
    row = min(max(1, round(size.width * line_height / pitch)), 4 * max_line_width)
    return max(1, round(size.height / pitch)), row


def _draft_crops(size: PixelSize, settings: PlanSettings) -> int:
    """Bytes of the lines that a page is cut into for a reader that drafts; 0 where it is not."""
    drafting = settings.drafting
    if drafting is None or drafting.line_height is None:
        return 0
    rows, row = _rows(size, drafting.line_height, drafting.max_line_width, settings)
    return rows * row * drafting.line_height


def _line_positions(
    columns: int, facts: ModelFacts, settings: PlanSettings, per_column: int
) -> int:
    """KV positions of a line of so many visual columns, with so much output for each of them."""
    output = per_column * columns + 16
    prompt = columns + 2 + facts.draft_tokens(columns)
    return prompt + min(output, settings.max_tokens or output)


def _worker_bytes(
    size: PixelSize,
    decoded: int,
    facts: ModelFacts | None,
    settings: PlanSettings,
    *,
    crops: int | None = None,
) -> int:
    """Bytes of a page worker for one page, beyond what it takes without any.

    Args:
        size: of the picture.
        decoded: bytes that decoders hold while it is drawn.
        facts: the model that it is for, if any.
        settings: whether pages are drawn at all, resolutions, coefficients.
        crops: bytes of the lines that are cut out; None where the page is read whole.
    """
    if not settings.draws_pages:
        return 0
    pixels = size.width * size.height
    if crops is None:
        return estimate.draw_page(pixels, decoded, settings.weigh(facts))
    printed = round(pixels * (estimate.PRINT_DPI / _dpi(size, settings)) ** 2)
    return estimate.draw_lines(pixels, decoded, printed, crops, settings.weigh(facts))


def _dpi(size: PixelSize, settings: PlanSettings) -> float:
    """Resolution of the picture as it is drawn; images do not say theirs."""
    return size.dpi or min(settings.dpi, IMAGE_DPI)
