"""What becomes of a page: an earlier result, a draft from a similar page, or a fresh reading.

Same pixels are the same page; a page proven equal by aligned comparison is the same page; anything
less is a similar page, which only lends its text as a draft that the model verifies. Unsure means
no. Runs in one process, over the fingerprints that page workers send.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vlmcli.options import ReuseMode
from vlmcli.results import PageRecord, Reuse, ReuseKind, ReuseOrigin, VerifiedBy
from vlmcli.reuse.adopt import adopted
from vlmcli.reuse.difference import compare
from vlmcli.reuse.entries import StoredPage
from vlmcli.reuse.fingerprint import PageFingerprint, hamming
from vlmcli.reuse.recent import PageRef, RecentPage, RecentPages
from vlmcli.reuse.registration import Motion

if TYPE_CHECKING:
    from vlmcli.reuse.store import ResultStore

COMPARE_DISTANCE = 40
"""Bits of the 256-bit dhash: rescans differ by up to 21, other pages of a template by 5 or more."""
OLD_TEXT_DISTANCE = 64
"""Farther away, what was at a page's place before is another page, moved up or down."""
BLIND_DISTANCE = 20
MIN_DRAFT_LIKENESS = 0.95
"""Correlation with a page that was compared, for its text to be worth a draft; where none was, the
hashes must be nearer. Pages with a few other words: 0.98 and more; another form filled in: 0.91 to
0.99; one layout and other text: up to 0.90. A useless draft costs some percent of the reading."""
SIMILAR_SHARE = 0.92
"""Of the bits of both hashes: from here on the lossy mode takes two pages for the same."""
_MAX_CANDIDATES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do with a page.

    Pages `exact`, `verified` and `similar` take over `record`; while that is None they wait for the
    page with the digest `waits_for`. Pages `draft` and `none` are to be read.
    """

    kind: ReuseKind = "none"
    origin: ReuseOrigin | None = None
    verified_by: VerifiedBy | None = None
    record: PageRecord | None = None
    waits_for: bytes | None = None
    draft: PageRecord | None = None
    """The page whose text is a draft for this one."""
    motion: Motion | None = None

    @property
    def is_read(self) -> bool:
        """Whether the page has to be read."""
        return self.kind in ("none", "draft")

    @property
    def reuse(self) -> Reuse:
        """What the page's record says about it."""
        return Reuse(kind=self.kind, origin=self.origin, verified_by=self.verified_by)


