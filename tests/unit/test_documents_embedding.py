"""Pictures on their way into a PDF: every kind looks as it did, held no longer than needed."""

from pathlib import Path

import numpy as np
import pymupdf
import pytest
from PIL import Image

from vlmcli.documents import strips
from vlmcli.documents.images import open_image
from vlmcli.documents.source import RenderSpec, Source
from vlmcli.outputs.pdf_pages import write_pictures

PIXELS = 25_000_000
SIDE = (331, 257)


def source(path: Path) -> Source:
    return Source(path=path, name=path.name)


def sheet(mode: str) -> Image.Image:
    """Shades, and a mark that tells all ways apart in which it may lie."""
    across, down = np.meshgrid(np.arange(SIDE[0]), np.arange(SIDE[1]))
    shades = ((across * 2 + down) % 256).astype(np.uint8)
    shades[20:90, 30:200] = 0
    if mode == "I;16":
        return Image.fromarray(shades.astype(np.uint16) * 257)
    image = Image.fromarray(shades)
    if mode in ("RGBA", "LA"):
        image = image.convert(mode)
        image.putalpha(Image.fromarray(((across + down) % 256).astype(np.uint8)))
        return image
    return image.convert(mode)


def shown(page: pymupdf.Page, width: int, height: int) -> np.ndarray:
    """A page of a PDF, a pixel for each of the picture's."""
    scale = pymupdf.Matrix(width / page.rect.width, height / page.rect.height)
    pixels = page.get_pixmap(matrix=scale, alpha=False, colorspace=pymupdf.csRGB)
    return np.frombuffer(pixels.samples, np.uint8).reshape(height, width, 3).astype(int)


def assert_same(path: Path, target: Path) -> pymupdf.Document:
    """Every frame of a file is a page that looks like it."""
    write_pictures(source(path), target, PIXELS)
    pdf = pymupdf.open(target)
    assert not pdf.is_repaired
    with open_image(source(path), strict=False) as document:
        assert pdf.page_count == document.num_pages
        for index in range(document.num_pages):
            want = document.render(index, RenderSpec(dpi=72, max_pixels=PIXELS)).pixels
            got = shown(pdf[index], want.shape[1], want.shape[0])
            assert np.abs(got - want.astype(int)).max() <= 2
    return pdf


def filters(pdf: pymupdf.Document) -> set[str]:
    return {image[8] for page in pdf for image in page.get_images()}


TIFF = [
    (mode, compression)
    for mode in ("1", "L", "RGB", "P", "CMYK", "RGBA", "LA", "I;16")
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "group4", "jpeg")
    if (compression != "group4" or mode == "1") and (compression != "jpeg" or mode in ("L", "RGB"))
]


@pytest.mark.parametrize(("mode", "compression"), TIFF)
@pytest.mark.parametrize("rows", [1, 16, 257])
def test_a_tiff_of_any_kind_looks_as_it_did(tmp_path, monkeypatch, mode, compression, rows):
    monkeypatch.setattr(strips, "BAND_BYTES", 40 * SIDE[0] * 12)
    rows = 16 if compression == "jpeg" else rows
    path = tmp_path / "a.tif"
    sheet(mode).save(path, compression=compression, tiffinfo={278: rows})
    pdf = assert_same(path, tmp_path / "a.pdf")
    one = compression == "group4" and rows == SIDE[1]
    assert filters(pdf) == {"CCITTFaxDecode" if one else "FlateDecode"}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.tif", "one.tif", "raw.tif"])
def test_a_picture_lies_as_it_is_viewed(tmp_path, name, orientation):
    exif = Image.Exif()
    exif[274] = orientation
    tags = {274: orientation, 278: SIDE[1] if name == "one.tif" else 16}
    kinds = {
        "tif": {"tiffinfo": tags, "compression": "raw" if name == "raw.tif" else "group4"},
        "webp": {"exif": exif, "lossless": True},
    }
    image = sheet("1" if name.endswith("tif") else "L")
    image.save(tmp_path / name, **kinds.get(name.split(".")[1], {"exif": exif}))
    assert_same(tmp_path / name, tmp_path / "a.pdf")


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "P", "RGBA", "LA", "I;16"])
def test_a_png_keeps_its_bytes_where_a_pdf_has_no_transparency_to_lose(tmp_path, mode):
    sheet(mode).save(tmp_path / "a.png")
    pdf = assert_same(tmp_path / "a.png", tmp_path / "a.pdf")
    ((xref, *_),) = pdf[0].get_images()
    is_kept = pdf.xref_stream_raw(xref) in (tmp_path / "a.png").read_bytes()
    assert is_kept == (mode not in ("RGBA", "LA"))


