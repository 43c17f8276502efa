"""Image files through Pillow: PNG, JPEG, JPEG 2000, WebP, GIF, TIFF, BMP, and AVIF and HEIC where
they can be decoded; each frame a page, upright as viewed.

JPEGs beyond the pixel budget are decoded at a half, a quarter or an eighth. Other formats exist in
full while they are decoded, so they are refused where that would pass the budget. Gave up: colour
profiles; the second pictures of MPO files (previews, gain maps) are no pages.
"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from vlmcli.documents import embedding, heif, image_bombs, image_checks, image_modes
from vlmcli.documents.base import (
    Closing,
    Copying,
    PageHandle,
    Picture,
    RenderSpec,
    Source,
    StoredImage,
    TextLayer,
)
from vlmcli.documents.image_modes import PILLOW_ERRORS
from vlmcli.errors import InputError, PageError
from vlmcli.options import DEFAULT_MAX_PIXELS
from vlmcli.results import ErrorInfo

if TYPE_CHECKING:
    from PIL.Image import Image

_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "JPEG2000")
"""What every Pillow reads."""

_WALKED = ("TIFF", "HEIF")
"""Formats whose frames have sizes of their own, and which are turned upright by their decoders."""

_FILTERS = {"JPEG": "DCTDecode", "MPO": "DCTDecode", "JPEG2000": "JPXDecode"}
"""What a PDF calls the same way to keep a picture."""

_ORIENTATION = 274
"""The EXIF and TIFF tag that says how the picture lies."""

_SIDEWAYS = (5, 6, 7, 8)
"""Orientations that swap width and height."""

_ROTATIONS = {3: 180, 4: 180, 5: 90, 6: 90, 7: 270, 8: 270}

_LEAST_SCAN_DPI, _MOST_SCAN_DPI = 100, 2400
"""What a scanner may have; 72 and 96 are what programs write that do not know."""


@lru_cache(maxsize=1)
def _pillow() -> ModuleType:
    """`PIL.Image`, its own size limit off: this module keeps one that follows `--max-pixels`."""
    import PIL.Image
    import PIL.ImageFile

    PIL.Image.MAX_IMAGE_PIXELS = None
    logging.getLogger("PIL").addHandler(logging.NullHandler())
    return PIL.Image


@lru_cache(maxsize=1)
def _formats() -> tuple[str, ...]:
    """Pillow's names of what is opened."""
    return (*_FORMATS, *heif.register())


@contextmanager
def _quiet() -> Iterator[None]:
    """Pillow warns about odd metadata, which is no news to somebody who wants the text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _translated() -> Iterator[None]:
    """What Pillow raises on damaged files as a page's error."""
    try:
        yield
    except MemoryError:
        raise
    except PILLOW_ERRORS as error:
        raise PageError(f"the picture cannot be decoded: {_words(error)}") from error


def _pieces(image: embedding.Encoded) -> Iterator[bytes]:
    # In here, so that a disk that is full where they are written is no fault of the picture.
    with _translated():
        yield from image.pieces()


def open_image(source: Source, *, strict: bool) -> "ImageDocument":
    """Open a file that begins like a picture.

    Raises:
        InputError: not such an image inside, or damaged (with `strict`, also if only cut short).
    """
    image: Image | None = None
    try:
        with _quiet():
            image = _pillow().open(source.path, formats=_formats())
            frames, cause = _measure(image, source.path)
    except PILLOW_ERRORS as error:
        if image is not None:
            image.close()
        raise _damaged(source, error) from error
    document = ImageDocument(source, image, frames)
    try:
        notes = _check_end(document)
        if cause:
            notes = (*notes, f"the file is damaged after page {len(frames) - 1}: {cause}")
        if strict and notes:
            raise InputError(
                f"{source.name}: {notes[0]}",
                remedy="leave out --strict to read what is there",
                code="damaged",
            )
    except InputError:
        document.close()
        raise
    document.warnings = notes
    return document


def _damaged(source: Source, error: Exception) -> InputError:
    return InputError(f"{source.name}: damaged or truncated image: {_words(error)}", code="damaged")


def _words(error: BaseException) -> str:
    # Pillow puts the path into some messages; ours names the file already.
    text = str(error).split(" '/", maxsplit=1)[0].strip()
    return text or type(error).__name__


