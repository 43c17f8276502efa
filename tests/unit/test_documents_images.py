"""Image files: every frame a page, upright as viewed, in 8 bits, within the budget, no crash."""

import io
import re
import struct
import warnings
import zlib

import numpy as np
import pytest
from documents_kit import GREY, opened, sentences, written
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vlmcli.documents import heif, image_bombs
from vlmcli.documents.base import RenderSpec
from vlmcli.errors import InputError, PageError

COLOUR = RenderSpec(dpi=200, max_pixels=25_000_000)
KINDS = ["PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "JPEG2000", *heif.register()]


def save(tmp_path, image, kind, name="x", **options):
    path = tmp_path / name
    image.save(path, kind, **options)
    return path


def shown(path, spec=COLOUR, index=0):
    with opened(path) as document:
        handle = document.page(index)
        picture = document.render(index, spec)
        size = handle.pixel_size(spec.dpi, spec.max_pixels)
        assert picture.pixels.shape[:2] == (size.height, size.width)
        assert picture.pixels.dtype == np.uint8
        assert picture.pixels.ndim == (2 if spec.grey else 3)
        assert picture.downscaled == size.downscaled
        assert picture.dpi is None
        return picture.pixels


def colours() -> np.ndarray:
    """Four quarters: red, green, blue, light grey; 48 × 32 pixels."""
    pixels = np.zeros((32, 48, 3), np.uint8)
    pixels[:16, :24] = 220, 20, 20
    pixels[:16, 24:] = 20, 200, 20
    pixels[16:, :24] = 20, 20, 220
    pixels[16:, 24:] = 200
    return pixels


def near(one, other, limit=3.0):
    return np.abs(one.astype(float) - other.astype(float)).mean() <= limit


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_shows_its_colours(tmp_path, kind):
    options = {"quality": 98} if kind in ("JPEG", "WEBP", "AVIF", "HEIF") else {}
    path = save(tmp_path, Image.fromarray(colours()), kind, **options)
    assert near(shown(path), colours(), 6)
    assert shown(path, GREY).ndim == 2


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "LA", "I;16"])
def test_jpeg_2000_is_read_with_its_boxes_and_bare(tmp_path, mode):
    pixels = np.repeat(written(["Wavelets"], size=(150, 50), left=8, top=4)[..., None], 3, 2)
    image = Image.fromarray(pixels).convert("L" if mode == "I;16" else mode)
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 257)
    bare, boxed = io.BytesIO(), io.BytesIO()
    image.save(boxed, "JPEG2000")
    image.save(bare, "JPEG2000", no_jp2=True)
    assert bare.getvalue()[:4] == b"\xff\x4f\xff\x51" != boxed.getvalue()[:4]
    for number, data in enumerate((bare.getvalue(), boxed.getvalue())):
        path = tmp_path / f"{number}.jp2"
        path.write_bytes(data)
        assert near(shown(path), pixels)


def test_what_decoding_jpeg_2000_takes_is_planned_before(tmp_path):
    path = save(tmp_path, Image.fromarray(colours()), "JPEG2000")
    with opened(path) as document:
        handle = document.page(0)
        image = handle.largest_image
        assert image is not None
        assert image.decoded_bytes(handle.pixel_size(200, 10**6)) >= 20 * 32 * 48


@pytest.mark.parametrize(("kind", "least"), [("BMP", 8), ("JPEG2000", 20)])
def test_what_copying_into_a_pdf_takes_is_planned_before(tmp_path, kind, least):
    path = save(tmp_path, Image.new("RGB", (2000, 1500), "white"), kind)
    with opened(path) as document:
        assert document.page(0).writing_bytes(25_000_000) >= least * 2000 * 1500


MODES = {
    "1": lambda image: image.convert("1", dither=Image.Dither.NONE),
    "L": lambda image: image.convert("L"),
    "P": lambda image: image.quantize(16),
    "CMYK": lambda image: image.convert("CMYK"),
    "YCbCr": lambda image: image.convert("YCbCr"),
    "LAB": lambda image: image.convert("RGB").convert("LAB"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spec", [COLOUR, GREY], ids=["colour", "grey"])
def test_every_colour_mode_arrives(tmp_path, mode, spec):
    if mode == "LAB":
        pytest.importorskip("PIL.ImageCms")
    source = Image.fromarray(
        np.repeat(written(["Mode"], size=(90, 40), left=8, top=4)[..., None], 3, 2)
    )
    try:
        image = MODES[mode](source)
    except ValueError:
        pytest.skip("this Pillow cannot make such a picture")
    pixels = shown(save(tmp_path, image, "TIFF"), spec)
    wanted = np.asarray(source if not spec.grey else source.convert("L"))
    assert near(pixels, wanted, 25 if mode in ("1", "LAB") else 6)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "GIF", "JPEG2000"])
