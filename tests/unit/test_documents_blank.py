"""Blank pages are called blank, pages with one small number are not, and ghosts are suspect."""

import numpy as np
import pytest
from documents_kit import sentences, written
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmcli.documents.blank import inspect, is_blank

SIZE = (1754, 1240)


def paper(level=245, noise=4.0, seed=0):
    """Scanned empty paper, A4 at 150 dpi."""
    random = np.random.default_rng(seed)
    return np.clip(random.normal(level, noise, SIZE), 0, 255).astype(np.uint8)


def ruled(kind):
    page = paper().copy()
    if kind in ("lines", "grid"):
        for y in range(150, 1700, 60):
            page[y : y + 2, 90:-90] = 130
    if kind in ("columns", "grid"):
        page[90:-90, 100::90] = 130
        page[90:-90, 101::90] = 130
    if kind == "dotted":
        for y in range(150, 1700, 60):
            page[y : y + 3, 90:-90:12] = 60
    return page


@pytest.mark.parametrize("kind", ["lines", "columns", "grid", "dotted"])
def test_ruled_paper_is_blank(kind):
    assert is_blank(ruled(kind))


@settings(max_examples=12)
@given(level=st.integers(0, 255), noise=st.floats(0, 10), seed=st.integers(0, 99))
def test_paper_of_any_shade_and_grain_is_blank(level, noise, seed):
    assert is_blank(paper(level, noise, seed))


def test_specks_and_blotches_are_blank():
    random = np.random.default_rng(0)
    specks = random.random((2339, 1654))
    page = np.full(specks.shape, 245, np.uint8)
    page[specks < 0.015] = 0
    assert is_blank(page)
    coarse = random.normal(0, 1, (SIZE[0] // 12, SIZE[1] // 12))
    blotches = np.kron(coarse, np.ones((12, 12))) * 8 + 238
    assert is_blank(np.clip(blotches, 0, 255).astype(np.uint8))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 255))
def test_tiny_pictures_do_not_crash(width, height, level):
    assert is_blank(np.full((height, width), level, np.uint8))


def test_scanner_edges_shadows_and_dust_are_blank():
    page = paper().copy()
    page[:, :35] = 12
    page[:24] = 20
    page[-20:, 300:900] = 90
    random = np.random.default_rng(3)
    for y, x in random.integers(60, 1200, (25, 2)):
        page[y : y + 3, x : x + 3] = 40
    across = np.linspace(0, -60, SIZE[1])
    page = np.clip(page + across, 0, 255).astype(np.uint8)
    assert is_blank(page)


@pytest.mark.parametrize("number", ["1", "7", "12", "iv", "308", "- 3 -"])
@pytest.mark.parametrize("height", [19, 27])
@pytest.mark.parametrize("ink", [20, 110])
def test_a_page_with_a_folio_is_not_blank(number, height, ink):
    page = written([number], size=SIZE[::-1], height=height, left=600, top=1650, ink=ink)
    noisy = np.clip(page - 10 + np.random.default_rng(0).normal(0, 3, SIZE), 0, 255)
    report = inspect(noisy.astype(np.uint8))
    assert not report.is_blank
    assert not report.is_low_contrast


def ghost(contrast):
    ink = 255.0 - written(sentences(40), size=SIZE[::-1], height=24)[:, ::-1]
    shade = 246 - contrast * ink + np.random.default_rng(0).normal(0, 3, SIZE)
    return np.clip(shade, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("contrast", [0.1, 0.12, 0.18])
def test_show_through_is_suspect_and_not_blank(contrast):
    report = inspect(ghost(contrast))
    assert not report.is_blank
    assert report.is_low_contrast


def test_print_over_show_through_is_not_suspect():
    page = np.minimum(ghost(0.12), written(sentences(10), size=SIZE[::-1], height=24))
    assert not inspect(page).is_low_contrast


def test_white_print_on_black_is_not_blank():
    assert not is_blank(255 - written(sentences(3), size=SIZE[::-1], height=24))
