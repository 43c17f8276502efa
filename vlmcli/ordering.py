"""Puts finished pages back into document order: pages end in any order, outputs want theirs.

Integers and records only. Counts the bytes of the records that wait, so that the pipeline can stop
handing out pages when one slow page holds up many finished ones.
"""

from vlmcli.results import PageRecord

Key = tuple[int, int]
"""Document number in the job, and the page's place among its selected pages; both from 0."""

_RECORD_OVERHEAD = 1024
"""Bytes charged for a record besides its texts: object headers, boxes, counts."""


class InOrder:
    """Collects records by key and gives them out in key order, without gaps."""

    def __init__(self) -> None:
        self._waiting: dict[Key, PageRecord] = {}
        self._sizes: dict[int, int] = {}
        self._next: Key = (0, 0)
        self.waiting_bytes = 0

    def expect(self, document: int, num_records: int) -> None:
        """Say how many records document number `document` will have."""
        assert document not in self._sizes, f"document {document} was announced before"
        self._sizes[document] = num_records

    def put(self, key: Key, record: PageRecord) -> None:
        """Add a finished record; each key once."""
        assert key not in self._waiting and key >= self._next, f"second record for {key}"
        self._waiting[key] = record
        self.waiting_bytes += record_bytes(record)

    def take(self) -> list[tuple[Key, PageRecord]]:
        """The records that are next in order, all that are there."""
        ready: list[tuple[Key, PageRecord]] = []
        while True:
            document, place = self._next
            size = self._sizes.get(document)
            if size is not None and place >= size:
                del self._sizes[document]
                self._next = (document + 1, 0)
                continue
            record = self._waiting.pop(self._next, None)
            if record is None:
                return ready
            self.waiting_bytes -= record_bytes(record)
            ready.append((self._next, record))
            self._next = (document, place + 1)

    @property
    def next_key(self) -> Key:
        """The key that holds up the others."""
        return self._next

    @property
    def is_empty(self) -> bool:
        """Whether no record waits."""
        return not self._waiting


def record_bytes(record: PageRecord) -> int:
    """About what a record keeps in memory, in bytes."""
    texts = len(record.text) + sum(len(line.text) + 200 for line in record.lines)
    places = sum(line.strip.nbytes for line in record.lines if line.strip is not None)
    return _RECORD_OVERHEAD + 2 * texts + places