def test_transparent_parts_are_white(tmp_path, kind):
    pixels = np.dstack([colours(), np.full((32, 48), 255, np.uint8)])
    pixels[:, :10, 3] = 0
    options = {"lossless": True} if kind == "WEBP" else {}
    path = save(tmp_path, Image.fromarray(pixels, "RGBA"), kind, **options)
    found = shown(path)
    assert (found[:, :9] == 255).all()
    assert near(found[:16, 26:], colours()[:16, 26:])
    assert (shown(path, GREY)[:, :9] == 255).all()


def test_half_transparent_is_half_white(tmp_path):
    pixels = np.zeros((10, 10, 4), np.uint8)
    pixels[..., 3] = 128
    assert (
        np.abs(shown(save(tmp_path, Image.fromarray(pixels), "PNG")).astype(int) - 127).max() <= 1
    )


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_palette_and_colour_key_transparency(tmp_path, kind):
    image = Image.fromarray(colours()).quantize(4)
    index = image.getpixel((0, 0))
    if kind == "PNG":
        found = shown(save(tmp_path, image, "PNG", transparency=index))
        assert (found[:15, :23] == 255).all()
        assert near(found[16:, 24:], colours()[16:, 24:])
    else:
        assert near(shown(save(tmp_path, image, "TIFF")), colours())


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "JPEG2000"])
def test_sixteen_bits_are_scaled_not_cut(tmp_path, kind):
    wide = np.linspace(0, 65535, 256).astype(np.uint16)[None].repeat(8, 0)
    found = shown(save(tmp_path, Image.fromarray(wide), kind), GREY)
    assert np.abs(found[0].astype(int) - np.arange(256)).max() <= 1


