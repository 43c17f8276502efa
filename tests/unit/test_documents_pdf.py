"""PDF pages: measured as they are drawn, upright, within the budget, and each fault its own."""

import io
import os
import subprocess
import sys

import numpy as np
import pytest
from documents_kit import (
    COLOUR,
    GREY,
    image_object,
    opened,
    pages_pdf,
    pdf_bytes,
    sentences,
    stream,
    text_at,
    written,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vlmcli.documents.base import MAX_SIDE, PageHandle, RenderSpec
from vlmcli.errors import InputError, PageError

LINES = b"".join(text_at(30, 350 - 20 * row, line) for row, line in enumerate(sentences(12, 5)))


def save(tmp_path, data, name="x.pdf"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


@given(
    width=st.floats(1, 14400),
    height=st.floats(1, 14400),
    scale=st.sampled_from([1.0, 10.0, 1e4]),
    dpi=st.floats(10, 600),
    max_pixels=st.integers(1_000, 30_000_000),
    unit=st.sampled_from(["pt", "px"]),
)
def test_no_page_is_larger_than_the_budget(width, height, scale, dpi, max_pixels, unit):
    handle = PageHandle(
        document="x", index=0, num_pages=1, width=width * scale, height=height * scale, unit=unit
    )
    size = handle.pixel_size(dpi, max_pixels)
    assert 1 <= size.width <= MAX_SIDE
    assert 1 <= size.height <= MAX_SIDE
    assert size.width * size.height <= max_pixels
    zoom = dpi / 72 if unit == "pt" else 1.0
    natural = handle.width * zoom, handle.height * zoom
    assert size.downscaled == (
        max(1, round(natural[0])) * max(1, round(natural[1])) > size.width * size.height
    )
    if not size.downscaled:
        assert abs(size.width - natural[0]) <= 1
        assert abs(size.height - natural[1]) <= 1
    elif min(size.width, size.height) > 50 and max(size.width, size.height) < MAX_SIDE / 2:
        assert size.width * size.height > 0.9 * max_pixels, "no smaller than need be"
    assert (size.dpi is None) == (unit == "px")


@settings(max_examples=40)
@given(
    media=st.tuples(st.integers(-50, 50), st.integers(-50, 50), st.integers(20, 900)),
    crop=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    turn=st.sampled_from([0, 90, 180, 270, -90, 450]),
    unit=st.sampled_from([1, 2.5, 40]),
    dpi=st.integers(20, 200),
    max_pixels=st.integers(1_000, 500_000),
    grey=st.booleans(),
)
def test_a_handle_promises_what_rendering_gives(
    tmp_path_factory, media, crop, turn, unit, dpi, max_pixels, grey
):
    x, y, side = media
    page = b"/MediaBox[%d %d %d %d]/CropBox[%d %d %d %d]/Rotate %d/UserUnit %g" % (
        *(x, y, x + side, y + 2 * side),
        *(x + crop[0], y + crop[1], x + side - 1, y + 2 * side - 2),
        *(turn, unit),
    )
    path = save(tmp_path_factory.mktemp("pdf"), pages_pdf([LINES], page=page))
    with opened(path) as document:
        handle = document.page(0)
        width, height = (side - 1 - crop[0]) * unit, (2 * side - 2 - crop[1]) * unit
        if turn % 180:
            width, height = height, width
        assert handle.width == pytest.approx(width, rel=1e-4)
        assert handle.height == pytest.approx(height, rel=1e-4)
        assert handle.rotation == turn % 360
        picture = document.render(0, RenderSpec(dpi=dpi, max_pixels=max_pixels, grey=grey))
        size = handle.pixel_size(dpi, max_pixels)
        shape = (size.height, size.width)
        assert picture.pixels.shape == (shape if grey else (*shape, 3))
        assert picture.pixels.dtype == np.uint8
        assert picture.pixels.nbytes <= max_pixels * (1 if grey else 3)
        assert picture.downscaled == size.downscaled
        assert picture.dpi == size.dpi


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_rotate_turns_the_picture_and_the_boxes(tmp_path, turn):
    with opened(save(tmp_path, pages_pdf([LINES]), "a.pdf")) as document:
        plain = document.render(0, GREY).pixels
    page = b"/MediaBox[0 0 300 400]/Rotate %d" % turn
    with opened(save(tmp_path, pages_pdf([LINES], page=page), "b.pdf")) as document:
        turned = document.render(0, GREY).pixels
        layer = document.text_layer(0, GREY)
    back = np.rot90(turned, turn // 90)
    assert back.shape == plain.shape
    assert np.abs(back.astype(int) - plain).mean() < 2, "anti-aliasing apart, the same picture"
    assert layer is not None
    for fragment in layer.fragments:
        assert fragment.angle == turn
        x0, y0, x1, y1 = (round(side) for side in fragment.box)
        assert (turned[y0:y1, x0:x1] < 128).any(), "the box lies on its ink"


def test_only_the_crop_box_is_shown_and_said(tmp_path):
    content = text_at(20, 380, "outside") + text_at(60, 200, "inside")
    page = b"/MediaBox[0 0 300 400]/CropBox[50 50 250 300]"
    with opened(save(tmp_path, pages_pdf([content], page=page))) as document:
        handle = document.page(0)
        assert (handle.width, handle.height) == (200, 250)
        layer = document.text_layer(0, GREY)
        assert layer is not None
        assert [fragment.text for fragment in layer.fragments] == ["inside"]


def test_form_values_and_annotations_are_shown_and_said(tmp_path):
    appearance = stream(
        b"/Tx BMC BT /F 12 Tf 2 4 Td (Ada Lovelace) Tj ET EMC",
        b"/Subtype/Form/BBox[0 0 120 20]/Resources<</Font<</F 3 0 R>>>>",
    )
    widget = (
        b"<</Type/Annot/Subtype/Widget/FT/Tx/T(name)/V(Ada Lovelace)/F 4"
        b"/Rect[50 200 170 220]/DA(/F 12 Tf 0 g)/AP<</N 4 0 R>>>>"
    )
    page = b"/MediaBox[0 0 300 400]/Annots[5 0 R]"
    data = pages_pdf([text_at(50, 300, "Name:")], page=page, extra=[appearance, widget])
    with opened(save(tmp_path, data)) as document:
        layer = document.text_layer(0, GREY)
        assert layer is not None
        assert {fragment.text.strip() for fragment in layer.fragments} == {"Name:", "Ada Lovelace"}
        box = next(item.box for item in layer.fragments if "Ada" in item.text)
        pixels = document.render(0, GREY).pixels
        assert (pixels[round(box[1]) : round(box[3]), round(box[0]) : round(box[2])] < 128).any()


def test_a_poster_never_exists_in_full(tmp_path):
    page = b"/MediaBox[0 0 14400 14400]/UserUnit 75"
    with opened(save(tmp_path, pages_pdf([LINES], page=page))) as document:
        assert document.page(0).width == 14400 * 75
        before = peak_memory()
        picture = document.render(0, RenderSpec(dpi=300, max_pixels=4_000_000, grey=True))
        assert picture.downscaled
        assert picture.pixels.nbytes <= 4_000_000
        assert peak_memory() - before < 60 * 2**20


def peak_memory() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_an_image_that_would_unfold_is_an_error_of_its_page(tmp_path):
    bomb = stream(
        b"x",
        b"/Type/XObject/Subtype/Image/Width 60000/Height 60000/BitsPerComponent 8"
        b"/ColorSpace/DeviceRGB/Filter/FlateDecode",
    )
    resources = b"/XObject<</I 4 0 R>>"
    data = pages_pdf([b"300 0 0 400 0 0 cm /I Do"], extra=[bomb], resources=resources)
    with opened(save(tmp_path, data)) as document, pytest.raises(PageError) as caught:
        document.render(0, GREY)
    assert caught.value.code == "bomb"
    assert "60000" in caught.value.message


def test_one_broken_page_leaves_the_others(tmp_path):
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R 2 0 R]/Count 2>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 400]>>",
    ]
    with opened(save(tmp_path, pdf_bytes(objects))) as document:
        assert document.num_pages == 2
        good, bad = document.page(0), document.page(1)
        assert good.error is None
        assert document.render(0, GREY).pixels.shape == (556, 417)
        assert bad.error is not None
        assert bad.pixel_size(200, 10**6) == (0, 0, None, False)
        with pytest.raises(PageError, match="cycle"):
            document.render(1, GREY)


