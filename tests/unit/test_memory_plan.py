"""Plans: monotone, consistent with their terms, and with remedies that do what they say."""

import json
import shlex
from dataclasses import replace

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from memory_cases import A4, FACTS, Page, a4_pages, facts, pages, settings

from vlmcli.memory.demand import measure_pages
from vlmcli.memory.estimate import kv_bytes_per_token
from vlmcli.memory.plan import plan_job
from vlmcli.memory.remedies import CommandLine, plan_with_remedies
from vlmcli.memory.settings import PlanSettings, nearest_rank
from vlmcli.memory.terms import peak, useful_loads
from vlmcli.options import parse_size

GIB = 1 << 30
caps = st.integers(0, 200 * GIB)
QWEN = FACTS["qwen2.5-vl-7b"]
CUDA = PlanSettings(device="cuda")
OCR = CommandLine(words=("vlmcli", "ocr", "a.pdf"))


@given(pages, facts, settings, caps)
def test_terms_add_up_and_the_choice_is_the_largest_that_fits(pages, facts, settings, cap) -> None:
    plan = plan_job(pages, facts, settings, cap)
    assert sum(plan.terms.values()) == plan.peak_bytes
    assert all(value >= 0 for value in plan.terms.values())
    assert plan.fits == (plan.peak_bytes <= cap)
    swap = min(256 << 20, plan.terms["kv"]) if settings.device == "cuda" else 0
    assert plan.budgets.swap_bytes == swap <= plan.host_bytes
    assert plan.budgets.graph_bytes == plan.terms["graph_pool"]
    assert (plan.budgets.graph_bytes > 0) == (settings.device == "cuda")
    assert 1 <= plan.pages_in_flight <= plan.max_pages_in_flight
    assert plan.minimum_bytes <= plan.peak_bytes
    if not plan.fits:
        assert plan.pages_in_flight == 1
    elif plan.pages_in_flight < plan.max_pages_in_flight:
        one_more = replace(settings, max_pages_in_flight=plan.pages_in_flight + 1)
        forced = plan_job(pages, facts, one_more, 1 << 60)
        assert forced.pages_in_flight == plan.pages_in_flight + 1
        assert forced.peak_bytes > cap
    json.dumps(plan.to_dict())


@given(pages, pages, facts, settings)
def test_more_pages_never_take_less(some, more, facts, settings) -> None:
    roomy = 1 << 60
    few = plan_job(some, facts, settings, roomy)
    many = plan_job([*some, *more], facts, settings, roomy)
    assert few.peak_bytes <= many.peak_bytes
    assert few.visual_tokens.total <= many.visual_tokens.total


@given(pages, facts, settings, caps, st.integers(0, 50 * GIB))
def test_a_larger_cap_never_means_fewer_pages(pages, facts, settings, cap, more) -> None:
    tight, wide = (plan_job(pages, facts, settings, c) for c in (cap, cap + more))
    assert tight.pages_in_flight <= wide.pages_in_flight
    assert tight.fits <= wide.fits


@given(pages, facts, settings, st.integers(1, 4000))
def test_more_output_tokens_never_take_less(pages, facts, settings, more) -> None:
    tokens = settings.max_tokens or 500
    few, many = (
        plan_job(pages, facts, replace(settings, max_tokens=n), 1 << 60)
        for n in (tokens, tokens + more)
    )
    assert few.peak_bytes <= many.peak_bytes


@given(st.integers(1, 5), settings, st.sampled_from(["qwen2.5-vl-7b", "internvl3-8b", "dots.ocr"]))
def test_larger_pages_of_one_shape_never_take_less_in_the_workers(scale, settings, name) -> None:
    small, large = (
        plan_job([Page(1, *(side * n for side in A4))], FACTS[name], settings, 1 << 60)
        for n in (scale, scale + 1)
    )
    assert small.budgets.worker_bytes <= large.budgets.worker_bytes * 1.02


