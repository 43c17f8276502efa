"""What of a picture depends on all of it: which values are black and white, and its ground.

A sheet in the lower bits of 16, and light print on nothing, were pages without a text.
"""

import struct
import tracemalloc

import numpy as np
import pymupdf
import pytest
from documents_kit import COLOUR, GREY, opened, sentences, written
from PIL import Image, TiffImagePlugin

from vlmcli.documents import blank, image_modes, strips
from vlmcli.documents.source import Source
from vlmcli.outputs.pdf_pages import write_pictures

KINDS = {"TIFF": "x.tif", "PNG": "x.png", "JPEG2000": "x.jp2"}
SHEET = written(sentences(5, words=4), size=(480, 240), left=30, top=20)


def save(tmp_path, image, kind="TIFF", **options):
    path = tmp_path / KINDS[kind]
    image.save(path, kind, **options)
    return path


def shown(path, spec=GREY, index=0):
    with opened(path) as document:
        return document.render(index, spec).pixels


def in_pdf(tmp_path, path):
    """The picture as `-f pdf` puts it on a page, (H, W, 3)."""
    target = tmp_path / "x.pdf"
    write_pictures(Source(path=path, name=path.name), target, 25_000_000)
    with pymupdf.open(target) as pdf, Image.open(path) as image:
        scale = pymupdf.Matrix(image.width / pdf[0].rect.width, image.height / pdf[0].rect.height)
        pixels = pdf[0].get_pixmap(matrix=scale, alpha=False, colorspace=pymupdf.csRGB)
        return np.frombuffer(pixels.samples, np.uint8).reshape(image.height, image.width, 3)


def nearest(values, low, high):
    return np.round(low + values / 255 * (high - low))