@dataclass(slots=True, kw_only=True)
class PageReuse:
    """The decisions of one job: `decide` each page, `finish` what was read, `adopt` the others.

    Args:
        mode: how far reuse may go.
        recipe: digest of everything besides pixels that could change a text (`Recipe.digest`).
        recent: the pages of this job.
        store: results of earlier runs; None for a job that keeps none.
        drafts: whether similar pages lend their texts.
        max_compare_pixels: larger pages are not compared, for want of memory.
        on_warning: is told, once, that lossy reuse took place.
    """

    mode: ReuseMode
    recipe: bytes
    recent: RecentPages = field(default_factory=RecentPages)
    store: "ResultStore | None" = None
    drafts: bool = True
    max_compare_pixels: int | None = None
    on_warning: Callable[[str], None] = lambda message: None
    num_compared: int = 0
    num_other_recipe: int = 0
    """Pages of which the store had a result, made by another recipe."""
    _waiting: dict[bytes, list[tuple[PageRef, Decision]]] = field(default_factory=dict)
    _likeness: dict[bytes, float] = field(default_factory=dict)
    """To this page, by the digest of the page that it was compared with."""
    _has_warned: bool = False

    def decide(self, page: PageRef) -> Decision:
        """What to do with a page. One that is to be read counts as being read from now on."""
        if self.mode == "off":
            return Decision()
        self._likeness.clear()
        decision = (
            self._exact(page)
            or self._verified(page)
            or self._similar(page)
            or self._draft(page)
            or Decision()
        )
        if decision.is_read:
            self.recent.begin(page)
        elif decision.waits_for is not None:
            self._waiting.setdefault(decision.waits_for, []).append((page, decision))
        return decision

    # --- the answers, the best first --------------------------------------------------------------

    def _exact(self, page: PageRef) -> Decision | None:
        """The same pixels, read by the same recipe."""
        found = self.recent.get(page.fingerprint.digest)
        if found is not None:
            return self._copy(found.record, found.origin) or _take(found, "exact", "sha256")
        if self.store is None:
            return None
        record = self.store.get(page.fingerprint.digest, self.recipe, page.place)
        if record is None:
            self.num_other_recipe += self.store.knows(page.fingerprint.digest)
            return None
        return self._copy(record, _earlier(record))

    def _copy(self, record: PageRecord | None, origin: ReuseOrigin) -> Decision | None:
        """Same pixels as a page whose record that is; it may itself have been proven equal."""
        if record is None:
            return None
        if record.reuse.kind != "verified":
            return Decision(kind="exact", origin=origin, verified_by="sha256", record=record)
        if self.mode == "exact" or record.reuse.origin is None:
            return None
        proven = replace(record.reuse.origin, run=origin.run or record.reuse.origin.run)
        return Decision(kind="verified", origin=proven, verified_by="pixel-diff", record=record)

    def _verified(self, page: PageRef) -> Decision | None:
        """A page of this job or an earlier one, proven equal by aligned pixel difference."""
        look, sketch = page.fingerprint, page.fingerprint.sketch
        if self.mode not in ("verified", "similar") or sketch is None:
            return None
        most = self.max_compare_pixels
        if most is not None and sketch.width * sketch.height > most:
            return None
        for found in self.recent.nearest(look, COMPARE_DISTANCE, _MAX_CANDIDATES, with_sketch=True):
            other = found.page.fingerprint.sketch
            assert other is not None
            self.num_compared += 1
            difference = compare(other, sketch)
            self._likeness[found.page.fingerprint.digest] = difference.likeness
            if difference.is_same:
                return replace(_take(found, "verified", "pixel-diff"), motion=difference.motion)
        if self.store is None:
            return None
        for stored in self.store.nearest(
            look.dhash256, self.recipe, max_distance=COMPARE_DISTANCE, limit=_MAX_CANDIDATES
        ):
            self.num_compared += 1
            assert stored.sketch is not None
            difference = compare(stored.sketch, sketch)
            self._likeness[stored.digest] = difference.likeness
            if difference.is_same:
                return Decision(
                    kind="verified",
                    origin=_earlier(stored.record),
                    verified_by="pixel-diff",
                    record=stored.record,
                    motion=difference.motion,
                )
        return None

    def _similar(self, page: PageRef) -> Decision | None:
        """Opt-in and lossy: a page of this job whose hashes are near enough."""
        if self.mode != "similar":
            return None
        look = page.fingerprint
        max_distance = int((1 - SIMILAR_SHARE) * 256)
        for found in self.recent.nearest(look, max_distance, _MAX_CANDIDATES):
            if hamming(found.page.fingerprint.dhash64, look.dhash64) <= (1 - SIMILAR_SHARE) * 64:
                self._warn()
                return _take(found, "similar", None)
        return None

    def _draft(self, page: PageRef) -> Decision | None:
        """The old text of this place, else that of the page that looks most like this one."""
        if not self.drafts:
            return None
        look = page.fingerprint
        before = self.store.at(page.place) if self.store and page.place else None
        if before is not None and before.record.text and _may_be_same_page(before, look):
            return _lend(before.record, _earlier(before.record))
        for found in self.recent.nearest(look, COMPARE_DISTANCE, _MAX_CANDIDATES):
            other = found.page.fingerprint
            if found.record is not None and found.record.text and self._is_alike(other, look):
                return _lend(found.record, found.origin)
        if self.store is not None and look.is_distinctive:
            for stored in self.store.nearest(look.dhash256, max_distance=COMPARE_DISTANCE, limit=1):
                if self._is_alike(stored, look):
                    return _lend(stored.record, _earlier(stored.record))
        return None

    def _is_alike(self, other: PageFingerprint | StoredPage, look: PageFingerprint) -> bool:
        """Whether most of what is printed on the two pages is the same, as far as is known."""
        likeness = self._likeness.get(other.digest)
        if likeness is not None:
            return likeness >= MIN_DRAFT_LIKENESS
        return hamming(other.dhash256 or bytes(32), look.dhash256) <= BLIND_DISTANCE

    # --- afterwards -------------------------------------------------------------------------------

    def finish(self, page: PageRef, record: PageRecord) -> list[tuple[PageRef, Decision]]:
        """A page was read, or failed. Returns the pages that waited for it, decided anew."""
        if self.mode == "off":
            return []
        self.recent.finish(page, record)
        waiting = self._waiting.pop(page.fingerprint.digest, [])
        if not record.is_failed:
            if self.store is not None:
                self.store.put(page.fingerprint, self.recipe, record, page.place)
            return [(other, replace(decision, record=record)) for other, decision in waiting]
        # Whoever waited for a page that failed is read in its stead, and the others wait for that.
        again = [(other, self.decide(other)) for other, _ in waiting]
        return [(other, decision) for other, decision in again if decision.waits_for is None]

    def adopt(self, page: PageRef, decision: Decision, own: PageRecord) -> PageRecord:
        """The record of a page that takes over another's text.

        Args:
            page: the page.
            decision: what was decided, with the record to take over.
            own: what is known of the page itself: identity, size, rendering; its text is ignored.
        """
        assert decision.record is not None, "the origin is still being read"
        record = adopted(decision.record, own, decision.reuse, decision.motion)
        if decision.kind == "verified":
            self.recent.note(page, record)
            if self.store is not None:
                alone = replace(page.fingerprint, is_distinctive=False, sketch=None)
                self.store.put(alone, self.recipe, record, page.place)
        return record

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            self.on_warning(
                "--reuse similar takes similar pages for equal: their texts may be wrong"
            )


def _take(found: RecentPage, kind: ReuseKind, verified_by: VerifiedBy | None) -> Decision:
    return Decision(
        kind=kind,
        origin=found.origin,
        verified_by=verified_by,
        record=found.record,
        waits_for=None if found.record else found.page.fingerprint.digest,
    )


def _lend(record: PageRecord, origin: ReuseOrigin) -> Decision:
    return Decision(kind="draft", origin=origin, verified_by="model", draft=record)


def _may_be_same_page(before: StoredPage, look: PageFingerprint) -> bool:
    if before.dhash256 is None or not look.is_distinctive:
        return True
    return hamming(before.dhash256, look.dhash256) <= OLD_TEXT_DISTANCE


def _earlier(record: PageRecord) -> ReuseOrigin:
    return ReuseOrigin(document=record.document, page=record.page, run="earlier")
