"""Work in a process of its own, where what it imports and takes counts for nobody else."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

T = TypeVar("T")


def apart(work: Callable[..., T], *args: object, **options: object) -> T:
    """What a function returns in a process that starts from nothing; raises what it raises."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *args, **options).result()
