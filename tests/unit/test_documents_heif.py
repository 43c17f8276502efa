"""AVIF and HEIC: told apart by their first bytes, read where something decodes them, else named.

What holds for pictures of every format is in `test_documents_images`, which has these too.
"""

import re
import struct

import numpy as np
import pymupdf
import pytest
from documents_kit import GREY, opened, sentences, written
from PIL import Image

from vlmcli.documents import heif
from vlmcli.documents.base import RenderSpec
from vlmcli.documents.source import Source, iter_sources
from vlmcli.errors import InputError, PageError
from vlmcli.outputs.pdf_pages import write_pictures

NAMES = {"AVIF": "x.avif", "HEIF": "x.heic"}
FORMATS = heif.register()
SHEET = written(sentences(6, words=4), size=(480, 320), left=30, top=20)
COLOUR = RenderSpec(dpi=72, max_pixels=25_000_000)

only_with_heic = pytest.mark.skipif("HEIF" not in FORMATS, reason="the extra heif is missing")


def head(major, *brands):
    body = b"".join([b"ftyp", major, bytes(4), *brands])
    return struct.pack(">I", 4 + len(body)) + body + bytes(40)


@pytest.mark.parametrize(("data", "kind"), [
    (head(b"avif"), "AVIF"),
    (head(b"avis", b"avif", b"msf1"), "AVIF"),
    (head(b"mif1", b"miaf", b"avif"), "AVIF"),
    (head(b"mif1", b"heic"), "HEIC"),
    (head(b"msf1", b"hevc"), "HEIC"),
    (head(b"heic", b"mif1"), "HEIC"),
    (head(b"heix"), "HEIC"),
    (head(b"mif1"), "HEIC"),
    (head(b"isom", b"avif"), None),
    (head(b"mp42"), None),
    (head(b"qt  "), None),
    (b"heic", None),
    (b"\x00\x00\x00\x04ftyp", None),
])  # fmt: skip
def test_the_first_bytes_say_which_it_is(data, kind):
    assert heif.kind_of_head(data) == kind


@pytest.mark.parametrize(("kind", "words"), [("HEIC", "vlmcli[heif]"), ("AVIF", "Pillow")])
def test_what_decodes_them_is_named_where_it_is_missing(tmp_path, monkeypatch, kind, words):
    monkeypatch.setattr(heif, "is_readable", lambda kind: False)
    path = tmp_path / "IMG_0001.bin"
    path.write_bytes(head(kind.lower().encode()))
    with pytest.raises(InputError) as caught:
        opened(path)
    assert (caught.value.exit_code, caught.value.code) == (3, "not-a-document")
    assert kind in caught.value.message and "IMG_0001.bin" in caught.value.message
    assert words in caught.value.remedy
    assert "\n" not in str(caught.value)
    (path.parent / "a.pdf").write_bytes(b"%PDF-1.7")
    said = []
    found = list(iter_sources([str(tmp_path)], on_left_out=said.append))
    assert [source.path.name for source in found] == ["a.pdf"]
    assert str(path) in said[0] and words in said[0]


@pytest.mark.parametrize("is_readable", [False, True])
def test_folders_have_those_that_can_be_read(tmp_path, monkeypatch, is_readable):
    monkeypatch.setattr(heif, "is_readable", lambda kind: is_readable)
    for name in ("a.heic", "b.HIF", "c.avif"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "d").write_bytes(head(b"heic"))
    (tmp_path / "e").write_bytes(head(b"avif"))
    (tmp_path / "f.tif").write_bytes(b"")
    found = [source.path.name for source in iter_sources([str(tmp_path)])]
    assert found == (["a.heic", "b.HIF", "c.avif", "d", "e", "f.tif"] if is_readable else ["f.tif"])