@pytest.mark.parametrize("content", [b"9 0 R", b"4 0 R"])
def test_lost_content_is_noticed(tmp_path, content):
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 400]/Contents %s>>" % content,
        stream(b"this is no zlib stream", b"/Filter/FlateDecode"),
    ]
    with opened(save(tmp_path, pdf_bytes(objects))) as document:
        assert document.render(0, GREY).faults
        assert document.render(0, GREY).faults, "said again when asked again"


def test_a_repaired_file_warns_and_strict_refuses(tmp_path):
    data = pages_pdf([LINES]).replace(b"startxref", b"startxxxx")
    path = save(tmp_path, data)
    with opened(path) as document:
        assert document.warnings
        assert document.text_layer(0, GREY) is not None
    with pytest.raises(InputError) as caught:
        opened(path, strict=True)
    assert caught.value.code == "damaged"
    with opened(save(tmp_path, pages_pdf([LINES]), "good.pdf"), strict=True) as document:
        assert document.warnings == ()


@settings(max_examples=60)
@given(cut=st.floats(0.01, 0.99), holes=st.lists(st.floats(0, 1), max_size=6))
def test_damage_is_an_error_or_a_warning_but_never_a_crash(tmp_path_factory, cut, holes):
    whole = pages_pdf([LINES, LINES])
    data = bytearray(whole[: int(len(whole) * cut)] if not holes else whole)
    for hole in holes:
        place = int(hole * (len(data) - 1))
        data[place : place + 3] = b"\xff\x00x"
    path = save(tmp_path_factory.mktemp("pdf"), bytes(data))
    try:
        document = opened(path)
    except InputError as error:
        assert error.exit_code == 3
        return
    with document:
        assert document.num_pages >= 1
        for index in range(min(2, document.num_pages)):
            handle = document.page(index)
            try:
                picture = document.render(index, RenderSpec(dpi=30, max_pixels=10**6, grey=True))
            except PageError:
                continue
            size = handle.pixel_size(30, 10**6)
            assert picture.pixels.shape == (size.height, size.width)


