"""Decisions: each page gets the best proven answer, and nothing unproven counts as an answer."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reuse_pages import invoice, scan, with_other_digit

from vlmcli.bench.pages import page_picture
from vlmcli.results import ErrorInfo, Line, PageRecord, Reuse, ReuseOrigin, TokenCounts
from vlmcli.reuse.decide import Decision, PageReuse
from vlmcli.reuse.entries import Place
from vlmcli.reuse.fingerprint import PageFingerprint, exact_digest, fingerprint
from vlmcli.reuse.recent import PageRef, RecentPages
from vlmcli.reuse.store import ResultStore

RECIPE = b"r" * 32
OTHER_RECIPE = b"s" * 32


def ref(number: int, look: PageFingerprint, document: str = "a.pdf") -> PageRef:
    place = Place(document=f"/home/{document}", page=number)
    return PageRef(key=number, document=document, page=number, place=place, fingerprint=look)


def record_of(page: PageRef, text: str = "", **fields) -> PageRecord:
    fields = {"status": "ok", "source": "model", "model": "nano@1", "attempts": 1} | fields
    return PageRecord(
        document=page.document,
        page=page.page,
        pages=9,
        text=text or f"text of {page.document} {page.page}",
        width=600,
        height=400,
        **fields,
    )


def failed(page: PageRef) -> PageRecord:
    return record_of(page, status="looped", error=ErrorInfo(code="looped", message="again"))


def plain(seed: int) -> PageFingerprint:
    """A fingerprint without a likeness: what exact reuse alone works with."""
    digest = exact_digest(np.random.default_rng(seed).integers(0, 256, (8, 8), dtype=np.uint8))
    return PageFingerprint(
        digest=digest, dhash64=bytes(8), dhash256=bytes(32), is_distinctive=False
    )


def read(reuse: PageReuse, page: PageRef, text: str = "") -> PageRecord:
    decision = reuse.decide(page)
    assert decision.is_read
    record = record_of(page, text, reuse=decision.reuse)
    assert reuse.finish(page, record) == []
    return record


@pytest.fixture(scope="module")
def looks():
    """A page, a rescan of it, and a scan of the page with one other digit."""
    rng = np.random.default_rng(3)
    sheet = invoice(3, size=10)
    other = with_other_digit(sheet, random.Random(3))
    pages = [sheet.print(150), sheet.print(150), other.print(150)]
    return [fingerprint(scan(page, rng, noise=3)) for page in pages]


def test_same_pixels_are_read_once():
    reuse = PageReuse(mode="exact", recipe=RECIPE)
    first, second = ref(1, plain(1)), ref(2, plain(1))
    record = read(reuse, first)
    decision = reuse.decide(second)
    assert (decision.kind, decision.verified_by, decision.record) == ("exact", "sha256", record)
    assert decision.origin == ReuseOrigin(document="a.pdf", page=1)
    assert reuse.decide(ref(3, plain(2))).kind == "none"


def test_a_copy_of_a_page_in_flight_waits_for_it():
    reuse = PageReuse(mode="verified", recipe=RECIPE)
    first, copies = ref(1, plain(1)), [ref(number, plain(1)) for number in (2, 3, 4)]
    assert reuse.decide(first).is_read
    for copy in copies:
        decision = reuse.decide(copy)
        assert not decision.is_read and decision.record is None
    record = record_of(first)
    released = reuse.finish(first, record)
    assert [page.page for page, _ in released] == [2, 3, 4]
    assert all(decision.record == record and decision.kind == "exact" for _, decision in released)


def test_who_waited_for_a_page_that_failed_is_read_in_its_stead():
    reuse = PageReuse(mode="verified", recipe=RECIPE)
    first, copies = ref(1, plain(1)), [ref(number, plain(1)) for number in (2, 3, 4)]
    reuse.decide(first)
    for copy in copies:
        reuse.decide(copy)
    released = reuse.finish(first, failed(first))
    assert [(page.page, decision.kind) for page, decision in released] == [(2, "none")]
    again = reuse.finish(copies[0], record_of(copies[0]))
    assert [(page.page, decision.origin.page) for page, decision in again] == [(3, 2), (4, 2)]


def test_a_rescan_is_verified_and_a_changed_page_is_a_draft(looks):
    reuse = PageReuse(mode="verified", recipe=RECIPE)
    original, rescan, changed = (ref(number, look) for number, look in enumerate(looks, 1))
    record = read(reuse, original)
    decision = reuse.decide(rescan)
    assert (decision.kind, decision.verified_by) == ("verified", "pixel-diff")
    assert decision.record == record
    decision = reuse.decide(changed)
    assert (decision.kind, decision.verified_by) == ("draft", "model")
    assert decision.draft == record and decision.is_read


def test_a_page_of_the_same_layout_and_other_text_lends_none():
    rng = np.random.default_rng(4)
    reuse = PageReuse(mode="verified", recipe=RECIPE)
    for number in range(1, 5):
        look = fingerprint(scan(page_picture(number, width=300, height=210, lines=9), rng, noise=3))
        page = ref(number, look)
        assert reuse.decide(page).kind == "none", number
        reuse.finish(page, record_of(page))


def test_what_was_at_a_page_s_place_lends_its_text_unless_it_is_another_page(tmp_path):
    picture = page_picture(1, width=300, height=210, lines=9)
    patches = np.random.default_rng(0).integers(0, 255, (11, 16), dtype=np.uint8)
    photograph = np.kron(patches, np.ones((40, 40), np.uint8))
    looks = [fingerprint(picture), fingerprint(photograph)]
    with ResultStore(tmp_path) as store:
        old = read(PageReuse(mode="verified", recipe=RECIPE, store=store), ref(1, looks[0]))
    with ResultStore(tmp_path) as store:
        reuse = PageReuse(mode="verified", recipe=OTHER_RECIPE, store=store)
        same, other = reuse.decide(ref(1, looks[0])), reuse.decide(ref(1, looks[1]))
    assert (same.kind, same.draft) == ("draft", old)
    assert other.kind == "none"
    assert reuse.num_other_recipe == 1


@pytest.mark.parametrize("mode", ["off", "exact"])
def test_likeness_counts_for_nothing_in_the_strict_modes(looks, mode):
    reuse = PageReuse(mode=mode, recipe=RECIPE, drafts=False)
    first = ref(1, looks[0])
    reuse.decide(first)
    reuse.finish(first, record_of(first))
    assert reuse.decide(ref(2, looks[1])) == Decision()
    assert reuse.decide(ref(3, looks[0])).kind == ("none" if mode == "off" else "exact")


def test_lossy_reuse_is_opt_in_marked_and_warned_of_once(looks):
    warnings = []
    reuse = PageReuse(mode="similar", recipe=RECIPE, on_warning=warnings.append)
    first, changed = ref(1, looks[0]), ref(2, looks[2])
    read(reuse, first)
    decision = reuse.decide(changed)
    assert (decision.kind, decision.verified_by) == ("similar", None)
    reuse.decide(ref(3, looks[2]))
    assert len(warnings) == 1
    assert reuse.adopt(changed, decision, record_of(changed)).reuse.kind == "similar"


def test_proven_pages_are_no_ground_for_further_proofs(looks):
    reuse = PageReuse(mode="verified", recipe=RECIPE, drafts=False)
    original, rescan = ref(1, looks[0]), ref(2, looks[1])
    read(reuse, original)
    decision = reuse.decide(rescan)
    adopted = reuse.adopt(rescan, decision, record_of(rescan, "never seen"))
    assert adopted.text == decision.record.text and adopted.reuse.kind == "verified"
    copy = reuse.decide(ref(3, looks[1]))
    assert (copy.kind, copy.origin.page, copy.verified_by) == ("verified", 1, "pixel-diff")
    names = [other.page.page for other in reuse.recent.nearest(looks[1], 256, 9)]
    assert names == [1]


def test_an_adopted_record_keeps_its_own_identity_and_moves_the_lines(looks):
    reuse = PageReuse(mode="verified", recipe=RECIPE)
    original, rescan = ref(1, looks[0]), ref(7, looks[1], "b.pdf")
    reuse.decide(original)
    lines = (Line(bbox=(100, 100, 200, 120), text="42.00", confidence=0.9),)
    tokens = TokenCounts(output=9, prompt=4)
    source = record_of(original, lines=lines, tokens=tokens, suspect=("low-contrast",))
    reuse.finish(original, source)
    decision = reuse.decide(rescan)
    own = record_of(rescan, "unused", suspect=("tiny",))
    taken = reuse.adopt(rescan, decision, own)
    assert (taken.document, taken.page, taken.source) == ("b.pdf", 7, "reuse")
    assert taken.reuse.origin == ReuseOrigin(document="a.pdf", page=1)
    assert taken.text == source.text and taken.suspect == ("tiny", "low-contrast")
    assert taken.tokens == TokenCounts() and taken.attempts == 0
    # The motion maps the rescan to the original, so the moved corner must come back to the old one.
    corner = decision.motion.matrix @ [*taken.lines[0].bbox[:2], 1]
    assert np.abs(corner - [100, 100]).max() <= 2


def test_earlier_runs_answer_and_say_so(tmp_path, looks):
    with ResultStore(tmp_path) as store:
        reuse = PageReuse(mode="verified", recipe=RECIPE, store=store)
        first = read(reuse, ref(1, looks[0]))
        rescan = ref(2, looks[1])
        reuse.adopt(rescan, reuse.decide(rescan), record_of(rescan))
    with ResultStore(tmp_path) as store:
        again = PageReuse(mode="verified", recipe=RECIPE, store=store)
        decision = again.decide(ref(1, looks[0]))
        assert (decision.kind, decision.record) == ("exact", first)
        assert decision.origin == ReuseOrigin(document="a.pdf", page=1, run="earlier")
        proven = again.decide(ref(2, looks[1]))
        assert (proven.kind, proven.verified_by) == ("verified", "pixel-diff")
        assert proven.origin == ReuseOrigin(document="a.pdf", page=1, run="earlier")
        strict = PageReuse(mode="exact", recipe=RECIPE, store=store, drafts=False)
        assert strict.decide(ref(2, looks[1])).kind == "none"
        changed = PageReuse(mode="verified", recipe=OTHER_RECIPE, store=store)
        draft = changed.decide(ref(1, looks[0]))
        assert (draft.kind, draft.draft) == ("draft", first)


def test_a_rescan_is_proven_against_an_earlier_run(tmp_path, looks):
    with ResultStore(tmp_path) as store:
        read(PageReuse(mode="verified", recipe=RECIPE, store=store), ref(1, looks[0]))
    with ResultStore(tmp_path) as store:
        reuse = PageReuse(mode="verified", recipe=RECIPE, store=store)
        decision = reuse.decide(ref(5, looks[1], "new.pdf"))
        assert (decision.kind, decision.verified_by) == ("verified", "pixel-diff")
        assert decision.origin.run == "earlier"
        assert reuse.decide(ref(6, looks[2], "new.pdf")).kind == "draft"


def test_ten_changed_pages_of_five_hundred_are_read_with_their_old_texts(tmp_path):
    with ResultStore(tmp_path) as store:
        reuse = PageReuse(mode="verified", recipe=RECIPE, store=store)
        for number in range(1, 501):
            read(reuse, ref(number, plain(number)))
    changed = set(range(25, 500, 50))
    with ResultStore(tmp_path) as store:
        reuse = PageReuse(mode="verified", recipe=RECIPE, store=store)
        kinds = {}
        for number in range(1, 501):
            page = ref(number, plain(number + 1000 * (number in changed)))
            decision = reuse.decide(page)
            kinds[number] = decision.kind
            if decision.is_read:
                assert decision.draft.text == f"text of a.pdf {number}"
                reuse.finish(page, record_of(page))
    assert {number for number, kind in kinds.items() if kind == "draft"} == changed
    assert sum(kind == "exact" for kind in kinds.values()) == 490


def test_two_hundred_equal_pages_are_read_once(tmp_path):
    with ResultStore(tmp_path) as store:
        reuse = PageReuse(mode="verified", recipe=RECIPE, store=store)
        look = plain(1)
        decisions = [reuse.decide(ref(number, look)) for number in range(1, 201)]
        released = reuse.finish(ref(1, look), record_of(ref(1, look)))
    assert sum(decision.is_read for decision in decisions) == 1
    assert len(released) == 199


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 30_000)), max_size=60))
def test_the_memory_of_recent_pages_is_bounded_after_every_step(pages):
    recent = RecentPages(max_bytes=100_000)
    for number, (seed, length) in enumerate(pages):
        page = ref(number, plain(seed))
        recent.begin(page)
        recent.finish(page, record_of(page, "x" * length))
        assert recent.nbytes <= recent.max_bytes
        assert recent.nbytes == sum(one.nbytes for one in recent._all())


@settings(max_examples=60)
@given(st.data())
def test_every_page_is_answered_once_whatever_the_order_of_reading(data):
    """Copies, failures and late finishes: each page ends with one record, its own pixels' text."""
    reuse = PageReuse(mode="verified", recipe=RECIPE)
    seeds = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=25))
    answers, reading, todo = {}, [], list(enumerate(seeds))

    def settle(pairs):
        for page, decision in pairs:
            if decision.is_read:
                reading.append(page)
            elif decision.record is not None:
                assert page.key not in answers
                answers[page.key] = reuse.adopt(page, decision, record_of(page, "own")).text

    while todo or reading:
        if todo and (not reading or data.draw(st.booleans())):
            number, seed = todo.pop(0)
            page = ref(number, plain(seed))
            settle([(page, reuse.decide(page))])
        else:
            page = reading.pop(data.draw(st.integers(0, len(reading) - 1)))
            is_lost = data.draw(st.booleans())
            text = f"text {page.fingerprint.digest.hex()}"
            assert page.key not in answers
            answers[page.key] = "" if is_lost else text
            settle(reuse.finish(page, failed(page) if is_lost else record_of(page, text)))
    assert set(answers) == set(range(len(seeds)))
    for number, seed in enumerate(seeds):
        assert answers[number] in ("", f"text {plain(seed).digest.hex()}")


def test_reuse_of_a_record_never_mutates_it(looks):
    reuse = PageReuse(mode="verified", recipe=RECIPE)
    page = ref(1, looks[0])
    record = read(reuse, page)
    before = replace(record)
    decision = reuse.decide(ref(2, looks[0]))
    reuse.adopt(ref(2, looks[0]), decision, record_of(ref(2, looks[0])))
    assert record == before and record.reuse == Reuse()