def _check_end(document: "ImageDocument") -> tuple[str, ...]:
    """Decode a single picture that ends early, so that a cut file is refused before any work.

    Raises:
        InputError: its one picture cannot be decoded.
    """
    with document.source.path.open("rb") as stream:
        if not image_checks.ends_early(stream, document.format, document.claimed_end):
            return ()
    if document.num_pages == 1:
        try:
            document.render(0, RenderSpec(dpi=72, max_pixels=DEFAULT_MAX_PIXELS, grey=True))
        except PageError as error:
            raise InputError(
                f"{document.source.name}: truncated image: {error.message}", code="damaged"
            ) from error
    return ("the file ends early; content may be missing",)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """What a frame says of itself: size as stored, how it lies, where in the file it ends.

    `components` are the bytes a pixel that Pillow keeps once it is decoded; `dpi` is that of the
    scanner.
    """

    width: int
    height: int
    components: int = 4
    recoloured: bool = False
    refused_bytes: int = 0
    orientation: int = 1
    dpi: float | None = None
    copying: Copying | None = None
    end: int = 0
    error: str | None = None


def _measure(image: "Image", path: Path) -> tuple[list[_Frame], str]:
    """Every frame's size without decoding, and why the walk ended early, or an empty string.

    Raises:
        One of `PILLOW_ERRORS`: not even the first frame can be measured.
    """
    if image.format not in _WALKED:
        count = 1 if image.format == "MPO" else int(getattr(image, "n_frames", 1))
        frame = _Frame(
            width=image.width,
            height=image.height,
            components=image_modes.held_bytes(image),
            recoloured=image_modes.is_recoloured(image),
            refused_bytes=image_bombs.refused_bytes(image),
            orientation=_orientation(image),
            dpi=_scan_dpi(image),
            copying=embedding.copying_of(image, path),
        )
        return [frame] * max(1, count), ""
    frames: list[_Frame] = []
    while True:
        try:
            image.seek(len(frames))
        except EOFError:
            return frames, ""
        except PILLOW_ERRORS as error:
            if not frames:
                raise
            return [*frames, _Frame(width=0, height=0, error=_words(error))], _words(error)
        frames.append(
            _Frame(
                width=image.width,
                height=image.height,
                components=image_modes.held_bytes(image),
                recoloured=image_modes.is_recoloured(image),
                refused_bytes=image_bombs.refused_bytes(image),
                dpi=_scan_dpi(image),
                copying=embedding.copying_of(image, path),
                end=image_checks.claimed_end(getattr(image, "tag_v2", {})),
            )
        )


def _scan_dpi(image: "Image") -> float | None:
    """The resolution that a scanner wrote down; None where the file says none, or one that it only
    has by default, as screenshots and photographs do."""
    try:
        across, down = (float(value) for value in image.info.get("dpi", (0, 0)))
    except PILLOW_ERRORS:
        return None
    return across if across == down and _LEAST_SCAN_DPI <= across <= _MOST_SCAN_DPI else None


def _orientation(image: "Image") -> int:
    """The EXIF orientation, 1 where there is none or where the metadata is damaged."""
    try:
        # Without this Pillow would decode a whole PNG to look for metadata behind the pixels.
        if image.format == "PNG" and not {"exif", "Raw profile type exif"} & image.info.keys():
            return 1
        value = image.getexif().get(_ORIENTATION, 1)
    except PILLOW_ERRORS:
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