def coded(kind: str, pixels: np.ndarray) -> bytes:
    """A black-and-white picture as a PDF image, in one of the codings that scanners use."""
    image = Image.fromarray(np.where(pixels > 128, 255, 0).astype(np.uint8))
    head = b"/Type/XObject/Subtype/Image/Width %d/Height %d" % image.size
    bits = b"/BitsPerComponent 1/ColorSpace/DeviceGray"
    if kind == "raw":
        return stream(image.convert("1").tobytes(), head + bits)
    if kind == "ccitt":
        parameters = b"/DecodeParms<</K -1/BlackIs1 true/Columns %d/Rows %d>>" % image.size
        return stream(group4(image), head + bits + b"/Filter/CCITTFaxDecode" + parameters)
    if kind == "jbig2":
        return stream(jbig2(image), head + bits + b"/Decode[1 0]/Filter/JBIG2Decode")
    if kind == "mask":
        return stream(image.convert("1").tobytes(), head + b"/ImageMask true/BitsPerComponent 1")
    out = io.BytesIO()
    if kind == "jpx":
        image.save(out, "JPEG2000")
        return stream(out.getvalue(), head + b"/Filter/JPXDecode")
    if kind == "cmyk":
        image.convert("RGB").convert("CMYK").save(out, "JPEG", quality=95)
        invert = b"/Decode[1 0 1 0 1 0 1 0]"
        space = b"/BitsPerComponent 8/ColorSpace/DeviceCMYK/Filter/DCTDecode"
        return stream(out.getvalue(), head + space + invert)
    assert kind == "sixteen"
    wide = (np.asarray(image).astype(">u2") * 257).astype(">u2").tobytes()
    return stream(wide, head + b"/BitsPerComponent 16/ColorSpace/DeviceGray")


def group4(image: Image.Image) -> bytes:
    """CCITT Group 4 data of an image, as one strip. What is black comes out as white, and back."""
    out = io.BytesIO()
    image.convert("1").save(out, "TIFF", compression="group4", tiffinfo={278: image.height})
    with Image.open(io.BytesIO(out.getvalue())) as again:
        (offset,), (count,) = again.tag_v2[273], again.tag_v2[279]
    return out.getvalue()[offset : offset + count]


def jbig2(image: Image.Image) -> bytes:
    """An embedded JBIG2 stream: page information and one MMR-coded generic region (T.88)."""
    size = image.width.to_bytes(4) + image.height.to_bytes(4)
    page = size + bytes(8) + b"\x00" + bytes(2)
    region = size + bytes(8) + b"\x00" + b"\x01" + group4(image)

    def segment(number, kind, data):
        return number.to_bytes(4) + bytes([kind, 0, 1]) + len(data).to_bytes(4) + data

    return segment(0, 48, page) + segment(1, 38, region)


@pytest.mark.parametrize("kind", ["raw", "ccitt", "jbig2", "mask", "jpx", "cmyk", "sixteen"])
def test_every_coding_arrives_as_the_same_picture(tmp_path, kind):
    pixels = written(sentences(6, 4), size=(416, 300), left=20, top=30)
    page = b"/MediaBox[0 0 416 300]"
    data = pages_pdf(
        [b"416 0 0 300 0 0 cm /I Do"],
        page=page,
        extra=[coded(kind, pixels)],
        resources=b"/XObject<</I 4 0 R>>",
    )
    with opened(save(tmp_path, data)) as document:
        spec = RenderSpec(dpi=72, max_pixels=10**6, grey=True)
        shown = document.render(0, spec)
        assert not shown.faults
        wanted = np.where(pixels > 128, 255, 0)
        assert np.abs(shown.pixels.astype(int) - wanted).mean() < 12
        colour = document.render(0, RenderSpec(dpi=72, max_pixels=10**6)).pixels
        assert np.abs(colour[..., 1].astype(int) - wanted).mean() < 12


