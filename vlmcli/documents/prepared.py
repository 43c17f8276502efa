"""What a page worker is asked to do with a page, and what it hands back: plain data.

Apart from `prepare`, which does it with OpenCV, because the main process needs only this.
"""

from dataclasses import dataclass
from typing import Literal

from vlmcli.documents.base import Pixels, RenderSpec
from vlmcli.documents.lines.shapes import LineCrop
from vlmcli.options import TextLayerMode
from vlmcli.results import ErrorInfo, Line


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareSpec:
    """What the reader reads: pages, or lines `line_height` high and no wider than the maximum.

    With `drafts_lines` pages that are read whole are cut into such lines too. Blank pages are
    answered without the reader, unless `skips_blank` is off. Without `hands_over` pages are only
    judged: those for the reader come without lines and without a picture.
    """

    render: RenderSpec
    text_layer: TextLayerMode
    reads: Literal["lines", "page"]
    line_height: int
    max_line_width: int
    drafts_lines: bool = False
    skips_blank: bool = True
    hands_over: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPage:
    """A page ready for its reader, or answered, or failed; `outcome` says which.

    Attributes:
        width: pixels of the displayed page's picture; boxes count in these. So does `height`.
        dpi: resolution of a PDF page's picture; None for images.
        text: the page's own text: the answer if `outcome` is `text-layer`, else a draft for the
            model (mode `draft`) or empty.
        lines: lines of `text` with boxes.
        crops: text lines in reading order, grey; for the outcome `read` by lines.
        picture: (H, W, 3) RGB; for the outcome `read` by page.
        draft_crops: text lines as in `crops`, for a line reader that reads the page first.
        suspect: reasons to look at the result: `low-contrast`, `no-text-layer`.
        render_seconds: wall-clock seconds spent on the page here.
    """

    number: int
    width: int
    height: int
    dpi: float | None
    downscaled: bool
    outcome: Literal["text-layer", "blank", "read", "error"]
    text: str = ""
    lines: tuple[Line, ...] = ()
    crops: tuple[LineCrop, ...] = ()
    picture: Pixels | None = None
    draft_crops: tuple[LineCrop, ...] = ()
    suspect: tuple[str, ...] = ()
    render_seconds: float = 0.0
    error: ErrorInfo | None = None
    warnings: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of pixels that this page keeps in memory."""
        held = sum(crop.pixels.nbytes for crop in (*self.crops, *self.draft_crops))
        return held + (self.picture.nbytes if self.picture is not None else 0)
