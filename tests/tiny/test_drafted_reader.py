"""A small reader in front of a large one: whatever it says, the large one's text is the same."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from asking import pictures, write_page_checkpoint

from vlmcli.checkpoint import built_in_path
from vlmcli.documents.lines import LineCrop
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.readers.drafted import DraftedReader
from vlmcli.readers.guard import Guard
from vlmcli.readers.lines import LineReader
from vlmcli.readers.pages import PageReader
from vlmcli.reading import CropText, OutOfMemoryError, PageJob, PageReading, Reader

MAX_TOKENS = 40
NUM_PAGES = 3


def page_reader(checkpoint: Path) -> PageReader:
    config = EngineConfig(num_threads=1, max_num_seqs=2, draft_own_output=False)
    return PageReader(
        Guard(Engine.from_checkpoint(checkpoint, config), retries=0), max_tokens=MAX_TOKENS
    )


class Parrot:
    """Says what it is told of each page, one every other step; or runs out of memory."""

    def __init__(self, say: Callable[[int], str], *, is_short: bool = False) -> None:
        self.say, self.is_short = say, is_short
        self.keys: list[int] = []
        self.num_steps = 0

    def submit(self, job: PageJob) -> None:
        assert job.picture is None and job.crops
        self.keys.append(job.key)

    def step(self) -> Sequence[PageReading]:
        self.num_steps += 1
        if self.num_steps % 2:
            return ()
        if self.is_short:
            raise OutOfMemoryError
        key = self.keys.pop(0)
        return (PageReading(key=key, crops=(CropText(text=self.say(key), confidence=0.9),)),)

    def abort(self, key: int) -> None:
        self.keys.remove(key)

    def has_work(self) -> bool:
        return bool(self.keys)

    def drop_caches(self) -> None:
        pass

    def device_bytes(self) -> int:
        return 0

    def stats(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


def crop() -> LineCrop:
    rng = np.random.default_rng(3)
    pixels = rng.integers(0, 255, (28, 200)).astype(np.uint8)
    return LineCrop(pixels=pixels, bbox=(0, 0, 99, 28), line=0, block=0, row=0, cell=None)


def jobs() -> list[PageJob]:
    return [
        PageJob(key=key, picture=picture, draft_crops=(crop(),))
        for key, picture in enumerate(pictures(NUM_PAGES))
    ]


def read(reader: Reader) -> dict[int, PageReading]:
    waiting, readings = jobs(), {}
    while waiting or reader.has_work():
        if waiting:
            reader.submit(waiting.pop(0))
        try:
            for reading in reader.step():
                assert reading.key not in readings
                readings[reading.key] = reading
        except OutOfMemoryError:
            continue
    return readings


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return write_page_checkpoint(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def plain(checkpoint) -> dict[int, PageReading]:
    return read(page_reader(checkpoint))


DRAFTERS = {
    "perfect": lambda texts: Parrot(texts.__getitem__),
    "of another page": lambda texts: Parrot(lambda key: texts[(key + 1) % NUM_PAGES]),
    "noisy": lambda texts: Parrot(lambda key: texts[key][:7] + "#" + texts[key][8:]),
    "unrelated": lambda texts: Parrot(lambda key: "Lorem ipsum dolor sit amet"),
    "silent": lambda texts: Parrot(lambda key: ""),
    "out of memory": lambda texts: Parrot(texts.__getitem__, is_short=True),
}


@pytest.mark.parametrize("kind", DRAFTERS)
def test_drafts_change_no_text(checkpoint, plain, kind):
    texts = {key: reading.text for key, reading in plain.items()}
    assert len(set(texts.values())) == NUM_PAGES
    drafter = DRAFTERS[kind](texts)
    reader = DraftedReader(page_reader(checkpoint), drafter, name="nano", reads_crops=True)
    readings = read(reader)
    assert {key: reading.text for key, reading in readings.items()} == texts
    sources = [source for r in readings.values() for source in r.tokens.sources]
    if kind in ("silent", "out of memory"):
        assert sources == []
        return
    assert {source.name for source in sources} == {"nano"} and len(sources) == NUM_PAGES
    stats = reader.stats()
    assert stats["drafts.nano.guessed"] == sum(source.guessed for source in sources) > 0
    assert stats["drafts.nano.right"] == sum(source.right for source in sources)
    assert stats["drafting_pages"] == NUM_PAGES
    if kind == "perfect":
        # Text that is no UTF-8 comes back with other bytes than it was written with.
        assert stats["drafts.nano.right"] > 0


def test_the_built_in_model_as_drafter(checkpoint, plain):
    engine = Engine.from_checkpoint(built_in_path(), EngineConfig(num_threads=1, max_num_seqs=4))
    nano = LineReader(Guard(engine, retries=0), max_tokens=None, share_equal_crops=True)
    reader = DraftedReader(page_reader(checkpoint), nano, name="nano", reads_crops=True)
    readings = read(reader)
    assert {k: r.text for k, r in readings.items()} == {k: r.text for k, r in plain.items()}
    assert reader.stats()["drafting_pages"] == NUM_PAGES
    assert not reader.has_work()
    reader.close()


def test_aborted_pages_leave_both_readers(checkpoint):
    drafter = Parrot(lambda key: "draft")
    reader = DraftedReader(page_reader(checkpoint), drafter, name="nano", reads_crops=True)
    first, second, third = jobs()
    for job in (first, second, third):
        reader.submit(job)
    reader.step()
    reader.step()
    for job in (first, second):
        reader.abort(job.key)
    found = []
    while reader.has_work():
        found += [reading.key for reading in reader.step()]
    assert found == [third.key]