@pytest.mark.parametrize(
    ("pixels_wide", "page_points", "expected"),
    [
        (1275, 612, 150.0),  # a 150 dpi scan is not enlarged to 200
        (2550, 612, 200.0),  # a 300 dpi scan is reduced
        (425, 612, 200.0),  # a 50 dpi scan has few pixels: enlarged
        (1600, 6120, 18.8),  # a poster whose scan has pixels enough
    ],
)
def test_a_scan_is_not_drawn_larger_than_it_is(tmp_path, pixels_wide, page_points, expected):
    pixels = written(sentences(30, 8), size=(pixels_wide, pixels_wide * 13 // 10))
    content = b"%d 0 0 %d 0 0 cm /I Do" % (page_points, page_points * 13 // 10)
    page = b"/MediaBox[0 0 %d %d]" % (page_points, page_points * 13 // 10)
    spec = RenderSpec(dpi=200, max_pixels=25_000_000, grey=True)
    for turn, text, wanted in (
        (0, b"", expected),
        (90, b"", expected),
        (0, text_at(20, 20, "stamp", mode=3), expected),
        (0, text_at(20, 20, "stamp"), None),
    ):
        data = pages_pdf(
            [text + content],
            page=page + b"/Rotate %d" % turn,
            extra=[image_object(pixels)],
            resources=b"/XObject<</I 4 0 R>>",
        )
        with opened(save(tmp_path, data)) as document:
            handle = document.page(0)
            size = handle.pixel_size(spec.dpi, spec.max_pixels)
            if wanted is None:
                assert handle.scan_dpi is None
            else:
                assert size.dpi == pytest.approx(wanted, abs=0.1)
            height, width = document.render(0, spec).pixels.shape
            assert (width, height) == (size.width, size.height)


def test_memory_is_flat_in_the_number_of_pages(tmp_path):
    random = np.random.default_rng(0)
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"", stream(b"700 0 0 900 0 0 cm /I Do")]
    for _ in range(60):
        clouds = Image.fromarray(random.integers(0, 255, (18, 14), np.uint8)).resize((700, 900))
        objects.append(image_object(np.asarray(clouds)))
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 700 900]/Contents 3 0 R"
            b"/Resources<</XObject<</I %d 0 R>>>>>>" % len(objects)
        )
    kids = b" ".join(b"%d 0 R" % number for number in range(5, len(objects) + 1, 2))
    objects[1] = b"<</Type/Pages/Kids[%s]/Count 60>>" % kids
    path = save(tmp_path, pdf_bytes(objects))
    code = (
        "import sys, resource\n"
        "from pathlib import Path\n"
        "from vlmcli.documents.source import RenderSpec, Source, open_document\n"
        "spec = RenderSpec(dpi=100, max_pixels=10**7, grey=True)\n"
        "with open_document(Source(path=Path(sys.argv[1]), name='x')) as document:\n"
        "    for index in range(document.num_pages):\n"
        "        document.page(index), document.text_layer(index, spec)\n"
        "        document.render(index, spec)\n"
        "        if index in (19, 59):\n"
        "            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    early, late = map(int, out.stdout.split())
    assert late <= early + 4 * 1024, "kilobytes, after 20 and after 60 pages"


def test_grey_keeps_what_colour_shows(tmp_path):
    content = b"1 1 0 rg 0 0 300 400 re f 0 0 1 rg " + LINES
    with opened(save(tmp_path, pages_pdf([content]))) as document:
        colour = document.render(0, COLOUR).pixels
        grey = document.render(0, GREY).pixels
    assert colour[5, 5].tolist() == [255, 255, 0]
    ink = colour[..., 2] > 200
    assert ink.any()
    assert int(grey[~ink & (colour[..., 0] > 250)].min()) - int(grey[ink].max()) > 60


def test_a_dense_drawing_leaves_the_next_page_as_smooth_as_before(tmp_path):
    dense = b"10 10 m 11 12 l S\n" * 200_000
    drawing = b"20 20 m 280 390 l S "
    with opened(save(tmp_path, pages_pdf([drawing, dense, drawing]))) as document:
        before = document.render(0, GREY).pixels
        assert (document.render(1, GREY).pixels < 128).any()
        assert (document.render(2, GREY).pixels == before).all()
        assert len(np.unique(before)) > 5, "smooth"