RANGES = [
    *((0, 255), (0, 1023), (0, 4095), (0, 16383), (0, 65535)),
    *((2000, 3000), (20_000, 30_000), (100, 900)),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_a_sheet_shows_wherever_in_sixteen_bits_it_lies(tmp_path, kind, low, high):
    values = nearest(SHEET, low, high).astype(np.uint16)
    pixels = shown(save(tmp_path, Image.fromarray(values), kind)).astype(float)
    assert pixels.max() >= 115, "paper"
    assert pixels.max() - pixels.min() >= 255 * (high - low) / (2 * high + 2) - 1
    assert np.corrcoef(pixels.ravel(), SHEET.ravel())[0, 1] > 0.999
    assert not blank.is_blank(pixels.astype(np.uint8))


@pytest.mark.parametrize("bits", [8, 10, 12, 14, 16])
def test_all_of_so_many_bits_is_all_from_black_to_white(tmp_path, bits):
    values = nearest(SHEET, 0, 2**bits - 1).astype(np.uint16)
    pixels = shown(save(tmp_path, Image.fromarray(values)))
    assert np.abs(pixels.astype(int) - SHEET).max() <= 1


def test_sixteen_full_bits_are_what_they_were(tmp_path):
    values = np.arange(65536).astype(np.uint16).reshape(256, 256)
    wanted = values // 257 + (values % 257 > 128)
    for kind in ("TIFF", "PNG"):
        assert np.array_equal(shown(save(tmp_path, Image.fromarray(values), kind)), wanted)


@pytest.mark.parametrize(
    ("order", "white_is_zero"),
    [("<", False), ("<", True), (">", False)],  # Pillow does not read the fourth.
)
def test_either_byte_order_and_either_zero(tmp_path, order, white_is_zero):
    stored = 255 - SHEET if white_is_zero else SHEET
    values = nearest(stored, 0, 4095).astype("<u2" if order == "<" else ">u2")
    mode = "I;16" if order == "<" else "I;16B"
    image = Image.frombytes(mode, (values.shape[1], values.shape[0]), values.tobytes())
    path = save(tmp_path, image, tiffinfo={262: 0} if white_is_zero else {})
    assert np.abs(shown(path).astype(int) - SHEET).max() <= 1


def packed_in_twelve_bits(path, pixels):
    """A TIFF of twelve bits a number, two numbers in three bytes."""
    values = nearest(pixels, 0, 4095).astype(np.uint16)
    pairs = values.reshape(-1, 2)
    first, second = pairs[:, 0], pairs[:, 1]
    parts = (first >> 4, (first & 15) << 4 | second >> 8, second & 255)
    data = np.stack(parts, 1).astype(np.uint8).tobytes()
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    height, width = pixels.shape
    tags[256], tags[257], tags[258], tags[259], tags[262] = width, height, 12, 1, 1
    tags[277], tags[278], tags[279] = 1, height, len(data)
    tags[273] = 0  # from the end of the tags, which Pillow adds
    path.write_bytes(b"II*\x00\x08\x00\x00\x00" + tags.tobytes(8) + data)


@pytest.mark.parametrize("darkest", [1.0, 0.1])
def test_numbers_of_twelve_bits_have_the_range_that_their_file_says(tmp_path, darkest):
    wanted = (SHEET * darkest).astype(np.uint8)
    packed_in_twelve_bits(tmp_path / "x.tif", wanted)
    assert np.abs(shown(tmp_path / "x.tif").astype(int) - wanted).max() <= 1


@pytest.mark.parametrize(("dtype", "high"), [
    *((np.int32, high) for high in (1, 255, 1023, 4095, 65535, 2**24 - 1, 2**31 - 1)),
    *((np.float32, high) for high in (1, 1.02, 255, 4095, 65535, 2.0**20)),
])  # fmt: skip
def test_whole_and_broken_numbers_of_32_bits(tmp_path, dtype, high):
    values = (SHEET.astype(np.float64) / 255 * high).astype(dtype)
    pixels = shown(save(tmp_path, Image.fromarray(values)))
    wanted = np.where(SHEET == 255, 255, 0) if high == 1 and dtype is np.int32 else SHEET
    limit = 128 if high == 2.0**20 else 6
    assert np.abs(pixels.astype(int) - wanted).max() <= limit
    assert not blank.is_blank(pixels)


def test_numbers_of_32_bits_without_a_sign_are_not_taken_for_negative_ones(tmp_path):
    values = (SHEET.astype(np.float64) / 255 * (2**32 - 1)).astype(np.uint32)
    path = save(tmp_path, Image.fromarray(values.view(np.int32)))
    signed, unsigned = (struct.pack("<HHIHH", 339, 3, 1, kind, 0) for kind in (2, 1))
    data = path.read_bytes()
    assert data.count(signed) == 1
    path.write_bytes(data.replace(signed, unsigned))
    assert np.abs(shown(path).astype(int) - SHEET).max() <= 1


@pytest.mark.parametrize("white_is_zero", [False, True])
@pytest.mark.parametrize(
    ("level", "grain"), [(20, 8), (300, 60), (600, 90), (3000, 300), (3900, 30), (62_000, 500)]
)
def test_the_grain_of_an_empty_sheet_does_not_become_print(tmp_path, level, grain, white_is_zero):
    values = np.random.default_rng(0).normal(level, grain, (800, 600)).clip(0, 65535)
    tags = {262: 0} if white_is_zero else {}
    path = save(tmp_path, Image.fromarray(values.astype(np.uint16)), tiffinfo=tags)
    assert blank.is_blank(shown(path))


@pytest.mark.parametrize("mode", ["I;16", "RGBA"])
@pytest.mark.parametrize("rows", [7, 240])
def test_all_bands_of_a_picture_are_shown_alike(tmp_path, monkeypatch, mode, rows):
    """The first band of this one, taken for itself, is of eight bits, and dark ink on nothing."""
    monkeypatch.setattr(strips, "BAND_BYTES", 20 * SHEET.shape[1] * 12)
    stored = SHEET.copy()
    if mode == "RGBA":
        pixels = np.full((*SHEET.shape, 4), 255, np.uint8)
        pixels[..., 3] = 255 - stored
        pixels[:15, :40] = 0, 0, 0, 255
        image = Image.fromarray(pixels)
    else:
        values = nearest(stored, 0, 4095).astype(np.uint16)
        values[:20] = 10
        image = Image.fromarray(values)
    path = save(tmp_path, image, compression="tiff_lzw", tiffinfo={278: rows})
    wanted = shown(path, COLOUR)
    assert np.abs(in_pdf(tmp_path, path).astype(int) - wanted.astype(int)).max() <= 2
    assert np.ptp(wanted[30:]) > 200


def on_nothing(ink, *, alpha=1.0, size=(480, 240)):
    """Print in a colour, nothing around it; RGBA."""
    pixels = np.zeros((size[1], size[0], 4), np.uint8)
    pixels[..., :3] = ink
    pixels[..., 3] = (255 - SHEET) * alpha
    return Image.fromarray(pixels)


WAYS = {
    "rgba": (lambda image: image, "x.png", {}),
    "grey and alpha": (lambda image: image.convert("LA"), "x.png", {}),
    "palette": (lambda image: image.quantize(8), "x.png", {}),
    "webp": (lambda image: image, "x.webp", {"lossless": True}),
    "gif": (lambda image: image, "x.gif", {}),
    "tiff": (lambda image: image, "x.tif", {"compression": "tiff_lzw"}),
    "jpeg 2000": (lambda image: image, "x.jp2", {}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("ink", "ground"),
    [((255, 255, 255), 0), ((250, 220, 80), 0), ((0, 0, 0), 255), ((20, 90, 160), 255)],
)
def test_print_on_nothing_shows_whatever_its_colour(tmp_path, way, ink, ground):
    change, name, options = WAYS[way]
    path = tmp_path / name
    change(on_nothing(ink)).save(path, **options)
    pixels = shown(path)
    assert (pixels[:10] == ground).all()
    contrast = pixels.astype(float) - ground
    assert abs(np.percentile(contrast, 2 if ground else 98)) > 100
    assert not blank.is_blank(pixels)
    assert np.abs(in_pdf(tmp_path, path).astype(int) - shown(path, COLOUR)).max() <= 2


def test_faint_light_print_shows_too(tmp_path):
    on_nothing((255, 255, 255), alpha=0.5).save(tmp_path / "x.png")
    pixels = shown(tmp_path / "x.png")
    assert pixels[0, 0] == 0 and pixels.max() > 115


@pytest.mark.parametrize("share", [0.6, 0.9])
def test_a_light_sheet_that_was_cut_out_lies_on_white(tmp_path, share):
    height, width = SHEET.shape
    canvas = Image.new("RGBA", (width, round(height / share)))
    canvas.paste(Image.fromarray(SHEET).convert("RGBA"), (0, 0))
    canvas.save(tmp_path / "x.png")
    assert (shown(tmp_path / "x.png")[height:] == 255).all()


def test_a_picture_of_which_nothing_is_seen_is_white(tmp_path):
    Image.new("RGBA", (60, 40), (255, 255, 255, 0)).save(tmp_path / "x.png")
    assert (shown(tmp_path / "x.png") == 255).all()


def test_each_frame_has_its_own_tones(tmp_path):
    frames = [
        Image.fromarray(nearest(SHEET, 0, high).astype(np.uint16)) for high in (4095, 65535, 255)
    ]
    path = save(tmp_path, frames[0], save_all=True, append_images=frames[1:])
    for index in range(3):
        assert np.abs(shown(path, index=index).astype(int) - SHEET).max() <= 1


@pytest.mark.parametrize("mode", ["I", "F", "I;16", "RGBA"])
def test_flattening_takes_little_beside_the_picture(mode):
    """A picture of 32-bit numbers took 25 bytes a pixel, where 5 were planned."""
    image = Image.new(mode, (3000, 2000), 70)
    tracemalloc.start()
    tones = image_modes.tones_of(image)
    image_modes.flatten(image, tones, grey=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 3000 * 2000 + 12_000_000
