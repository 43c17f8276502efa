"""The server's engine thread: chats and their pictures with a fake model, and what goes wrong."""

import queue
import threading

import numpy as np
import pytest
from fake_reader import FakeReader
from PIL import Image, ImageDraw, ImageFont

from vlmcli.chat import Chat, PicturePart, Progress, Sampling, Turn
from vlmcli.checkpoint import find_checkpoint
from vlmcli.errors import ModelError
from vlmcli.options import OcrOptions
from vlmcli.reading import OutOfMemoryError
from vlmcli.serve.backend import Backend
from vlmcli.serve.budget import plan_server
from vlmcli.serve.lines import LineAnswerer
from vlmcli.serve.service import _spec
from vlmcli.serve.settings import ServeOptions


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A page with a line, and a blank one."""
    folder = tmp_path_factory.mktemp("pictures")
    page = Image.new("L", (600, 200), 255)
    ImageDraw.Draw(page).text((40, 70), "A line of words", font=ImageFont.load_default(40))
    page.save(folder / "line.png")
    Image.fromarray(np.full((200, 300), 255, np.uint8)).save(folder / "blank.png")
    return folder / "line.png", folder / "blank.png"


class Office:
    """A backend over a fake reader, and what it says to whom."""

    def __init__(self, reader: FakeReader) -> None:
        job = OcrOptions(inputs=(), max_pixels=1_000_000, jobs=1, threads=1)
        options = ServeOptions(job=job)
        self.crashed = threading.Event()
        self.mail: dict[int, queue.SimpleQueue[Progress]] = {}
        self.backend = Backend(
            plan_server(options),
            _spec(job, find_checkpoint("nano")),
            max_pixels=job.max_pixels,
            load=lambda: LineAnswerer(reader),
            on_crash=self.crashed.set,
        )

    def ask(self, key: int, *paths, max_tokens: int = 100) -> None:
        parts = tuple(PicturePart(index) for index in range(len(paths)))
        chat = Chat(
            turns=(Turn(role="user", parts=parts),), sampling=Sampling(max_tokens=max_tokens)
        )
        self.mail[key] = queue.SimpleQueue()
        self.backend.submit(key, chat, paths, self.mail[key].put)

    def answer(self, key: int) -> tuple[str, Progress]:
        """The whole text of a chat, and the last thing that was said about it."""
        text = ""
        while True:
            progress = self.mail[key].get(timeout=60)
            text += progress.text
            if progress.is_over:
                return text, progress


@pytest.fixture
def office():
    opened: list[Office] = []

    def make(reader: FakeReader) -> Office:
        opened.append(Office(reader))
        return opened[-1]

    yield make
    for one in opened:
        one.backend.close()


def test_every_chat_has_its_own_answer(office, pictures):
    line, blank = pictures
    open_ = office(FakeReader(seed=3))
    open_.backend.start()
    for key in range(12):
        open_.ask(key, *([line] * (key % 3) + [blank]))
    for key in range(12):
        text, last = open_.answer(key)
        assert last.finish == "stop"
        *read, empty = text.split("\f")
        assert len(read) == key % 3 and not empty
        assert all(part.startswith("serial ") for part in read)
    assert open_.backend.stats["fake_pages"] <= 12


def test_an_answer_is_cut_at_its_limit(office, pictures):
    open_ = office(FakeReader())
    open_.backend.start()
    open_.ask(1, pictures[0], pictures[0], max_tokens=9)
    text, last = open_.answer(1)
    assert len(text) == 9 and last.finish == "length"


def test_readings_that_fail_or_loop(office, pictures):
    open_ = office(FakeReader(statuses={1: "error", 2: "looped"}))
    open_.backend.start()
    open_.ask(1, pictures[0])
    assert open_.answer(1)[1].error is not None
    open_.ask(2, pictures[0])
    assert open_.answer(2)[1].finish == "length"


def test_a_chat_whose_pictures_fail_in_one_step_is_told_once_and_others_go_on(office, pictures):
    open_ = office(FakeReader(max_delay=0, statuses={1: "error", 2: "error"}))
    open_.backend.start()
    open_.ask(1, pictures[0], pictures[0])
    assert open_.answer(1)[1].error is not None
    open_.ask(2, pictures[0])
    assert open_.answer(2)[0] == "serial 3"
    assert open_.backend.is_alive and open_.mail[1].empty()


def test_an_abandoned_chat_is_taken_from_the_reader(office, pictures):
    reader = FakeReader(never=frozenset({1}))
    submitted = threading.Event()
    reader.on_submit = lambda key: submitted.set()
    open_ = office(reader)
    open_.backend.start()
    open_.ask(1, pictures[0])
    assert submitted.wait(60)
    open_.backend.cancel(1)
    open_.ask(2, pictures[0])
    assert open_.answer(2)[0] == "serial 2"
    assert reader.aborted == [1] and not reader.jobs


def test_where_memory_runs_out_the_youngest_gives_way(office, pictures):
    class Short(FakeReader):
        has_failed = False

        def step(self):
            if self.has_failed:
                return super().step()
            if len(self.jobs) < 2:
                return []
            self.has_failed = True
            raise OutOfMemoryError("no more")

    reader = Short(max_delay=0)
    open_ = office(reader)
    open_.backend.start()
    open_.ask(1, pictures[0])
    open_.ask(2, pictures[0])
    assert open_.answer(1)[0] == "serial 1"
    error = open_.answer(2)[1].error
    assert error is not None and error.code == "busy"
    assert reader.num_drops and reader.aborted == [2]
    assert open_.backend.is_alive


def test_a_fault_of_ours_is_told_to_everybody_and_ends_the_thread(office, pictures):
    class Broken(FakeReader):
        def step(self):
            raise ZeroDivisionError("a bug")

    open_ = office(Broken())
    open_.backend.start()
    open_.ask(1, pictures[0])
    assert open_.answer(1)[1].error is not None
    assert open_.crashed.wait(60)
    assert isinstance(open_.backend.error, ZeroDivisionError) and not open_.backend.is_alive
    open_.ask(2, pictures[0])
    assert open_.answer(2)[1].error is not None


def test_a_chat_that_comes_as_the_thread_ends_is_not_left_waiting(office, pictures):
    class Broken(FakeReader):
        def step(self):
            open_.ask(2, pictures[0])
            raise ZeroDivisionError("a bug")

    open_ = office(Broken())
    open_.backend.start()
    open_.ask(1, pictures[0])
    assert open_.answer(1)[1].error is not None
    assert open_.answer(2)[1].error is not None


def test_what_is_left_when_the_time_is_up_is_told_so(office, pictures):
    open_ = office(FakeReader(never=frozenset({1})))
    open_.backend.start()
    open_.ask(1, pictures[0])
    open_.backend.drain(0.0)
    error = open_.answer(1)[1].error
    assert error is not None and error.code == "busy"


def test_a_model_that_cannot_be_loaded_is_the_starters_problem(pictures):
    open_ = Office(FakeReader())

    def fail():
        raise ModelError("no weights")

    open_.backend._load = fail
    with pytest.raises(ModelError, match="no weights"):
        open_.backend.start()
