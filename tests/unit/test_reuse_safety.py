"""The safety set: pages that differ in one sign never pass for one another, rescans mostly do.

Texts of 8 to 12 points at 150 and 200 dpi in four fonts. A wrong acceptance is a wrong text, so the
bar is none; a refused rescan costs one reading.
"""

import itertools
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from reuse_pages import (
    FONTS,
    Sheet,
    form,
    invoice,
    receipt,
    scan,
    with_minus,
    with_moved_point,
    with_other_digit,
    with_other_tick,
)

from vlmcli.results import PageRecord
from vlmcli.reuse.decide import PageReuse
from vlmcli.reuse.difference import Difference, compare
from vlmcli.reuse.fingerprint import fingerprint
from vlmcli.reuse.recent import PageRef, RecentPages

STYLES = list(itertools.product(FONTS, ((8, 150), (10, 150), (9, 200), (12, 200))))
CHANGES = {
    "digit": (invoice, with_other_digit),
    "point": (invoice, with_moved_point),
    "minus": (invoice, with_minus),
    "tick": (form, with_other_tick),
}


def difference(first: np.ndarray, second: np.ndarray) -> Difference:
    sketches = [fingerprint(pixels).sketch for pixels in (first, second)]
    assert all(sketches)
    return compare(*sketches)


def run_job(sheets: list[Sheet], rng: np.random.Generator, *, noise: float) -> Counter:
    """Decide page by page as a job does; the text of a page stands for its sheet."""
    # Few recent pages: enough for three candidates each, and a test that ends.
    reuse = PageReuse(mode="verified", recipe=b"r" * 32, recent=RecentPages(1 << 20))
    kinds = Counter()
    for number, sheet in enumerate(sheets, 1):
        pixels = sheet.print(150)
        if noise:
            pixels = scan(pixels, rng, noise=noise, shift=1, skew=0.1)
        page = PageRef(
            key=number, document="a", page=number, place=None, fingerprint=fingerprint(pixels)
        )
        decision = reuse.decide(page)
        own = PageRecord(document="a", page=number, pages=len(sheets), status="ok", text=str(sheet))
        if decision.is_read:
            reuse.finish(page, own)
        else:
            assert reuse.adopt(page, decision, own).text == own.text, (number, decision)
        kinds[decision.kind] += 1
    assert reuse.num_compared >= len(sheets) / 2, "the pages were not even compared"
    return kinds


@pytest.mark.parametrize("noise", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_no_two_of_two_hundred_invoices_are_confused(noise):
    rng = random.Random(1)
    first = invoice(1, size=9)
    sheets = [first, *(with_other_digit(first, rng) for _ in range(60 if noise else 199))]
    kinds = run_job(sheets, np.random.default_rng(1), noise=noise)
    assert kinds["draft"] >= 0.7 * len(sheets)


def test_no_two_of_a_hundred_forms_are_confused():
    rng = random.Random(2)
    sheets = [form(2, size=10)]
    while len(sheets) < 100:
        sheets.append(with_other_tick(sheets[-1], rng))
    run_job(sheets, np.random.default_rng(2), noise=3)


def test_receipts_with_other_totals_are_not_confused():
    rng = random.Random(3)
    totals = [f"{rng.randrange(100, 999)}.{rng.randrange(100):02d}" for _ in range(20)]
    sheets = [receipt(3, total, size=9) for total in totals]
    run_job(sheets, np.random.default_rng(3), noise=5)


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("noise", [0, 3, 6])
def test_one_changed_mark_is_refused_however_the_page_was_scanned(kind, noise):
    make, change = CHANGES[kind]
    rng, scanner = random.Random(f"{kind} {noise}"), np.random.default_rng(noise)
    for number, (font, (size, dpi)) in enumerate(STYLES):
        sheet = make(number, font=font, size=size)
        move = number % 2
        first = scan(sheet.print(dpi), scanner, noise=noise, shift=0, skew=0)
        other = change(sheet, rng).print(dpi)
        second = scan(other, scanner, noise=noise, shift=3 * move, skew=0.3 * move)
        found = difference(first, second)
        assert not found.is_same, (font, size, dpi, move, found)
        if 0 < found.limit < 1:
            # The full comparison judged, so it must have done so by a wide margin.
            assert found.excess > 2 * found.limit, (font, size, dpi, move, found)


@pytest.mark.parametrize("depth", [16, 32])
def test_a_faint_stamp_is_refused_on_either_side(depth):
    scanner = np.random.default_rng(depth)
    for number, (font, (size, dpi)) in enumerate(STYLES[::2]):
        sheet = invoice(number, font=font, size=size)
        noise = (0, 3, 6)[number % 3]
        stamped = replace(sheet, stamp=("PAID", depth))
        pair = [scan(page.print(dpi), scanner, noise=noise) for page in (sheet, stamped)]
        assert not difference(*pair).is_same, (font, size, dpi, noise)
        assert not difference(*reversed(pair)).is_same, (font, size, dpi, noise)


def test_the_ghost_of_another_page_is_refused():
    scanner = np.random.default_rng(12)
    front, back = invoice(1, size=10).print(150), invoice(2, size=10).print(150)
    ghost = (255 - 0.12 * (255.0 - back[:, ::-1])).astype(np.uint8)
    shown = np.minimum(front, ghost)
    assert not difference(scan(front, scanner, noise=3), scan(shown, scanner, noise=3)).is_same


def test_pages_whose_text_is_too_small_to_judge_are_refused():
    page = invoice(1, size=4).print(100)
    assert not difference(page, scan(page, np.random.default_rng(0), noise=6)).is_same


def test_colours_of_equal_grey_are_compared():
    page = np.repeat(invoice(1, size=12).print(150)[:, :, None], 3, axis=2)
    page[200:260, 100:300] = (90, 140, 90)
    other = page.copy()
    # A red of the same grey: a figure on a ground that only colour tells from it.
    other[215:245, 150:170] = (188, 90, 90)
    sketches = [fingerprint(pixels).sketch for pixels in (page, page.copy(), other)]
    assert compare(sketches[0], sketches[1]).is_same
    assert not compare(sketches[0], sketches[2]).is_same


@pytest.mark.parametrize("fill", [255, 0])
def test_nine_rescans_in_ten_are_recognised(fill):
    scanner = np.random.default_rng(0)
    verdicts = []
    for number, (font, (size, dpi)) in enumerate(STYLES * 2):
        page = (invoice, form)[number % 2](number, font=font, size=size).print(dpi)
        noise = (0, 2, 4, 6)[number % 4]
        pair = [
            scan(page, scanner, noise=noise, shift=0, skew=0),
            scan(page, scanner, noise=noise, fill=fill),
        ]
        verdicts.append(difference(*pair).verdict)
    assert verdicts.count("same") >= 0.9 * len(verdicts), verdicts