class ImageDocument(Closing):
    """An open image file; implements `Document`."""

    def __init__(self, source: Source, image: "Image", frames: list[_Frame]) -> None:
        self.source = source
        self.num_pages = len(frames)
        self.warnings: tuple[str, ...] = ()
        self.format = str(image.format)
        self.claimed_end = max(frame.end for frame in frames)
        self._frames = frames
        self._copying = _together(frames)
        self._image: Image | None = image
        if self.num_pages == 1:
            # One frame is opened anew for each rendering, so that no decoded picture stays in
            # memory.
            image.close()
            self._image = None

    def close(self) -> None:
        """Let go of the file; closing twice is fine."""
        if self._image is not None:
            self._image.close()

    def page(self, index: int) -> PageHandle:
        """Measure frame `index` (from 0). A frame that cannot be read says so in `error`."""
        frame = self._frames[index]
        size = frame.width, frame.height
        width, height = size[::-1] if frame.orientation in _SIDEWAYS else size
        error = None
        if frame.error is not None:
            error = ErrorInfo(code="render", message=f"the frame cannot be read: {frame.error}")
        return PageHandle(
            document=self.source.name,
            index=index,
            num_pages=self.num_pages,
            width=float(width),
            height=float(height),
            unit="px",
            rotation=_ROTATIONS.get(frame.orientation, 0),
            scan_dpi=frame.dpi,
            largest_image=StoredImage(
                width=round(width),
                height=round(height),
                components=frame.components,
                filter=_FILTERS.get(self.format, ""),
                recoloured=frame.recoloured,
                refused_bytes=frame.refused_bytes,
            ),
            copying=self._copying,
            error=error,
        )

    @contextmanager
    def encoded(self, index: int, max_pixels: int) -> Iterator[embedding.Encoded]:
        """Frame `index` as a PDF stores it, at its own pixels; see `embedding`.

        Raises:
            PageError: it cannot be decoded, or would take too much memory; also while its bytes are
                taken.
        """
        handle = self.page(index).require()
        with ExitStack() as stack:
            with _translated():
                stack.enter_context(_quiet())
                image = stack.enter_context(self._frame(index))
                path = self.source.path
                embedding.draft(image, path)
                if embedding.copying_of(image, path).decoded_bytes:
                    image_bombs.refuse(image, handle, RenderSpec(dpi=72, max_pixels=max_pixels))
                found = embedding.encode(image, path, self._frames[index].orientation)
            yield replace(found, pieces=partial(_pieces, found))

    def render(self, index: int, spec: RenderSpec) -> Picture:
        """The frame upright, made smaller where it is beyond the budget; see `Document`."""
        handle = self.page(index).require()
        size = handle.pixel_size(spec.dpi, spec.max_pixels)
        orientation = self._frames[index].orientation
        stored = (
            (size.height, size.width) if orientation in _SIDEWAYS else (size.width, size.height)
        )
        with _translated(), _quiet(), self._frame(index) as image:
            if self.format in ("JPEG", "MPO"):
                image.draft("L" if spec.grey and image.mode == "RGB" else None, stored)
            image_bombs.refuse(image, handle, spec)
            image.load()
            # Grey is reduced as it is: in colour it would take four times as much.
            is_grey = spec.grey or not (image.mode == "RGB" or image_modes.is_recoloured(image))
            shown = image_modes.flatten(image, image_modes.tones_of(image), grey=is_grey)
            if shown.size != stored:
                shown = shown.resize(stored, _pillow().Resampling.BOX, reducing_gap=2.0)
            shown = shown if is_grey == spec.grey else shown.convert("RGB")
            pixels = image_modes.turn(image_modes.to_pixels(shown), orientation)
        return Picture(pixels=pixels, dpi=None, downscaled=size.downscaled)

    def text_layer(self, index: int, spec: RenderSpec) -> TextLayer | None:
        """None: image files carry no text of their own."""
        return None

    @contextmanager
    def _frame(self, index: int) -> Iterator["Image"]:
        """Frame `index`, opened and not yet decoded."""
        if self._image is not None:
            self._image.seek(index)
            _read_not_mapped(self._image)
            yield self._image
        else:
            with _pillow().open(self.source.path, formats=_formats()) as image:
                _read_not_mapped(image)
                yield image


def _read_not_mapped(image: "Image") -> None:
    """Have a TIFF that lies on its side read from its file.

    Pillow 13 maps uncompressed ones into memory, by their name, and takes their rows to be as long
    as those of the picture once it is turned.
    """
    if getattr(image, "tag_v2", {}).get(_ORIENTATION) in _SIDEWAYS:
        image.filename = ""  # type: ignore[attr-defined]


def _together(frames: Sequence[_Frame]) -> tuple[Copying, ...]:
    """What copying the frames takes, one after the other: the most of what is surely decoded, and
    every kind of what only a larger `max_pixels` allows."""
    least = RenderSpec(dpi=72, max_pixels=0).max_decoded_bytes
    kinds = {frame.copying for frame in frames if frame.copying is not None}
    sure = {kind for kind in kinds if kind.decoded_bytes <= least}
    most = max((kind.held_bytes for kind in sure), default=0)
    return (Copying(held_bytes=most, decoded_bytes=0), *(kinds - sure))
