"""What one loaded PDF page can tell: its size, its picture, its text fragments, its scan.

Works on a page that `pdf` has loaded; knows no files. Errors are MuPDF's own, for `pdf` to
translate.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from vlmcli.documents import bidi, glyphs, mupdf
from vlmcli.documents.base import Fragment, Pixels, PixelSize, RenderSpec, StoredImage
from vlmcli.errors import PageError

_FILLED_OR_STROKED = 16 | 32
"""Bits of a span's `char_flags`; text with neither is in render mode 3, or only clips."""

_SCAN_COVERS = 0.5
"""A scan fills at least this share of its page in both directions."""

_LEGIBLE_DPI = 100
_LEGIBLE_PIXELS = 2_000_000
"""A scan below both is enlarged to the wanted dpi: its letters are few pixels."""

_DENSE_CONTENT = 3 * 2**20
"""Bytes of drawing operators beyond which lines are drawn without smoothing.

Half a million long lines (10 MB) take MuPDF about 190 CPU s at 200 dpi with smoothing, 8 without.
Letters in fonts stay smooth.
"""

_COMPONENTS = {"": 1, "DeviceGray": 1, "CalGray": 1, "Indexed": 3, "DeviceRGB": 3, "CalRGB": 3}


def measure(page: Any) -> tuple[float, float]:
    """Width and height of the displayed page in points."""
    bounds = mupdf.load().mupdf.fz_bound_page(_fz_page(page))
    return bounds.x1 - bounds.x0, bounds.y1 - bounds.y0


def images(page: Any) -> tuple[StoredImage, ...]:
    """The images in the page's resources, forms included, whether they are drawn or not."""
    return tuple(
        StoredImage(
            width=item[2],
            height=item[3],
            components=_COMPONENTS.get(item[5], 4),
            filter=item[8],
        )
        for item in page.get_images(full=True)
    )


def refuse_bombs(embedded: tuple[StoredImage, ...], size: PixelSize, spec: RenderSpec) -> None:
    """Raise before MuPDF decodes an image that would take more memory than the page is allowed.

    Raises:
        PageError: an image unfolds beyond `spec.max_decoded_bytes`.
    """
    for image in embedded:
        if image.decoded_bytes(size) > spec.max_decoded_bytes:
            raise PageError(
                f"an embedded image of {image.width} × {image.height} pixels is too large",
                remedy=f"raise --max-pixels to {_least_pixels(image, size)}",
                code="bomb",
            )


def _least_pixels(image: StoredImage, size: PixelSize) -> int:
    """What is surely enough to have the image decoded: the page grows with the cap, and an image is
    reduced less for a larger one."""
    full = size._replace(width=image.width, height=image.height)
    most = size if image.filter != "DCTDecode" else full
    return RenderSpec.least_pixels(image.decoded_bytes(most))


def draw(page: Any, size: PixelSize, *, grey: bool) -> Pixels:
    """The page drawn onto white at exactly `size`: (H, W) if `grey`, else (H, W, 3) RGB."""
    core = mupdf.load().mupdf
    space = core.fz_device_gray() if grey else core.fz_device_rgb()
    area = core.FzIrect(0, 0, size.width, size.height)
    pixmap = core.FzPixmap(space, area, core.FzSeparations(), 0)
    core.fz_clear_pixmap_with_value(pixmap, 255)
    smooth = core.fz_graphics_aa_level()
    if _is_dense(page):
        # Before the device is made: it keeps the level, and mixing two never ends.
        core.fz_set_graphics_aa_level(0)
    try:
        device = core.fz_new_draw_device(_onto(page, size), pixmap)
        core.fz_run_page(_fz_page(page), device, core.FzMatrix(), core.FzCookie())
        core.fz_close_device(device)
    finally:
        core.fz_set_graphics_aa_level(smooth)
    shape = (size.height, size.width) if grey else (size.height, size.width, 3)
    return np.asarray(_Samples(pixmap, shape))


class _Samples:
    """The memory of a pixmap, lent to an array, and kept as long as that is."""

    def __init__(self, pixmap: Any, shape: tuple[int, ...]) -> None:
        self._pixmap = pixmap
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": shape,
            "data": (mupdf.load().mupdf.fz_pixmap_samples_int(pixmap), False),
        }


def _is_dense(page: Any) -> bool:
    try:
        return len(page.read_contents()) > _DENSE_CONTENT
    except mupdf.errors():
        # Damaged content: drawing it tells what is wrong.
        return False


def fragments(page: Any, size: PixelSize) -> tuple[Fragment, ...]:
    """The page's text, form values and annotations included, in the order of the content stream.

    Ligatures are expanded; glyphs of symbol fonts are signs, not letters; characters outside the
    crop box are left out; hidden optional content is left out by MuPDF itself.
    """
    pymupdf = mupdf.load()
    core = pymupdf.mupdf
    flags = core.FZ_STEXT_PRESERVE_WHITESPACE | core.FZ_STEXT_MEDIABOX_CLIP
    text = core.FzStextPage(core.FzRect(0, 0, size.width, size.height))
    device = core.fz_new_stext_device(text, core.FzStextOptions(flags))
    matrix = _onto(page, size)
    core.fz_run_page(_fz_page(page), device, matrix, core.FzCookie())
    core.fz_close_device(device)
    page_text = pymupdf.TextPage(text)
    lines, glyph_lines = list(_lines(page_text.extractDICT())), []
    if glyphs.has_symbols(lines):
        glyph_lines = list(_lines(page_text.extractRAWDICT()))
        lines = glyph_lines = glyphs.with_signs(glyph_lines, _fz_page(page), matrix)
    found = [item for line in lines for item in _split_line(line)]
    letters = "".join(item.text for item in found)
    if bidi.has_right_to_left(letters):
        # Places of single glyphs cost twice the time, and only such scripts need them.
        is_page = bidi.is_right_to_left(letters)
        glyph_lines = glyph_lines or list(_lines(page_text.extractRAWDICT()))
        found = [item for line in glyph_lines for item in _turned(line, is_page=is_page)]
    # A broken matrix can put text nowhere.
    return tuple(item for item in found if all(map(math.isfinite, (*item.box, item.size))))