def saved(tmp_path, kind, image=None, **options):
    path = tmp_path / NAMES[kind]
    (image or Image.fromarray(SHEET).convert("RGB")).save(path, kind, quality=90, **options)
    return path


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_they_lie_upright_when_read_and_in_a_pdf(tmp_path, kind, orientation):
    exif = Image.Exif()
    exif[274] = orientation
    turns = {1: 0, 3: 180, 6: 90, 8: 270}
    stored = Image.fromarray(SHEET).convert("RGB").rotate(turns[orientation], expand=True)
    path = saved(tmp_path, kind, stored, exif=exif.tobytes())
    with opened(path) as document:
        handle = document.page(0)
        assert (handle.width, handle.height) == (480, 320)
        grey = document.render(0, GREY).pixels
        assert np.abs(grey.astype(int) - SHEET).mean() < 4
        wanted = document.render(0, COLOUR).pixels
    write_pictures(Source(path=path, name="x"), tmp_path / "x.pdf", 25_000_000)
    with pymupdf.open(tmp_path / "x.pdf") as pdf:
        scale = pymupdf.Matrix(480 / pdf[0].rect.width, 320 / pdf[0].rect.height)
        pixels = pdf[0].get_pixmap(matrix=scale, alpha=False, colorspace=pymupdf.csRGB)
        got = np.frombuffer(pixels.samples, np.uint8).reshape(320, 480, 3)
    assert np.abs(got.astype(int) - wanted).max() <= 2


@pytest.mark.parametrize("kind", FORMATS)
def test_light_print_on_nothing_shows(tmp_path, kind):
    pixels = np.full((*SHEET.shape, 4), 255, np.uint8)
    pixels[..., 3] = 255 - SHEET
    with opened(saved(tmp_path, kind, Image.fromarray(pixels))) as document:
        shown = document.render(0, GREY).pixels
    assert np.abs(shown.astype(int) - (255 - SHEET)).mean() < 4


@only_with_heic
def test_pictures_of_one_file_are_pages_of_their_own_size(tmp_path):
    frames = [Image.fromarray(SHEET[:200, :300]), Image.fromarray(SHEET).convert("RGB")]
    path = saved(tmp_path, "HEIF", frames[0], save_all=True, append_images=frames[1:])
    with opened(path) as document:
        assert document.num_pages == 2
        sizes = [(document.page(index).width, document.page(index).height) for index in (0, 1)]
        assert sizes == [(300, 200), (480, 320)]
        for index in (1, 0, 1):
            shown = document.render(index, GREY).pixels
            assert np.abs(shown.astype(int) - np.asarray(frames[index].convert("L"))).mean() < 4


def says(path, width, height):
    """Have a file say that its picture is of another size than it is."""
    data = bytearray(path.read_bytes())
    for found in re.finditer(b"ispe", bytes(data)):
        struct.pack_into(">II", data, found.start() + 8, width, height)
    path.write_bytes(data)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_picture_that_is_too_large_is_refused_before_it_unfolds(tmp_path, kind):
    path = saved(tmp_path, kind)
    says(path, 9000, 8000)
    with opened(path) as document:
        handle = document.page(0)
        assert handle.is_refused(25_000_000)
        with pytest.raises(PageError) as caught:
            document.render(0, RenderSpec(dpi=72, max_pixels=25_000_000))
        assert caught.value.code == "bomb"
        cap = int(re.search(r"to (\d+)$", caught.value.remedy)[1])
        assert not handle.is_refused(cap) and handle.is_refused(cap - 1)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("size", [(60_000, 60_000), (16, 16)])
def test_a_picture_that_lies_about_its_size_is_an_error_or_harmless(tmp_path, kind, size):
    path = saved(tmp_path, kind)
    says(path, *size)
    try:
        with opened(path) as document, pytest.raises(PageError):
            document.render(0, RenderSpec(dpi=72, max_pixels=1_000_000))
            assert size == (16, 16)
            raise PageError("it was made smaller")
    except InputError as error:
        assert error.exit_code == 3


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("mode", "least"), [("L", 4), ("RGB", 12), ("RGBA", 14)])
def test_what_decoding_takes_is_planned_before(tmp_path, kind, mode, least):
    """Bytes a pixel, as measured with planes of full size in 8 bits and in 10."""
    path = saved(tmp_path, kind, Image.fromarray(SHEET).convert(mode))
    with opened(path) as document:
        handle = document.page(0)
        size = handle.pixel_size(72, 25_000_000)
        assert handle.drawing_bytes(size, grey=True) >= least * SHEET.size
        assert handle.writing_bytes(25_000_000) >= least * SHEET.size
        assert handle.drawing_bytes(size, grey=False) >= max(10, least) * SHEET.size
