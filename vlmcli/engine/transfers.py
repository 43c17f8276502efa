"""Copies of KV blocks between the pool and host memory, as data for the model runner."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Transfer:
    """Blocks of one sequence to copy out, or back in.

    Attributes:
        request_id: whose they are; what is copied out is kept under this name.
        blocks: ids in the pool.
        start: number of the first of them in the sequence's block table.
        first: number of the first of them among the blocks that were copied out.
    """

    request_id: str
    blocks: tuple[int, ...]
    start: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class Transfers:
    """What is to be copied before a step, in this order: forgotten, copied out, copied back."""

    dropped: tuple[str, ...] = ()
    out: tuple[Transfer, ...] = ()
    back: tuple[Transfer, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.dropped or self.out or self.back)


NO_TRANSFERS = Transfers()