@hypothesis_settings(max_examples=60)
@given(pages, facts, settings, st.floats(0.3, 0.999))
def test_remedies_fit_when_they_are_planned_again(pages, facts, settings, share) -> None:
    least = plan_job(pages, facts, settings, 0).minimum_bytes
    cap = int(least * share)
    plan = plan_with_remedies(pages, facts, settings, cap, OCR)
    assert not plan.fits
    assert plan.remedies
    for remedy in plan.remedies:
        words = shlex.split(remedy.command)
        assert words[:3] == ["vlmcli", "ocr", "a.pdf"]
        changed, changed_cap = settings, cap
        for option, value in zip(words[3::2], words[4::2], strict=True):
            if option == "--max-memory":
                changed_cap = parse_size(value)
            else:
                key = option.removeprefix("--").replace("-", "_")
                number = {"max_pixels": int, "vision_cache": parse_size}.get(key, str)
                changed = replace(changed, **{key: number(value)})
        again = plan_job(pages, facts, changed, changed_cap)
        assert again.fits
        assert again.peak_bytes == remedy.peak_bytes or "--max-memory" in words


@hypothesis_settings(max_examples=60)
@given(pages, facts, settings, st.floats(0.3, 0.999))
def test_no_remedy_gives_up_what_another_one_keeps(pages, facts, settings, share) -> None:
    cap = int(plan_job(pages, facts, settings, 0).minimum_bytes * share)
    remedies = plan_with_remedies(pages, facts, settings, cap, OCR).remedies
    given_up = [frozenset(shlex.split(remedy.command)[3::2]) for remedy in remedies]
    for one in given_up:
        assert sum(other <= one for other in given_up) == 1


def test_pixels_are_given_up_as_little_as_possible() -> None:
    pages = a4_pages(3)
    cap = int(plan_job(pages, QWEN, CUDA, 0).minimum_bytes - 40 * 2**20)
    remedy = plan_with_remedies(pages, QWEN, CUDA, cap, OCR).remedies[0]
    pixels = int(remedy.command.rsplit(" ", 1)[1])
    more = replace(CUDA, max_pixels=round(pixels * 1.06))
    assert plan_job(pages, QWEN, more, cap).minimum_bytes > cap


def test_the_cache_is_given_up_as_little_as_possible() -> None:
    small = replace(CUDA, vision_cache=8 * GIB)  # far more than the pages can fill
    least = plan_job(a4_pages(3), QWEN, small, 0)
    cap = least.minimum_bytes - 40 * 2**20
    remedies = plan_with_remedies(a4_pages(3), QWEN, small, cap, OCR).remedies
    (size,) = (
        parse_size(remedy.command.rsplit(" ", 1)[1])
        for remedy in remedies
        if "--vision-cache" in remedy.command
    )
    assert least.terms["vision_cache"] - 41 * 2**20 <= size < least.terms["vision_cache"]


def test_a_changed_option_replaces_the_given_one() -> None:
    line = CommandLine(words=("vlmcli", "ocr", "my scan.pdf"), options={"--dpi": "300", "-m": "x"})
    assert line.changed({"--dpi": "150"}) == "vlmcli ocr 'my scan.pdf' --dpi 150 -m x"


def test_a_job_that_no_setting_saves_says_what_it_takes() -> None:
    plan = plan_with_remedies(a4_pages(1), QWEN, CUDA, 8 * GIB, OCR)
    (remedy,) = plan.remedies
    assert "more memory" in remedy.description
    assert parse_size(remedy.command.rsplit(" ", 1)[1]) >= plan.minimum_bytes


def test_tokens_of_mixed_pages_name_the_largest() -> None:
    pages = [*a4_pages(98), Page(99, 1684, 2384), Page(100, 72, 72)]
    tokens = plan_job(pages, QWEN, CUDA, 1 << 60).visual_tokens
    assert (tokens.min, tokens.median, tokens.p95) == (49, 4956, 4956)
    assert tokens.max_page == "a.pdf, page 99"
    assert 16_000 < tokens.max <= 12_845_056 / 28**2
    assert tokens.total == 98 * 4956 + tokens.min + tokens.max
    assert not tokens.estimated


