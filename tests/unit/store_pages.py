"""Pages and records for the store's tests; as a program, a nursery of writers to be killed.

The nursery reads lines `FIRST COUNT BATCH`, forks a writer for each, and prints its process id once
that writer has opened the store: forking a warm process is what makes twenty kills affordable.
"""

import os
import sys
from pathlib import Path

from vlmcli.results import PageRecord
from vlmcli.reuse.entries import Place, Recipe
from vlmcli.reuse.fingerprint import PageFingerprint
from vlmcli.reuse.store import ResultStore

RECIPE = Recipe(
    model="nano@1", task="ocr", resolution="28x1120", dtype="float32", device="cpu", reader="engine"
)
KEY = RECIPE.digest()
MAX_BYTES = 3_000_000


def page(number: int) -> PageFingerprint:
    return PageFingerprint(
        digest=number.to_bytes(32), dhash64=bytes(8), dhash256=bytes(32), is_distinctive=False
    )


def record(number: int, length: int = 20) -> PageRecord:
    # Digits of a product, so that long texts do not compress to nothing.
    text = str(number) + "".join(str(number * k * k % 9973) for k in range(length // 4))
    return PageRecord(
        document="a.pdf", page=number, pages=9, status="ok", text=text, model="nano@1"
    )


def place(number: int) -> Place:
    return Place(document="/home/a.pdf", page=number)


def write(directory: Path, first: int, count: int, batch: int) -> None:
    store = ResultStore(directory, max_bytes=MAX_BYTES)
    print(os.getpid(), flush=True)
    for number in range(first, first + count):
        store.put(page(number), KEY, record(number, 3000), place(number))
        if number % batch == 0:
            store.flush()
    store.close()


def main(directory: Path) -> None:
    for line in sys.stdin:
        if os.fork() == 0:
            write(directory, *map(int, line.split()))
            os._exit(0)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
