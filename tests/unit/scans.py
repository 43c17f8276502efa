"""Small made-up documents for tests of the pipeline: scans with a few printed lines a page."""

from collections.abc import Sequence
from pathlib import Path

from vlmcli.bench.pages import page_picture, write_scan


def write_pages(path: Path, seeds: Sequence[int], *, lines: int = 3) -> Path:
    """A scanned PDF whose pages have `lines` lines each and depend on their seed alone."""
    write_scan(
        path, (page_picture(seed, width=300, height=160, lines=lines, dpi=120) for seed in seeds)
    )
    return path