def test_sixteen_bits_with_white_as_zero(tmp_path):
    wide = np.linspace(0, 65535, 256).astype(np.uint16)[None].repeat(8, 0)
    path = save(tmp_path, Image.fromarray(wide), "TIFF", tiffinfo={262: 0})
    assert np.abs(shown(path, GREY)[0].astype(int) - np.arange(256)[::-1]).max() <= 1


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 255), (0, 65535), (-5.0, 12.0)])
def test_float_pictures_span_black_to_white(tmp_path, low, high):
    values = np.linspace(low, high, 256).astype(np.float32)[None].repeat(8, 0)
    values[0, 0] = np.nan
    found = shown(save(tmp_path, Image.fromarray(values), "TIFF"), GREY)
    assert found[0, 0] == 255
    assert np.abs(found[1].astype(int) - np.arange(256)).max() <= 1


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", *heif.register()])
def test_exif_variants_are_shown_alike(tmp_path, kind, orientation):
    upright = Image.fromarray(colours())
    stored = {
        1: upright,
        2: upright.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        3: upright.transpose(Image.Transpose.ROTATE_180),
        4: upright.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
        5: upright.transpose(Image.Transpose.TRANSPOSE),
        6: upright.transpose(Image.Transpose.ROTATE_90),
        7: upright.transpose(Image.Transpose.TRANSVERSE),
        8: upright.transpose(Image.Transpose.ROTATE_270),
    }[orientation]
    if kind == "TIFF":
        path = save(tmp_path, stored, kind, tiffinfo={274: orientation})
    else:
        exif = Image.Exif()
        exif[274] = orientation
        options = {"quality": 98} if kind != "PNG" else {}
        path = save(tmp_path, stored, kind, exif=exif.tobytes(), **options)
    with opened(path) as document:
        handle = document.page(0)
        assert (handle.width, handle.height) == (48, 32)
    assert near(shown(path), colours(), 6)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["1", "L", "RGB", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("pages", [1, 2])
def test_however_a_tiff_lies_and_is_stored_all_of_it_is_shown(tmp_path, pages, mode, orientation):
    """Some modes are mapped into memory where they are not compressed, and came out scrambled."""
    rng = np.random.default_rng(orientation)
    grey = Image.fromarray(np.where(rng.random((20, 36)) < 0.5, 0, 255).astype(np.uint8))
    stored = (
        grey.point(lambda v: v * 257, "I").convert(mode) if mode == "I;16" else grey.convert(mode)
    )
    images = [stored] * pages
    found = []
    for compression in ("raw", "tiff_lzw"):
        path = tmp_path / f"{compression}.tif"
        options = {"tiffinfo": {274: orientation}, "compression": compression}
        images[0].save(path, append_images=images[1:], save_all=pages > 1, **options)
        found.append(shown(path, GREY, index=pages - 1))
    assert np.array_equal(*found)
    assert found[0].shape == ((36, 20) if orientation > 4 else (20, 36))
    assert 0.3 < (found[0] < 128).mean() < 0.7


def test_damaged_metadata_is_no_reason_to_refuse(tmp_path):
    exif = b"Exif\x00\x00II*\x00\xff\xff\xff\xff\x01"
    path = save(tmp_path, Image.fromarray(colours()), "JPEG", exif=exif, quality=98)
    assert near(shown(path), colours(), 6)


@settings(max_examples=25)
@given(
    count=st.integers(1, 6),
    kind=st.sampled_from(["TIFF", "GIF", "WEBP", "PNG"]),
    compression=st.sampled_from(["raw", "tiff_lzw", "group4", "tiff_deflate", "packbits"]),
)
def test_every_frame_is_a_page(tmp_path_factory, count, kind, compression):
    frames = [
        Image.fromarray(written([f"Page {n}"], size=(140, 40), left=5, top=5)) for n in range(count)
    ]
    options = {}
    if kind == "TIFF":
        options["compression"] = compression
        if compression == "group4":
            frames = [frame.convert("1", dither=Image.Dither.NONE) for frame in frames]
    if kind == "WEBP":
        options["lossless"] = True
        frames = [frame.convert("RGB") for frame in frames]
    if count > 1:
        options |= {"save_all": True, "append_images": frames[1:]}
    path = save(tmp_path_factory.mktemp("frames"), frames[0], kind, **options)
    with opened(path) as document:
        assert document.num_pages == count
        order = [*range(count), 0, count - 1]
        for index in order:
            assert document.page(index).number == index + 1
            pixels = document.render(index, GREY).pixels
            assert near(pixels, np.asarray(frames[index].convert("L")), 4), "frames in any order"


def test_frames_of_a_tiff_keep_their_own_size_and_direction(tmp_path):
    first = Image.fromarray(colours())
    frames = [Image.fromarray(np.full((10, 20), 99, np.uint8)), Image.new("1", (7, 5), 1)]
    path = save(tmp_path, first, "TIFF", save_all=True, append_images=frames)
    with opened(path) as document:
        sizes = [(document.page(n).width, document.page(n).height) for n in range(3)]
        assert sizes == [(48, 32), (20, 10), (7, 5)]
        assert (document.render(2, GREY).pixels == 255).all()


def test_a_phones_second_picture_is_no_page(tmp_path):
    frames = [Image.fromarray(colours()), Image.fromarray(colours()[:8, :8])]
    path = tmp_path / "x.jpg"
    frames[0].save(path, "MPO", save_all=True, append_images=frames[1:])
    with opened(path) as document:
        assert document.num_pages == 1
    assert shown(path).shape == (32, 48, 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_picture_is_made_smaller_and_says_so(tmp_path, kind, orientation):
    pixels = written(sentences(20), size=(1000, 1400))
    exif = Image.Exif()
    exif[274] = orientation
    options = {} if kind in ("GIF", "TIFF") else {"exif": exif.tobytes()}
    path = save(tmp_path, Image.fromarray(pixels), kind, **options)
    spec = RenderSpec(dpi=200, max_pixels=200_000, grey=True)
    found = shown(path, spec)
    assert found.size <= spec.max_pixels
    assert found.size > 0.9 * spec.max_pixels
    assert found.min() < 150, "print is still there"
    with opened(path) as document:
        assert document.render(0, spec).downscaled


def jpeg(width, height, *, progressive=False):
    out = io.BytesIO()
    Image.new("RGB", (16, 16)).save(out, "JPEG", progressive=progressive)
    data = bytearray(out.getvalue())
    place = data.index(b"\xff\xc2" if progressive else b"\xff\xc0") + 5
    data[place : place + 4] = struct.pack(">HH", height, width)
    return bytes(data)


def png(width, height, *, depth=8, colour=2):
    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(bytes(100)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + body + chunk(b"IEND", b"")


def tiff(width, height):
    tags = [
        (256, 4, width),
        (257, 4, height),
        (258, 3, 8),
        (259, 3, 1),
        (262, 3, 1),
        (273, 4, 8),
        (277, 3, 1),
        (278, 4, height),
        (279, 4, 1),
    ]
    body = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    return b"II*\x00\x10\x00\x00\x00" + bytes(8) + struct.pack("<H", len(tags)) + body + bytes(4)


def webp(width, height):
    head = b"VP8X" + struct.pack("<I", 10) + bytes(4)
    head += (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF" + struct.pack("<I", 4 + len(head)) + b"WEBP" + head


def gif(width, height):
    return (
        b"GIF89a"
        + struct.pack("<HH", width, height)
        + b"\x00\x00\x00,\x00\x00\x00\x00"
        + (struct.pack("<HH", width, height) + b"\x00\x08\x01\x00\x00;")
    )


def bmp(width, height, *, run_lengths=False):
    head = struct.pack("<IIIHHIIIIII", 40, width, height, 1, 8, run_lengths, 0, 0, 0, 256, 0)
    head += bytes(1024)
    body = b"\xff\x00" * 500
    size = 14 + len(head) + len(body)
    return b"BM" + struct.pack("<III", size, 0, 14 + len(head)) + head + body


def jpeg_2000(width, height, *, says=None):
    """`says` is the size in the file's own box, which need not be that of the stream within."""
    out = io.BytesIO()
    Image.new("RGB", (16, 16)).save(out, "JPEG2000")
    data = bytearray(out.getvalue())
    wide, high = says or (width, height)
    struct.pack_into(">II", data, data.index(b"ihdr") + 4, high, wide)
    place = data.index(b"\xff\x51") + 6
    struct.pack_into(">II", data, place, width, height)
    struct.pack_into(">II", data, place + 16, width, height)  # of its one tile
    return bytes(data)


BOMBS = {
    "bmp": bmp(60_000, 60_000),
    "bmp in run lengths": bmp(60_000, 60_000, run_lengths=True),
    "jpeg 2000": jpeg_2000(60_000, 60_000),
    "jpeg 2000 that says it is small": jpeg_2000(60_000, 60_000, says=(16, 16)),
    "jpeg 2000 that says it is large": jpeg_2000(16, 16, says=(60_000, 60_000)),
    "bare jpeg 2000": jpeg_2000(60_000, 60_000).partition(b"jp2c")[2],
    "png": png(60_000, 60_000),
    "png 1 bit": png(2_000_000, 2_000_000, depth=1, colour=0),
    "tiff": tiff(4_000_000_000, 4_000_000_000),
    "progressive jpeg": jpeg(65_000, 65_000, progressive=True),
    "webp": webp(16_000_000, 16_000_000),
    "gif": gif(65_535, 65_535),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_unfolds(tmp_path, name):
    import resource

    path = tmp_path / name
    path.write_bytes(BOMBS[name])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        document = opened(path)
    except InputError as error:
        assert error.exit_code == 3
    else:
        with document, pytest.raises(PageError):
            document.render(0, RenderSpec(dpi=200, max_pixels=1_000_000, grey=True))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 40 * 1024, "kilobytes"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("png", png(20_000, 15_000)),
        ("png 1 bit", png(20_000, 20_000, depth=1, colour=0)),
        ("bare jpeg 2000", jpeg_2000(20_000, 15_000).partition(b"jp2c")[2]),
        ("jpeg", jpeg(9_950, 9_950)),
        ("progressive jpeg", jpeg(12_000, 12_000, progressive=True)),
    ],
)
def test_a_bomb_names_the_least_cap_with_which_it_is_decoded(tmp_path, name, data):
    """ "raise --max-pixels" named none: 30,000,000 was not enough, 50,000,000 was."""
    path = tmp_path / name
    path.write_bytes(data)

    def refused(max_pixels):
        """The cap that is asked for; None where the picture would be decoded. Decodes nothing."""
        spec = RenderSpec(dpi=200, max_pixels=max_pixels)
        with opened(path) as document, Image.open(path) as image:
            handle = document.page(0)
            if image.format == "JPEG":
                image.draft(None, handle.pixel_size(200, max_pixels)[:2])
            try:
                image_bombs.refuse(image, handle, spec)
            except PageError as error:
                assert error.code == "bomb"
                assert handle.is_refused(max_pixels) == (image.format != "JPEG")
                return int(re.search(r"to (\d+)$", error.remedy)[1])
        assert not handle.is_refused(max_pixels)
        return None

    cap = refused(25_000_000)
    assert cap is not None
    assert refused(cap - 1) == cap
    assert refused(cap) is None


def test_a_huge_jpeg_is_decoded_at_an_eighth(tmp_path):
    import resource

    path = tmp_path / "x.jpg"
    path.write_bytes(jpeg(30_000, 30_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = shown(path, RenderSpec(dpi=200, max_pixels=1_000_000, grey=True))
    assert found.shape == (1000, 1000)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 60 * 1024, "kilobytes; in full it would be 2.7 gigabytes"


def test_a_bomb_hidden_in_metadata_is_refused(tmp_path):
    text = b"zTXtx\x00\x00" + zlib.compress(bytes(70_000_000))
    data = png(8, 8)
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    path = tmp_path / "x.png"
    path.write_bytes(data[:33] + chunk + data[33:])
    with pytest.raises(InputError):
        opened(path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_truncated_picture_is_one_clear_error(tmp_path, kind, share):
    pixels = np.random.default_rng(0).integers(0, 255, (90, 70), np.uint8)
    options = {"lossless": True} if kind == "WEBP" else {}
    path = save(tmp_path, Image.fromarray(pixels), kind, **options)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(InputError) as caught:
        opened(path)
    assert caught.value.exit_code == 3
    assert caught.value.code == "damaged"
    assert caught.value.message.startswith("x: ")


def test_a_picture_that_lacks_only_its_end_mark_is_read_with_a_warning(tmp_path):
    path = save(tmp_path, Image.fromarray(colours()), "PNG")
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"IEND") - 4])
    with opened(path) as document:
        assert document.warnings
        assert near(document.render(0, COLOUR).pixels, colours())
    with pytest.raises(InputError):
        opened(path, strict=True)


def test_trailing_bytes_and_thumbnails_do_not_confuse(tmp_path):
    thumbnail = io.BytesIO()
    Image.fromarray(colours()).save(thumbnail, "JPEG")
    exif = b"Exif\x00\x00II*\x00\x08\x00\x00\x00\x00\x00" + thumbnail.getvalue()
    noise = np.random.default_rng(0).integers(0, 255, (90, 70), np.uint8)
    path = save(tmp_path, Image.fromarray(noise), "JPEG", exif=exif)
    data = path.read_bytes()
    path.write_bytes(data + b"MOTION" + bytes(200_000))
    with opened(path) as document:
        assert document.warnings == ()
    path.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(InputError):
        opened(path)


def test_a_tiff_cut_between_frames_says_which_page_is_lost(tmp_path):
    frames = [
        Image.fromarray(written([f"Page {n}"], size=(140, 40), left=5, top=5)) for n in range(4)
    ]
    path = save(tmp_path, frames[0], "TIFF", save_all=True, append_images=frames[1:])
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * 0.6)])
    with opened(path) as document:
        assert 1 <= document.num_pages <= 4
        good = [document.page(index).error is None for index in range(document.num_pages)]
        assert good[0]
        assert document.warnings or not all(good)
        assert near(document.render(0, GREY).pixels, np.asarray(frames[0]))
        with pytest.raises(PageError):
            document.render(document.num_pages - 1, GREY)