def _lines(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for block in content["blocks"]:
        yield from block.get("lines", ())


def _turned(line: dict[str, Any], *, is_page: bool) -> list[Fragment]:
    """The fragments of a line of single glyphs, right-to-left text in the order of reading.

    On a page of such a script (`is_page`) every line with some of it runs from right to left, else
    those lines in which it prevails.
    """
    letters = [
        (glyph["c"], glyph["origin"][0]) for span in line["spans"] for glyph in span["chars"]
    ]
    text = "".join(letter for letter, _ in letters)
    is_upright = line["dir"][0] > 0.99 and not line["wmode"]
    for span in line["spans"]:
        span["text"] = "".join(glyph["c"] for glyph in span["chars"])
    pieces = _split_line(line)
    is_turned = bidi.has_right_to_left(text) if is_page else bidi.is_right_to_left(text)
    if len(pieces) != 1 or not is_upright or not is_turned:
        return pieces
    return [replace(pieces[0], text=bidi.reading_text(letters))]


def _split_line(line: dict[str, Any]) -> list[Fragment]:
    """A line of MuPDF's as fragments: one, or several where visible and invisible text meet."""
    cos, sin = line["dir"]
    angle = round(math.degrees(math.atan2(sin, cos))) % 360
    vertical = bool(line["wmode"])
    runs: list[tuple[bool, list[dict[str, Any]]]] = []
    for span in line["spans"]:
        invisible = not span["char_flags"] & _FILLED_OR_STROKED
        if runs and (runs[-1][0] == invisible or not span["text"].strip()):
            runs[-1][1].append(span)
        else:
            runs.append((invisible, [span]))
    return [
        Fragment(
            text="".join(span["text"] for span in spans),
            box=_union([span["bbox"] for span in spans]),
            origin=spans[0]["origin"],
            size=max(span["size"] for span in spans),
            angle=0 if vertical else angle,
            vertical=vertical,
            invisible=invisible,
        )
        for invisible, spans in runs
    ]


def scan_dpi(
    page: Any, embedded: tuple[StoredImage, ...], page_size: tuple[float, float]
) -> float | None:
    """The resolution of the scan that fills the page.

    None where the page is no scan (something else is drawn on it too), or where the scan has so few
    pixels that enlarging it helps.

    Args:
        page: as loaded.
        embedded: its images.
        page_size: width and height in points.
    """
    width, height = page_size
    # Pages with a logo only need not be looked at more closely.
    fewest = min(_LEGIBLE_PIXELS, width * height * (_SCAN_COVERS * _LEGIBLE_DPI / 72) ** 2)
    if not any(image.width * image.height >= fewest for image in embedded):
        return None
    if not {kind for kind, *_ in page.get_bboxlog()} <= {
        "fill-image",
        "fill-imgmask",
        "ignore-text",
    }:
        return None
    placed = page.get_image_info()
    dpi = max((_placed_dpi(info, page_size) for info in placed), default=0.0)
    pixels = max((info["width"] * info["height"] for info in placed), default=0)
    is_legible = dpi >= _LEGIBLE_DPI or (dpi > 0 and pixels >= _LEGIBLE_PIXELS)
    return dpi if is_legible else None


def _placed_dpi(info: dict[str, Any], page_size: tuple[float, float]) -> float:
    """Pixels per inch of an image where it fills the page, else 0."""
    x0, y0, x1, y1 = info["bbox"]
    # A scan may lie turned on its page: compare long side with long side.
    short, long = sorted((x1 - x0, y1 - y0))
    page_short, page_long = sorted(page_size)
    if short < _SCAN_COVERS * page_short or long < _SCAN_COVERS * page_long:
        return 0.0
    pixels_short, pixels_long = sorted((info["width"], info["height"]))
    return float(72 * max(pixels_long / long, pixels_short / short))


def _onto(page: Any, size: PixelSize) -> Any:
    """The matrix that maps the displayed page onto exactly `size` pixels."""
    core = mupdf.load().mupdf
    bounds = core.fz_bound_page(_fz_page(page))
    across = size.width / (bounds.x1 - bounds.x0)
    down = size.height / (bounds.y1 - bounds.y0)
    return core.FzMatrix(across, 0, 0, down, -bounds.x0 * across, -bounds.y0 * down)


def _fz_page(page: Any) -> Any:
    inner = page.this
    return inner if isinstance(inner, mupdf.load().mupdf.FzPage) else inner.super()


def _union(boxes: list[tuple[float, float, float, float]]) -> tuple[float, float, float, float]:
    return (
        min(box[0] for box in boxes),
        min(box[1] for box in boxes),
        max(box[2] for box in boxes),
        max(box[3] for box in boxes),
    )
