"""Records of a job on their way out: noted at once, counted, reported, put into page order.

Knows records and callbacks, no pages in work and no files.
"""

from collections.abc import Callable

from vlmcli.errors import PageError
from vlmcli.ordering import InOrder, Key
from vlmcli.report import Reporter, Tally
from vlmcli.results import PageRecord

OnRecord = Callable[[PageRecord], None]


class Ledger:
    """Takes finished records in any order and hands them on in the order of the documents.

    Args:
        num_documents: says how many documents the job has; None as long as that is not known.
        on_record: takes each new record at once (the journal).
        on_next: takes each record in document order (the outputs).
        reporter: is told what happens.
        fail_fast: whether the first failed page ends the job.
    """

    def __init__(
        self,
        num_documents: Callable[[], int | None],
        *,
        on_record: OnRecord,
        on_next: OnRecord,
        reporter: Reporter,
        fail_fast: bool,
    ) -> None:
        self._num_documents = num_documents
        self._on_record = on_record
        self._on_next = on_next
        self._reporter = reporter
        self._fail_fast = fail_fast
        self._order = InOrder()
        self._num_announced = 0
        self.tally = Tally()

    @property
    def waiting_bytes(self) -> int:
        """Of records that wait for an earlier page."""
        return self._order.waiting_bytes

    def announce(self, number: int, name: str, num_records: int) -> None:
        """A document, its place in the job from 0, will have so many records."""
        self._order.expect(number, num_records)
        self._num_announced += num_records
        self.tally.num_documents += 1
        if self.tally.num_documents == self._num_documents():
            self._reporter.start(self._num_announced)
        self._reporter.document(name, num_records)

    def add(self, key: Key, record: PageRecord) -> None:
        """A page of this run is finished.

        Raises:
            PageError: it failed, and the first failure ends the job.
        """
        self._on_record(record)
        self.file(key, record)
        if record.is_failed and self._fail_fast:
            self.flush()
            raise PageError(
                f"stopped at {record.document}, page {record.page}: "
                f"{record.error.message if record.error else record.status}",
                code=record.error.code if record.error else "read",
            )

    def file(self, key: Key, record: PageRecord) -> None:
        """Count a record and put it in its place in the order, without noting it down again."""
        self._order.put(key, record)
        self.tally.count(record)
        is_complete = self.tally.num_documents == self._num_documents()
        total = self._num_announced if is_complete else None
        self._reporter.page_done(record, self.tally.num_pages, total)

    def flush(self) -> None:
        """Hand on the records whose turn has come."""
        for _, record in self._order.take():
            self._on_next(record)
