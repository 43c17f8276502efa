"""What a page worker does, start to end: one page of an open document made ready for its reader.

Answers the page itself where no model is needed (a sound text layer, a blank page), else hands over
line crops or a picture. Raises nothing that a page can cause: a fault is an outcome. Gave up: text
layer and model are not mixed within a page.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import cv2

from vlmcli.documents import blank, textlayer
from vlmcli.documents.base import Document, PageHandle, Picture, Pixels
from vlmcli.documents.lines.shapes import LineCrop
from vlmcli.documents.prepared import PreparedPage, PrepareSpec
from vlmcli.errors import PageError
from vlmcli.results import ErrorInfo

OnPicture = Callable[[Pixels], None]


def prepare_page(
    document: Document, index: int, spec: PrepareSpec, on_picture: OnPicture | None = None
) -> PreparedPage:
    """Page `index` (from 0) of `document`, by `spec`. Page faults become the outcome `error`.

    Args:
        document: open.
        index: of the page.
        spec: what is wanted.
        on_picture: is shown the picture of a page that has something for the reader: uint8,
            (H, W) grey for readers of lines, else (H, W, 3) RGB.

    Raises:
        MemoryError: there was too little memory, which need not be the page's fault.
    """
    start = time.perf_counter()
    handle = document.page(index)
    try:
        page = _prepare(document, handle.require(), spec, on_picture)
    except PageError as error:
        page = _failed(handle, spec, error)
    except cv2.error as error:
        if error.code != cv2.Error.StsNoMem and "bad_alloc" not in str(error):
            raise
        raise MemoryError(str(error)) from error
    return replace(page, render_seconds=time.perf_counter() - start)


def _prepare(
    document: Document, handle: PageHandle, spec: PrepareSpec, on_picture: OnPicture | None
) -> PreparedPage:
    if spec.text_layer == "only":
        return _from_layer_alone(document, handle, spec)
    render = replace(spec.render, grey=spec.reads == "lines")
    picture = document.render(handle.index, render)
    grey = picture.pixels if picture.pixels.ndim == 2 else _to_grey(picture.pixels)
    layer = document.text_layer(handle.index, render) if spec.text_layer != "ignore" else None
    if layer is not None and spec.text_layer == "auto":
        verdict = textlayer.judge(layer, grey)
        if verdict.sound:
            page = _drawn(handle, picture, "text-layer")
            return replace(page, text=verdict.text, lines=verdict.lines)
    ink = blank.inspect(grey)
    if ink.is_blank and spec.skips_blank:
        return _blank(handle, picture)
    page = replace(
        _drawn(handle, picture, "read"),
        suspect=("low-contrast",) if ink.is_low_contrast else (),
    )
    if not spec.hands_over:
        return page
    if spec.text_layer == "draft":
        guess = textlayer.compose(layer)
        page = replace(page, text=guess.text, lines=guess.lines)
    if spec.reads == "page":
        # A text of its own is the better draft.
        is_drafted = spec.drafts_lines and not page.text
        crops = _crops(grey, spec) if is_drafted else ()
        page = replace(page, picture=picture.pixels, draft_crops=crops)
    else:
        page = replace(page, crops=_crops(grey, spec))
    if on_picture is not None and (page.crops or page.picture is not None):
        on_picture(picture.pixels)
    return page


def _crops(grey: Pixels, spec: PrepareSpec) -> tuple[LineCrop, ...]:
    from vlmcli.documents.lines import crop_lines, find_lines

    lines = find_lines(grey)
    return crop_lines(grey, lines, height=spec.line_height, max_width=spec.max_line_width)


def _from_layer_alone(document: Document, handle: PageHandle, spec: PrepareSpec) -> PreparedPage:
    """The layer's text whatever it is worth: nobody is asked to look at the page."""
    verdict = textlayer.compose(document.text_layer(handle.index, spec.render))
    size = handle.pixel_size(spec.render.dpi, spec.render.max_pixels)
    return PreparedPage(
        number=handle.number,
        width=size.width,
        height=size.height,
        dpi=size.dpi,
        downscaled=size.downscaled,
        outcome="text-layer",
        text=verdict.text,
        lines=verdict.lines,
        suspect=() if verdict.sound else ("no-text-layer",),
    )


def _drawn(
    handle: PageHandle, picture: Picture, outcome: Literal["text-layer", "blank", "read"]
) -> PreparedPage:
    height, width = picture.pixels.shape[:2]
    return PreparedPage(
        number=handle.number,
        width=width,
        height=height,
        dpi=picture.dpi,
        downscaled=picture.downscaled,
        outcome=outcome,
        warnings=picture.faults,
    )


def _blank(handle: PageHandle, picture: Picture) -> PreparedPage:
    """A blank page, unless it is blank only because its content could not be drawn.

    Raises:
        PageError: something was to be drawn.
    """
    if picture.faults:
        raise PageError(f"nothing of the page could be drawn: {picture.faults[0]}")
    return _drawn(handle, picture, "blank")


def _failed(handle: PageHandle, spec: PrepareSpec, error: PageError) -> PreparedPage:
    size = handle.pixel_size(spec.render.dpi, spec.render.max_pixels)
    return PreparedPage(
        number=handle.number,
        width=size.width,
        height=size.height,
        dpi=size.dpi,
        downscaled=size.downscaled,
        outcome="error",
        error=ErrorInfo(code=error.code, message=str(error)),
    )


def _to_grey(pixels: Pixels) -> Pixels:
    """Luma of an RGB picture (ITU-R BT.601, as in JPEG and in Pillow)."""
    grey: Pixels = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    return grey