def test_frames_and_inks_and_what_cameras_add(tmp_path):
    frames = [sheet("P"), sheet("P").rotate(180)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    sheet("CMYK").save(tmp_path / "a.jpg", quality=95)
    sheet("RGB").save(tmp_path / "a.mpo", save_all=True, append_images=[sheet("RGB")])
    assert_same(tmp_path / "a.gif", tmp_path / "gif.pdf")
    assert_same(tmp_path / "a.jpg", tmp_path / "jpg.pdf")
    pdf = assert_same(tmp_path / "a.mpo", tmp_path / "mpo.pdf")
    ((xref, *_),) = pdf[0].get_images()
    stream = pdf.xref_stream_raw(xref)
    assert (tmp_path / "a.mpo").read_bytes().startswith(stream)
    assert len(stream) < (tmp_path / "a.mpo").stat().st_size


def test_a_frame_that_cannot_be_decoded_is_an_empty_page(tmp_path):
    """In the middle of a file: what was written of it is taken back, and the others stay."""
    good = sheet("L")
    path = tmp_path / "a.tif"
    good.save(path, compression="tiff_lzw", save_all=True, append_images=[good, good])
    with Image.open(path) as image:
        image.seek(1)
        offsets = image.tag_v2[273]
    data = bytearray(path.read_bytes())
    data[offsets[-1] : offsets[-1] + 40] = b"\xff" * 40
    path.write_bytes(data)
    write_pictures(source(path), tmp_path / "a.pdf", PIXELS)
    with pymupdf.open(tmp_path / "a.pdf") as pdf:
        assert not pdf.is_repaired
        assert [len(page.get_images()) for page in pdf] == [1, 0, 1]


def test_damage_inside_a_png_is_found_without_decoding_it(tmp_path):
    Image.effect_noise((400, 400), 90).save(tmp_path / "a.png")
    data = bytearray((tmp_path / "a.png").read_bytes())
    data[len(data) // 2 : len(data) // 2 + 50] = bytes(50)
    (tmp_path / "a.png").write_bytes(data)
    write_pictures(source(tmp_path / "a.png"), tmp_path / "a.pdf", PIXELS)
    with pymupdf.open(tmp_path / "a.pdf") as pdf:
        assert [len(page.get_images()) for page in pdf] == [0]


def test_a_full_disk_is_no_fault_of_the_picture(tmp_path, monkeypatch):
    sheet("L").save(tmp_path / "a.png")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vlmcli.outputs.pdf_pages._File.add_image", full)
    with pytest.raises(OSError, match="No space"):
        write_pictures(source(tmp_path / "a.png"), tmp_path / "a.pdf", PIXELS)


def test_what_is_decoded_in_full_says_so_and_nothing_else_does(tmp_path):
    """The plan counts it; a picture too large to be decoded at all takes nothing."""
    sizes = {}
    for name, mode in [("a.png", "L"), ("b.png", "RGBA"), ("c.jpg", "RGB"), ("d.webp", "RGB")]:
        Image.new(mode, (4000, 3000)).save(tmp_path / name)
        with open_image(source(tmp_path / name), strict=False) as document:
            sizes[name] = document.page(0).writing_bytes(PIXELS)
    assert sizes["a.png"] == sizes["c.jpg"] <= 1 << 20
    assert sizes["b.png"] >= 4 * 12_000_000
    assert sizes["d.webp"] >= 12 * 12_000_000
    Image.new("RGBA", (8000, 8000)).save(tmp_path / "e.png")
    with open_image(source(tmp_path / "e.png"), strict=False) as document:
        handle = document.page(0)
    assert handle.writing_bytes(PIXELS) == 0
    assert handle.writing_bytes(64_000_000) >= 4 * 64_000_000
