"""Documents by the thousand: listed as they are needed, opened a few at a time, forgotten then."""

import gc
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents_kit import pages_pdf, text_at
from hypothesis import given
from hypothesis import strategies as st

import vlmcli.pipeline
from vlmcli.documents.source import Source
from vlmcli.intake import MEASURED_DOCUMENTS, Intake
from vlmcli.listing import Listing
from vlmcli.openings import Openings
from vlmcli.options import OcrOptions
from vlmcli.pipeline import run_ocr
from vlmcli.report import NullReporter
from vlmcli.results import PageRecord

NUM_DOCUMENTS = 480
JOBS = 2


@given(st.integers(0, 12), st.lists(st.integers(-1, 12), max_size=30))
def test_a_listing_gives_every_document_once_and_looks_no_further_than_asked(count, looks):
    found = [Source(path=Path(f"{number}.pdf"), name=str(number)) for number in range(count)]
    consumed = iter(found)
    listing = Listing(consumed)
    taken: list[Source] = []
    for look in looks:
        if look < 0:
            if (source := listing.take()) is not None:
                taken.append(source)
        else:
            assert listing.peek(look) == found[len(taken) : len(taken) + look]
            assert listing.num_ahead <= max([1, *looks])
        assert listing.count in (None, count)
    assert taken == found[: len(taken)]
    assert listing.is_single == (count == 1)
    assert listing.is_exhausted == (len(taken) == count)
    assert listing.peek(None) == found[len(taken) :] and listing.count == count


class Watch:
    """A sink that looks at the job at every record."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.num_found = 0
        self.found_at_first = 0
        self.most_fds = 0
        self.bytes_at: dict[int, int] = {}

    def found(self, path: Path) -> Iterator[Source]:
        for number in range(NUM_DOCUMENTS):
            self.num_found += 1
            yield Source(path=path, name=f"document {number}")

    def begin(self) -> None:
        pass

    def write(self, record: PageRecord) -> None:
        assert record.status == "ok" and record.text
        self.found_at_first = self.found_at_first or self.num_found
        self.names.append(record.document)
        self.most_fds = max(self.most_fds, len(list(Path("/proc/self/fd").iterdir())))
        if len(self.names) in (220, 470):
            gc.collect()
            self.bytes_at[len(self.names)] = tracemalloc.get_traced_memory()[0]

    def finish(self) -> None:
        pass

    def abort(self) -> None:
        pass


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files in /proc")
def test_a_job_of_many_documents_holds_a_few_of_them(tmp_path, monkeypatch):
    path = tmp_path / "one.pdf"
    path.write_bytes(pages_pdf([text_at(40, 300, "A page of a small document")]))
    watch = Watch()
    held: list[int] = []
    monkeypatch.setattr(vlmcli.pipeline, "iter_sources", lambda inputs, **_: watch.found(path))
    hand_out = Intake.hand_out

    def looking(intake: Intake) -> None:
        hand_out(intake)
        openings: Openings = intake._openings
        held.append(openings.num_held)
        if intake._is_measured and len(watch.names) > MEASURED_DOCUMENTS:
            assert openings.num_held <= JOBS + 2
        assert intake._listing.num_ahead <= 2

    monkeypatch.setattr(Intake, "hand_out", looking)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    tracemalloc.start()
    try:
        run_ocr(
            OcrOptions(inputs=("many",), text_layer="only", jobs=JOBS),
            sink=watch,
            reporter=NullReporter(),
        )
    finally:
        tracemalloc.stop()
    assert watch.names == [f"document {number}" for number in range(NUM_DOCUMENTS)]
    assert watch.found_at_first <= MEASURED_DOCUMENTS + 3 < watch.num_found == NUM_DOCUMENTS
    assert max(held) <= MEASURED_DOCUMENTS
    assert watch.most_fds <= before + 2 * JOBS + 4
    # The names that this test keeps are all that grows.
    assert watch.bytes_at[470] - watch.bytes_at[220] < 250 * 100