def test_pages_that_no_model_takes_are_named() -> None:
    pages = [*a4_pages(1), Page(2, 4000, 10)]
    plan = plan_job(pages, QWEN, CUDA, 1 << 60)
    assert plan.unreadable_pages == ("a.pdf, page 2",)
    assert plan.num_pages == 2
    nothing = plan_job(pages[1:], QWEN, CUDA, 1 << 60)
    assert nothing.visual_tokens.total == 0
    assert nothing.fits


def test_int8_vision_kv_lets_more_pages_in() -> None:
    pages = a4_pages(40)
    cap = 24 * GIB
    counts = [
        plan_job(pages, QWEN, replace(CUDA, max_pages_in_flight=40, **change), cap).pages_in_flight
        for change in ({}, {"vision_kv_dtype": "int8"}, {"kv_dtype": "int8"})
    ]
    assert counts == sorted(set(counts))


def test_nearest_rank_is_a_value_of_the_list() -> None:
    values = list(range(1, 101))
    assert nearest_rank(values, 0.5) == 50
    assert nearest_rank(values, 0.95) == 95
    assert nearest_rank([7], 0.95) == 7


def test_five_hundred_sizes_are_planned_without_delay() -> None:
    pages = [Page(n, 300 + n, 841.89) for n in range(500)]
    calls = []
    original = QWEN.measure

    def measure(width, height):
        calls.append((width, height))
        return original(width, height)

    facts = replace(QWEN, measure=measure)
    plan_with_remedies([*pages, *pages], facts, CUDA, 12 * GIB, OCR)
    assert len(calls) < 60 * 500, "each size is measured a few dozen times at the most"


@given(
    pages,
    facts,
    settings,
    st.integers(0, 400),
    st.sampled_from([("float32", "int8"), ("bfloat16", "int8"), ("int8", "bfloat16")]),
)
def test_image_blocks_of_their_own_format_find_room_wherever_the_image_begins(
    pages, facts, settings, offset, dtypes
) -> None:
    text, vision = dtypes
    settings = replace(settings, kv_dtype=text, vision_kv_dtype=vision)
    budgets = plan_job(pages, facts, settings, 1 << 60).budgets
    size = settings.block_size
    text_bytes, vision_bytes = (
        size * kv_bytes_per_token(facts.decoder, dtype) for dtype in (text, vision)
    )
    num_vision = budgets.vision_kv_bytes // vision_bytes - 1
    num_text = (budgets.kv_cache_bytes - budgets.vision_kv_bytes) // text_bytes - 1
    for demand in measure_pages(pages, facts, settings).demands:
        tokens = demand.vision_positions
        offset = min(offset, demand.most_positions - tokens)
        whole = max(0, (offset + tokens) // size - -(-offset // size))
        assert whole <= num_vision
        assert -(-demand.most_positions // size) - whole <= num_text
    same = replace(settings, kv_dtype="int8", vision_kv_dtype="auto")
    assert plan_job(pages, facts, same, 1 << 60).budgets.vision_kv_bytes == 0


@given(pages, facts, settings)
def test_loads_take_more_one_after_the_other(some, facts, settings) -> None:
    """Waiting in turn had a margin of more than what a small page takes that is drawn meanwhile."""
    job = measure_pages(some, facts, replace(settings, device="cpu"))
    peaks = [peak(job, load) for load in useful_loads(job)]
    assert peaks == sorted(peaks)
    smallest = measure_pages([Page(1, 40, 40)], facts, replace(settings, device="cpu"))
    assert peak(smallest, useful_loads(smallest)[0]) <= peak(smallest, useful_loads(smallest)[-1])