def test_a_tiff_whose_frames_go_in_a_circle_ends(tmp_path):
    frames = [Image.fromarray(colours()) for _ in range(2)]
    path = save(tmp_path, frames[0], "TIFF", save_all=True, append_images=frames[1:])
    data = bytearray(path.read_bytes())
    first = struct.unpack_from("<I", data, 4)[0]
    count = struct.unpack_from("<H", data, first)[0]
    link = first + 2 + 12 * count
    second = struct.unpack_from("<I", data, link)[0]
    last = second + 2 + 12 * struct.unpack_from("<H", data, second)[0]
    struct.pack_into("<I", data, last, first)
    path.write_bytes(data)
    with opened(path) as document:
        assert document.num_pages == 2


@settings(max_examples=250)
@given(
    kind=st.sampled_from(KINDS),
    frames=st.integers(1, 2),
    changes=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=4)), max_size=5),
    cut=st.floats(0.05, 1.0),
    strict=st.booleans(),
)
def test_damage_is_a_declared_error_whatever_is_damaged(
    tmp_path_factory, kind, frames, changes, cut, strict
):
    image = Image.fromarray(colours())
    options = {}
    if frames > 1 and kind in ("TIFF", "GIF", "WEBP", "PNG"):
        options = {
            "save_all": True,
            "append_images": [image.rotate(90, expand=True).resize((48, 32))],
        }
    path = save(tmp_path_factory.mktemp("fuzz"), image, kind, **options)
    data = bytearray(path.read_bytes())
    for place, new in changes:
        start = int(place * (len(data) - 1))
        data[start : start + len(new)] = new
    path.write_bytes(data[: int(len(data) * cut)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            document = opened(path, strict=strict)
        except InputError as error:
            assert error.exit_code == 3
            return
        with document:
            for index in range(min(document.num_pages, 3)):
                document.page(index)
                try:
                    picture = document.render(index, RenderSpec(dpi=1, max_pixels=10**6, grey=True))
                except PageError:
                    continue
                assert picture.pixels.size <= 10**6
