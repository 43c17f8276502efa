"""The documents of a job, found as they are asked for and forgotten once they are handed out.

Looks ahead no further than it is asked to. Names and paths alone: opens nothing.
"""

from collections import deque
from collections.abc import Iterator

from vlmcli.documents.source import Source


class Listing:
    """A job's documents in order.

    Args:
        found: gives them one after another; a folder may be read as it does.
    """

    def __init__(self, found: Iterator[Source]) -> None:
        self._found = found
        self._ahead: deque[Source] = deque()
        self._is_complete = False
        self._num_taken = 0

    @property
    def num_ahead(self) -> int:
        """Documents that are held here: found and not yet taken."""
        return len(self._ahead)

    @property
    def is_exhausted(self) -> bool:
        """Whether all documents have been taken."""
        return not self.peek(1)

    @property
    def count(self) -> int | None:
        """How many documents the job has; None while some are not found yet."""
        if not self._ahead:
            self.peek(1)
        return self._num_taken + len(self._ahead) if self._is_complete else None

    @property
    def is_single(self) -> bool:
        """Whether the job has one document."""
        return self._num_taken + len(self.peek(max(0, 2 - self._num_taken))) == 1

    def peek(self, most: int | None) -> list[Source]:
        """The next documents, up to so many, or all if None; they are not taken."""
        while not self._is_complete and (most is None or len(self._ahead) < most):
            source = next(self._found, None)
            if source is None:
                self._is_complete = True
            else:
                self._ahead.append(source)
        return [*self._ahead][:most]

    def take(self) -> Source | None:
        """The next document; None after the last one."""
        if self.is_exhausted:
            return None
        self._num_taken += 1
        return self._ahead.popleft()
