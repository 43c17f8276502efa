"""The words of this package: sources, page handles with geometry, pictures, and what a document
can do.

Plain data and one pure function of sizes; opens nothing and imports no decoder. `source` hands
these names on, so that the rest of vlmcli needs `documents.source` alone.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from vlmcli.errors import PageError
from vlmcli.options import DEFAULT_MAX_PIXELS
from vlmcli.results import ErrorInfo

Pixels = npt.NDArray[np.uint8]
"""A picture in memory: (H, W) grey or (H, W, 3) RGB, origin top left."""

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 in pixels of the displayed page; x1 and y1 lie outside the box."""

MAX_SIDE = 32_000
"""No picture is wider or higher: OpenCV keeps coordinates in 16 bits."""

_GREY_BYTES = 2
"""Most that is kept of a pixel of an image file that has no colours."""

_DECODED_BYTES_PER_PIXEL = 16
"""An encoded image may unfold to this many bytes per pixel of `max_pixels`, and no further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a document lies, and the name under which records show it."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderSpec:
    """How a page becomes a picture.

    `dpi` counts for PDF pages; images are taken at their own pixels. With `grey`, pictures are
    (H, W), which spares two thirds of the memory; else (H, W, 3) RGB.
    """

    dpi: float
    max_pixels: int
    grey: bool = False

    @staticmethod
    def least_pixels(decoded_bytes: int) -> int:
        """The least `max_pixels` that allows so many decoded bytes."""
        return -(-decoded_bytes // _DECODED_BYTES_PER_PIXEL)

    @property
    def max_decoded_bytes(self) -> int:
        """Bytes that one encoded image may take while it is decoded.

        A small `max_pixels` (it often spares tokens, not memory) does not lower it below what the
        default allows: 400 MB.
        """
        return max(self.max_pixels, DEFAULT_MAX_PIXELS) * _DECODED_BYTES_PER_PIXEL


class PixelSize(NamedTuple):
    """Size of a page's picture; `dpi` is None for images, `downscaled` where the cap cut it."""

    width: int
    height: int
    dpi: float | None
    downscaled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImage:
    """An image as a file or a PDF holds it: size in pixels, numbers a pixel, outermost filter.

    `components` counts what the decoder keeps of a pixel, in bytes. `recoloured` tells that another
    picture of four bytes a pixel is made of it where it is drawn in colour, before it is reduced.
    `refused_bytes` is what an image file takes that is decoded in full or not at all, to be held
    against `RenderSpec.max_decoded_bytes`.
    """

    width: int
    height: int
    components: int
    filter: str
    recoloured: bool = False
    refused_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """Of the whole image, decoded."""
        return self.width * self.height * self.components

    def decoded_bytes(self, target: PixelSize) -> int:
        """Bytes that decoders hold while the image is drawn on a page of size `target`.

        Sources: MuPDF's `load-jpx` keeps 32-bit components beside the 8-bit result; JPEG decoders
        skip whole powers of two, up to 8, while they read.
        """
        if self.filter == "JPXDecode":
            return self.num_bytes * 5
        return self.num_bytes // self._skipped(target) ** 2

    def drawing_bytes(self, target: PixelSize) -> int:
        """As `decoded_bytes`, with the two copies that are made where the image is reduced."""
        pixels = target.width * target.height
        left = self.width * self.height // self._skipped(target) ** 2
        each = 1 if self.components <= _GREY_BYTES else min(self.components, 4)
        copies = 2 * pixels * each if left > 1.01 * pixels else 0
        return self.decoded_bytes(target) + copies

    def colouring_bytes(self, target: PixelSize) -> int:
        """Bytes of what an image file is turned into where it is wanted in colour."""
        if self.components <= _GREY_BYTES:
            # Grey is reduced as it is; Pillow's pictures in colour have four bytes a pixel.
            return 4 * target.width * target.height
        left = self.width * self.height // self._skipped(target) ** 2
        return 4 * left if self.recoloured else 0

    def _skipped(self, target: PixelSize) -> int:
        if self.filter != "DCTDecode":
            return 1
        ratio = max(1.0, min(self.width / target.width, self.height / target.height))
        return 1 << min(3, math.floor(math.log2(ratio)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Copying:
    """What it takes to copy a picture file's frame into a PDF.

    `held_bytes` are held at a time; `decoded_bytes` is what `RenderSpec.max_decoded_bytes` is about
    where the frame has to be decoded in full, else 0.
    """

    held_bytes: int
    decoded_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHandle:
    """One page of a document, measured but not rendered.

    `width` and `height` are those of the displayed page: after /Rotate, CropBox, UserUnit and EXIF.
    `rotation` is what the viewer turns it by (clockwise degrees). `scan_dpi` is the resolution of
    the scan that fills the page, beyond which it is not drawn; None where it is no scan, or one of
    so few pixels that enlarging helps. `copying` is that of the whole file, whose frames all become
    pages of a PDF. `time` is that of a frame of a video, in seconds from its beginning. A page that
    cannot be loaded has `error` set and no size.
    """

    document: str
    index: int
    num_pages: int
    width: float
    height: float
    unit: Literal["pt", "px"]
    rotation: int = 0
    scan_dpi: float | None = None
    largest_image: StoredImage | None = None
    copying: tuple[Copying, ...] = ()
    time: float | None = None
    error: ErrorInfo | None = None

    @property
    def number(self) -> int:
        """The page's number as people count, from 1."""
        return self.index + 1

    def pixel_size(self, dpi: float, max_pixels: int) -> PixelSize:
        """The size that rendering at `dpi` under the cap `max_pixels` gives, without rendering.

        A page that cannot be loaded is 0 × 0.
        """
        if self.error is not None:
            return PixelSize(width=0, height=0, dpi=None, downscaled=False)
        dpi = dpi if self.scan_dpi is None else min(dpi, self.scan_dpi)
        scale = dpi / 72 if self.unit == "pt" else 1.0
        width, height = _fit(self.width * scale, self.height * scale, max_pixels)
        natural = _whole(self.width * scale) * _whole(self.height * scale)
        downscaled = width * height < natural
        if self.unit == "px":
            return PixelSize(width=width, height=height, dpi=None, downscaled=downscaled)
        effective = round(72 * max(width / self.width, height / self.height), 2)
        return PixelSize(
            width=width,
            height=height,
            dpi=effective if downscaled else float(dpi),
            downscaled=downscaled,
        )

    def is_refused(self, max_pixels: int) -> bool:
        """Whether the page's picture is too large to be decoded under that cap, so that nobody has
        to plan for it."""
        most = RenderSpec(dpi=72, max_pixels=max_pixels).max_decoded_bytes
        return self.largest_image is not None and self.largest_image.refused_bytes > most

    def drawing_bytes(self, size: PixelSize, *, grey: bool) -> int:
        """Bytes that decoders hold beside the picture while the page is drawn at `size`."""
        image = self.largest_image
        if image is None:
            return 0
        colours = image.colouring_bytes(size) if self.unit == "px" and not grey else 0
        return image.drawing_bytes(size) + colours

    def writing_bytes(self, max_pixels: int) -> int:
        """Bytes that are held while the page's document is copied into a PDF."""
        most = RenderSpec(dpi=72, max_pixels=max_pixels).max_decoded_bytes
        sizes = (one.held_bytes for one in self.copying if one.decoded_bytes <= most)
        return max(sizes, default=0)

    def require(self) -> Self:
        """This handle, if the page can be loaded.

        Raises:
            PageError: it cannot.
        """
        if self.error is not None:
            raise PageError(self.error.message, code=self.error.code)
        return self


def _whole(length: float) -> int:
    return max(1, round(length))


def _fit(width: float, height: float, max_pixels: int) -> tuple[int, int]:
    """Whole pixels of the same shape as `width` × `height`, within `max_pixels` and `MAX_SIDE`."""
    whole = _whole(width), _whole(height)
    if whole[0] * whole[1] <= max_pixels and max(whole) <= MAX_SIDE:
        return whole
    factor = min(1.0, math.sqrt(max_pixels / (width * height)), MAX_SIDE / max(width, height))
    fitted_width = min(max(1, math.floor(width * factor)), MAX_SIDE, max_pixels)
    fitted_height = min(max(1, math.floor(height * factor)), max_pixels // fitted_width)
    return fitted_width, fitted_height


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A rendered page: upright, alpha flattened on white.

    `faults` are the decoder's complaints where parts of the page could not be drawn.
    """

    pixels: Pixels
    dpi: float | None
    downscaled: bool
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A run of text from a page's own text layer.

    `angle` is the direction of writing in clockwise degrees on the displayed page (0 is upright
    left to right, 90 runs down); `vertical` marks vertical writing, whose glyphs stand upright.
    `size` is the font size in pixels, `origin` the first glyph's point on the base line;
    `invisible` text is drawn neither filled nor stroked.
    """

    text: str
    box: Box
    origin: tuple[float, float]
    size: float
    angle: int = 0
    vertical: bool = False
    invisible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLayer:
    """What a page says about its own text, in the order of its content stream.

    Boxes are pixels of the displayed page at `width` × `height`.
    """

    width: int
    height: int
    fragments: tuple[Fragment, ...]


class Document(Protocol):
    """An open document. One page is held at a time; nothing is kept between calls."""

    source: Source
    num_pages: int
    warnings: tuple[str, ...]

    def page(self, index: int) -> PageHandle:
        """Measure page `index` (from 0). A page that cannot be loaded says so in `error`."""

    def render(self, index: int, spec: RenderSpec) -> Picture:
        """The page as a viewer shows it, exactly of `page(index).pixel_size(...)`.

        Raises:
            PageError: the page cannot be loaded or drawn, or would take too much memory.
        """

    def text_layer(self, index: int, spec: RenderSpec) -> TextLayer | None:
        """The page's own text, placed on the picture that `render` gives; None where it has none.

        Raises:
            PageError: the page cannot be loaded.
        """

    def is_empty(self, index: int) -> bool:
        """Whether it is known without drawing that nothing stands on the page, seen or not."""

    def close(self) -> None:
        """Let go of the file."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Closing(ABC):
    """What is closed where a `with` block ends, as `Document` wants it; knows no page's content."""

    def is_empty(self, index: int) -> bool:
        """Nothing is known of a picture before it is drawn."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Let go of the file; closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
