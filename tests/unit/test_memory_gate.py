"""The gate refuses what cannot fit, plans again for what is larger, and names what is too large."""

import re
import shlex
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_cases import A4, Page, a4_pages

from vlmcli.errors import PageError, WillNotFitError
from vlmcli.memory.gate import MemoryGate, NeedsModel
from vlmcli.memory.request import Planner, PlanRequest, make_planner
from vlmcli.options import parse_size

MIB = 1 << 20
READ = {
    "max_memory": parse_size,
    "jobs": int,
    "max_pixels": int,
    "vision_cache": parse_size,
    "dtype": str,
}
"""Options that a remedy for `ocr` may name, and how their values are read."""
STAMP = Page(1, 90, 60)
POSTER = Page(1, 2384, 3370)


def planner(cap: int, *, needs_model: bool = True, **request: object) -> Planner:
    return make_planner(
        PlanRequest(inputs=("a.pdf",), max_memory=cap, **{"jobs": 2, **request}),
        needs_model=needs_model,
    )


def gate(cap: int, needs: NeedsModel = "always", **request: object) -> MemoryGate:
    return MemoryGate(planner(cap, needs_model=needs != "never", **request), needs)


def least(pages: list[Page], **request: object) -> int:
    return planner(1 << 60, **request).plan(pages).minimum_bytes


def test_a_job_that_fits_gets_bounds_within_its_cap() -> None:
    one = gate(8 << 30)
    one.add(a4_pages(20))
    budgets = one.open()
    assert one.plan is not None and one.plan.peak_bytes <= one.cap_bytes
    assert budgets == one.require_fit() == one.plan.budgets
    assert budgets.jobs == 2


def test_a_job_that_does_not_fit_is_refused_with_lines_to_paste() -> None:
    pages = a4_pages(20)
    cap = least(pages) - 5 * MIB
    one = gate(cap)
    one.add(pages)
    with pytest.raises(WillNotFitError) as caught:
        one.open()
    lines = [note.strip() for note in caught.value.__notes__]
    commands = [line for line in lines if line.startswith("vlmcli ocr a.pdf")]
    assert commands
    for command in commands:
        words = shlex.split(command)[3:]
        options = dict(zip(words[::2], words[1::2], strict=True))
        assert options.keys() <= {
            "--max-memory",
            "--jobs",
            "--max-pixels",
            "--vision-cache",
            "--dtype",
        }
        changed = {
            name.removeprefix("--").replace("-", "_"): value for name, value in options.items()
        }
        numbers = {
            "max_pixels": int,
            "jobs": int,
            "vision_cache": parse_size,
            "max_memory": parse_size,
        }
        request = {name: numbers.get(name, str)(value) for name, value in changed.items()}
        again = MemoryGate(make_planner(PlanRequest(inputs=("a.pdf",), **request)), "always")
        again.add(pages)
        again.open()


@pytest.mark.parametrize("needs", ["always", "perhaps", "never"])
def test_the_cap_that_a_refusal_names_is_enough(needs: NeedsModel) -> None:
    """Even where not one page can be drawn: or the next refusal would name another figure."""
    pages = a4_pages(2)
    one = gate(10 * MIB, needs, jobs=1)
    one.add(pages)
    with pytest.raises(WillNotFitError, match="drawing the pages") as caught:
        one.open()
    caps = [int(word) for word in re.findall(r"(\d+)MiB", caught.value.remedy)]
    assert len(caps) == (2 if needs == "perhaps" else 1)
    again = gate(caps[0] * MIB, needs, jobs=1)
    again.add(pages)
    again.open()
    if needs != "never":
        again.require_fit()


def test_where_pages_only_may_need_the_model_the_first_one_that_does_is_refused() -> None:
    pages = a4_pages(3)
    one = gate(least(pages) - 5 * MIB, "perhaps")
    one.add(pages)
    one.open()
    with pytest.raises(WillNotFitError, match="does not fit"):
        one.require_fit()


def test_a_job_without_a_model_is_not_refused_for_one() -> None:
    pages = [*a4_pages(3), POSTER]
    cap = least(pages) // 2
    one = gate(cap, "never")
    one.add(pages)
    assert one.open().jobs == 2
    with pytest.raises(WillNotFitError):
        gate(100 * MIB, "never").measuring_jobs()


def test_no_more_workers_measure_than_fit() -> None:
    floor = gate(1 << 40)
    assert floor.measuring_jobs() == 2
    worker = planner(1 << 40).settings.weigh(None).worker_bytes
    for cap in range(150 * MIB, 400 * MIB, 7 * MIB):
        jobs = gate(cap, jobs=8).measuring_jobs()
        assert 40 * MIB + jobs * worker <= cap
        assert jobs >= 1


def test_smaller_pages_are_covered_and_a_larger_one_is_planned_anew() -> None:
    one = gate(8 << 30)
    one.add(a4_pages(2))
    small = one.open()
    assert one.covers([STAMP, *a4_pages(5)])
    assert not one.covers([STAMP, POSTER])
    large = one.extend([STAMP, POSTER])
    assert one.covers([POSTER, *a4_pages(1)])
    assert large.worker_bytes > small.worker_bytes
    assert large.reader_bytes >= small.reader_bytes
    one.require_page(POSTER)


def test_a_later_page_that_cannot_fit_alone_is_named_and_the_others_go_on() -> None:
    cap = least([POSTER]) - MIB
    one = gate(cap)
    one.add([STAMP])
    one.open()
    assert not one.covers([POSTER])
    one.extend([POSTER, STAMP])
    with pytest.raises(PageError, match="does not fit into") as caught:
        one.require_page(POSTER)
    assert caught.value.code == "too-large"
    one.require_page(STAMP)
    assert one.covers([POSTER]), "it is known by now, and planned again no more"
    assert one.require_fit()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.builds(Page, st.integers(1, 9), st.floats(40, 2400), st.floats(40, 2400)),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 7),
    st.integers(420, 900),
)
def test_whatever_comes_the_plan_stays_under_the_cap(
    pages: list[Page], first: int, cap: int
) -> None:
    one = gate(cap * MIB, "perhaps")
    one.add(pages[:first])
    try:
        one.open()
        one.require_fit()
    except WillNotFitError:
        return
    for page in pages[first:]:
        if not one.covers([page]):
            one.extend([page])
        assert one.plan is not None and one.plan.peak_bytes <= one.cap_bytes


def test_pages_the_model_cannot_take_are_drawn_all_the_same() -> None:
    one = MemoryGate(
        make_planner(
            PlanRequest(inputs=("a.pdf",), model="qwen2.5-vl-3b", max_memory=64 << 30, jobs=1)
        ),
        "perhaps",
    )
    strip = Page(1, 4000, 8)
    one.add([strip, Page(2, *A4)])
    one.open()
    assert one.demand(strip).worker_bytes > 0
    assert one.demand(strip).visual_tokens == 0
    assert one.covers([replace(strip, number=3)])
