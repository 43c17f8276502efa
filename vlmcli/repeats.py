"""The reuse layer of one job: opened when the first page asks, sized by what the plan leaves free.

Decisions are `reuse.decide`'s; here stand the memory that they may take, the store's life, and the
figures. All of it only saves time: where memory is short it does less, where the store fails the
job goes on without.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vlmcli.documents.source import Source
from vlmcli.fitness import takes_drafts
from vlmcli.options import OcrOptions, draft_sources, format_size
from vlmcli.results import PageRecord
from vlmcli.reuse.decide import Decision, PageReuse
from vlmcli.reuse.difference import compare_bytes
from vlmcli.reuse.entries import Place
from vlmcli.reuse.recent import DEFAULT_MAX_BYTES, PageRef, RecentPages
from vlmcli.workers import Look

if TYPE_CHECKING:
    from vlmcli.reuse.store import ResultStore

MIB = 1 << 20
_STORE_ROOM = 32 * MIB
"""Free memory from which the store is used: its batches, SQLite's cache, hashes of old pages."""
_LEAST_RECENT = 1 * MIB
"""For recent pages without sketches, however tight memory is: a few dozen of them."""
_RECENT_SHARE = 4
_COMPARE_SHARE = 2
_IN_WORK_SHARE = 8
"""Parts of the free memory: a quarter for recent pages, half for the comparison of two, an eighth
for the sketches of pages in work."""
_MOST_IN_WORK = 12 * MIB
"""For ten dense A4 pages: were sketches to take the place of crops, batches would not be full."""


class Repeats:
    """Decides which pages of a job are read, and remembers those that were.

    Args:
        options: `reuse`, `cache` and `drafts` count.
        recipe: gives the digest of everything but the pixels that could change a text, and is asked
            when the first page is decided about; None for a job without a model.
        on_warning: is told what the user should know, each once.
    """

    def __init__(
        self,
        options: OcrOptions,
        recipe: Callable[[], bytes] | None,
        on_warning: Callable[[str], None],
    ) -> None:
        self._options = options
        self._recipe = recipe
        self._on_warning = on_warning
        self._spare = 0
        self._reuse: PageReuse | None = None
        self._kinds: Counter[str] = Counter()
        self._num_earlier = self._num_resized = self._num_resized_differ = 0

    @property
    def is_on(self) -> bool:
        """Whether pages are looked at at all."""
        return self._options.reuse != "off" and self._recipe is not None

    @property
    def look(self) -> Look:
        """What the workers have to find out about a page."""
        if not self.is_on:
            return "none"
        is_compared = self._options.reuse != "exact" and self._max_compare_pixels > 0
        return "sketch" if is_compared else "hash"

    def set_room(self, spare_bytes: int) -> None:
        """So much memory is left below the cap beside everything that was planned."""
        self._spare = max(0, spare_bytes)
        if self._reuse is not None:
            self._reuse.recent.limit(self._recent_bytes)
            self._reuse.max_compare_pixels = self._max_compare_pixels

    @property
    def in_work_bytes(self) -> int:
        """For the sketches of pages that are not finished."""
        if self.look != "sketch":
            return 0
        return min(_MOST_IN_WORK, self._spare // _IN_WORK_SHARE)

    def decide(self, page: PageRef) -> Decision:
        """What to do with a page that is for the model."""
        decision = self._open().decide(page)
        if decision.waits_for is None:
            self._kinds[decision.kind] += 1
        return decision

    def finish(
        self, page: PageRef, record: PageRecord, decision: Decision
    ) -> list[tuple[PageRef, Decision]]:
        """A page that was to be read has been, or failed; what becomes of those that waited."""
        if decision.draft is not None and not record.is_failed:
            self._note_resolution(record, decision.draft)
        released = self._open().finish(page, record)
        self._kinds.update(decision.kind for _, decision in released)
        return released

    def adopt(self, page: PageRef, decision: Decision, own: PageRecord) -> PageRecord:
        """The record of a page that takes over another's text."""
        self._num_earlier += decision.origin is not None and decision.origin.run is not None
        return self._open().adopt(page, decision, own)

    def drop_caches(self) -> None:
        """Memory is short: keep little from here on."""
        if self._reuse is not None:
            self._reuse.recent.limit(_LEAST_RECENT)
            if self._reuse.store is not None:
                self._reuse.store.flush()

    def stats(self) -> dict[str, float]:
        """Pages by what became of them, and what that took.

        `reuse_earlier`: pages answered by earlier runs; `reuse_other_recipe`: pages that these
        have read otherwise; `reuse_resized`: pages read before in another size, and how many of
        them have another text now.
        """
        if self._reuse is None:
            return {}
        kinds = {f"reuse_{kind}": count for kind, count in sorted(self._kinds.items())}
        return {
            **kinds,
            "reuse_compared": self._reuse.num_compared,
            "reuse_other_recipe": self._reuse.num_other_recipe,
            "reuse_earlier": self._num_earlier,
            "reuse_resized": self._num_resized,
            "reuse_resized_differ": self._num_resized_differ,
            "reuse_recent_bytes": self._reuse.recent.nbytes,
        }

    def close(self) -> None:
        """Write what is to be kept."""
        if self._reuse is not None and self._reuse.store is not None:
            self._reuse.store.close()

    def _note_resolution(self, record: PageRecord, before: PageRecord) -> None:
        is_place = (before.document, before.page) == (record.document, record.page)
        if is_place and (before.width, before.height) != (record.width, record.height):
            self._num_resized += 1
            self._num_resized_differ += before.text != record.text

    @property
    def _lends_texts(self) -> bool:
        """Whether old texts are drafts; the answer to a question is like no page's text, and a
        server takes none."""
        is_wanted = "near-duplicate" in draft_sources(self._options.drafts)
        return is_wanted and takes_drafts(self._options)

    @property
    def _recent_bytes(self) -> int:
        share = self._spare // _RECENT_SHARE
        return max(_LEAST_RECENT, min(DEFAULT_MAX_BYTES, share))

    @property
    def _max_compare_pixels(self) -> int:
        room, fixed = self._spare // _COMPARE_SHARE, compare_bytes(0)
        return max(0, (room - fixed) * MIB // (compare_bytes(MIB) - fixed))

    def _open(self) -> PageReuse:
        if self._reuse is None:
            assert self._recipe is not None and self._options.reuse != "off"
            self._reuse = PageReuse(
                mode=self._options.reuse,
                recipe=self._recipe(),
                recent=RecentPages(self._recent_bytes),
                store=self._open_store(),
                drafts=self._lends_texts,
                max_compare_pixels=self._max_compare_pixels,
                on_warning=self._on_warning,
            )
        return self._reuse

    def _open_store(self) -> "ResultStore | None":
        if not self._options.cache:
            return None
        if self._spare < _STORE_ROOM:
            self._on_warning(
                f"results are neither kept nor looked up: only {format_size(self._spare)} of memory"
                " are left for that"
            )
            return None
        from vlmcli.reuse.store import ResultStore

        return ResultStore(on_warning=self._on_warning)


def place_of(source: Source, page: int) -> Place | None:
    """Where a page is, from one run to the next; standard input is nowhere."""
    if source.name == "-":
        return None
    return Place(document=str(Path(source.path).absolute()), page=page)
