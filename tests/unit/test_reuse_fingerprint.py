"""Fingerprints: equal pictures, and only those, share a digest; likeness survives a rescan."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from reuse_pages import form, invoice, scan

from vlmcli.reuse.decide import COMPARE_DISTANCE
from vlmcli.reuse.fingerprint import Sketch, exact_digest, fingerprint, hamming

shapes = st.tuples(st.integers(1, 12), st.integers(1, 12))
pictures = st.one_of(
    npst.arrays(np.uint8, shapes), npst.arrays(np.uint8, shapes.map(lambda shape: (*shape, 3)))
)


@given(pictures, pictures)
def test_digests_are_equal_exactly_where_pictures_are(first, second):
    same = first.shape == second.shape and np.array_equal(first, second)
    assert (exact_digest(first) == exact_digest(second)) == same
    assert exact_digest(first) == exact_digest(first.copy(order="F"))


@given(pictures, st.data())
def test_one_bit_of_one_pixel_changes_the_digest(picture, data):
    place = data.draw(st.integers(0, picture.size - 1))
    changed = picture.copy()
    changed.flat[place] ^= 1 << data.draw(st.integers(0, 7))
    assert exact_digest(changed) != exact_digest(picture)


def test_ten_thousand_random_pictures_have_ten_thousand_digests():
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (10_000, 4, 6), dtype=np.uint8)
    assert len({exact_digest(picture) for picture in pictures}) == len(
        {picture.tobytes() for picture in pictures}
    )


def test_the_same_bytes_in_another_shape_or_mode_are_another_page():
    data = np.arange(36, dtype=np.uint8)
    shapes = [(6, 6), (4, 9), (9, 4), (1, 36), (36, 1), (3, 4, 3), (4, 3, 3), (12, 1, 3), (2, 6, 3)]
    assert len({exact_digest(data.reshape(shape)) for shape in shapes}) == len(shapes)


@pytest.mark.parametrize("make", [invoice, form])
def test_a_rescan_is_near_enough_to_be_compared(make):
    rng = np.random.default_rng(0)
    for seed in range(8):
        page = make(seed, size=10).print(150)
        first, second = (fingerprint(scan(page, rng), with_sketch=False) for _ in range(2))
        assert hamming(first.dhash256, second.dhash256) <= COMPARE_DISTANCE


@pytest.mark.parametrize("shade", [0, 128, 255])
@pytest.mark.parametrize("noise", [0, 6])
def test_blank_and_uniform_pages_are_never_candidates(shade, noise):
    rng = np.random.default_rng(1)
    page = np.clip(np.rint(shade + rng.normal(0, noise, (800, 600))), 0, 255).astype(np.uint8)
    look = fingerprint(page)
    assert not look.is_distinctive
    assert look.sketch is None
    ruled = page.copy()
    ruled[400:402] = 255 - shade
    assert not fingerprint(ruled).is_distinctive


def test_a_grey_page_in_three_channels_is_sketched_grey_but_is_not_the_grey_page():
    grey = invoice(1).print(100)
    colour = np.repeat(grey[:, :, None], 3, axis=2)
    first, second = fingerprint(grey), fingerprint(colour)
    assert first.digest != second.digest
    assert not second.sketch.is_colour
    assert hamming(first.dhash256, second.dhash256) == 0
    tinted = colour.copy()
    tinted[100:140, 100:140, 2] = 90
    assert fingerprint(tinted).sketch.is_colour


@given(shapes.map(lambda shape: (shape[0] * 9, shape[1] * 7)), st.booleans())
def test_a_page_of_any_size_has_a_fingerprint_and_a_sketch_of_its_size(shape, is_colour):
    rng = np.random.default_rng(shape[0] * 1000 + shape[1])
    page = rng.integers(0, 2, (*shape, 3) if is_colour else shape, dtype=np.uint8) * 255
    look = fingerprint(page)
    assert len(look.digest) == 32 and len(look.dhash64) == 8 and len(look.dhash256) == 32
    if look.sketch is not None:
        assert look.sketch.decode().shape[:2] == shape
        again = Sketch.from_jpeg(look.sketch.jpeg, is_colour=look.sketch.is_colour)
        assert (again.width, again.height) == (shape[1], shape[0])


def test_a_damaged_sketch_says_so():
    with pytest.raises(ValueError):
        Sketch.from_jpeg(b"\xff\xd8 nothing", is_colour=False)
    with pytest.raises(ValueError):
        Sketch.from_jpeg(b"", is_colour=True)
