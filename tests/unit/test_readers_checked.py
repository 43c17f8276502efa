"""Answers that are of no use are asked for again, alone, and as often as was said."""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from scans import write_pages

from vlmcli.answers import AnswerChecker
from vlmcli.options import OcrOptions
from vlmcli.readers.checked import MAX_AGAIN_BYTES, CheckedReader
from vlmcli.reading import CropText, OutOfMemoryError, PageJob, PageReading, Reader
from vlmcli.results import PageAnswer, TokenCounts

QUESTIONS = ("Which number?", "Which total?")
SCHEMA = json.dumps(
    {
        "required": ["number", "total"],
        "properties": {"number": {"type": "string"}, "total": {"type": "number"}},
    }
)
GOOD = ('{"number": "A"}', '{"total": 3}')

Answerer = Callable[[int, str, int], str]
"""From a page, a question and how often it was put before to an answer."""


class Oracle:
    """A reader that answers as it is told to, one page a step; notes what it was asked."""

    def __init__(self, answer: Answerer, *, failures: int = 0) -> None:
        self._answer = answer
        self._jobs: dict[int, PageJob] = {}
        self._counts: dict[tuple[int, str], int] = {}
        self.asked: list[tuple[int, tuple[str, ...]]] = []
        self.failures = failures
        """Submissions from the second on for which there is no memory."""
        self.is_closed = False

    def submit(self, job: PageJob) -> None:
        if job.questions is not None and self.failures:
            self.failures -= 1
            raise OutOfMemoryError
        assert job.key not in self._jobs
        self._jobs[job.key] = job
        self.asked.append((job.key, job.questions or QUESTIONS))

    def step(self) -> Sequence[PageReading]:
        key, job = next(iter(self._jobs.items()))
        del self._jobs[key]
        answers = []
        for question in job.questions or QUESTIONS:
            known = next(one for one in QUESTIONS if question.startswith(one))
            count = self._counts[key, known] = self._counts.get((key, known), 0) + 1
            text = self._answer(key, known, count - 1)
            answers.append(PageAnswer(question=question, text=text))
        tokens = TokenCounts(visual=10, prompt=2, output=len(answers))
        crops = tuple(CropText(text="x", confidence=1.0) for _ in job.crops)
        return [PageReading(key=key, crops=crops, answers=tuple(answers), tokens=tokens)]

    def abort(self, key: int) -> None:
        del self._jobs[key]

    def has_work(self) -> bool:
        return bool(self._jobs)

    def drop_caches(self) -> None: ...

    def device_bytes(self) -> int:
        return 7

    def stats(self) -> dict[str, float]:
        return {"steps": 1}

    def close(self) -> None:
        self.is_closed = True


def checked(oracle: Oracle, retries: int = 1) -> CheckedReader:
    reader: Reader = oracle
    checker = AnswerChecker(SCHEMA)
    return CheckedReader(reader, checker, questions=QUESTIONS, retries=retries)


def read(reader: CheckedReader, keys: Sequence[int] = (1,)) -> dict[int, PageReading]:
    for key in keys:
        reader.submit(PageJob(key=key, picture=np.zeros((4, 4, 3), np.uint8)))
    found = {}
    while reader.has_work():
        found |= {reading.key: reading for reading in reader.step()}
    return found


def good(key: int, question: str, count: int) -> str:
    return GOOD[QUESTIONS.index(question)]


def test_good_answers_are_asked_for_once():
    oracle = Oracle(good)
    reading = read(checked(oracle))[1]
    assert (reading.status, reading.data) == ("ok", {"number": "A", "total": 3})
    assert oracle.asked == [(1, QUESTIONS)]


def test_only_the_bad_answer_is_asked_for_again_and_told_why():
    oracle = Oracle(lambda key, q, n: "three" if q == QUESTIONS[1] and not n else good(key, q, n))
    reading = read(checked(oracle))[1]
    assert (reading.status, reading.data) == ("ok", {"number": "A", "total": 3})
    assert [answer.question for answer in reading.answers] == list(QUESTIONS)
    assert [answer.text for answer in reading.answers] == list(GOOD)
    _, (again,) = oracle.asked[1]
    assert again.startswith(QUESTIONS[1]) and "not JSON" in again
    assert len(again.encode()) <= len(QUESTIONS[1]) + MAX_AGAIN_BYTES
    assert (reading.attempts, reading.tokens) == (
        2,
        TokenCounts(visual=10, prompt=4, output=3),
    )


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_what_stays_bad_is_an_error_that_keeps_the_answers(retries):
    oracle = Oracle(lambda key, q, n: f"no {n}" if q == QUESTIONS[0] else good(key, q, n))
    reading = read(checked(oracle, retries))[1]
    assert (reading.status, reading.code, reading.data) == ("error", "answers", None)
    assert "question 1" in reading.message and "not JSON" in reading.message
    assert [answer.text for answer in reading.answers] == [f"no {retries}", GOOD[1]]
    assert len(oracle.asked) == 1 + retries


def test_pages_do_not_wait_for_or_disturb_one_another():
    oracle = Oracle(lambda key, q, n: "bad" if key == 2 and not n else good(key, q, n))
    found = read(checked(oracle), keys=(1, 2, 3))
    assert list(found) == [1, 3, 2]
    assert all(reading.data for reading in found.values())


def test_a_page_that_finds_no_memory_is_asked_again_later():
    oracle = Oracle(lambda key, q, n: good(key, q, n) if n else "bad", failures=2)
    reader = checked(oracle)
    reader.submit(PageJob(key=1))
    reader.step()
    for _ in range(2):
        with pytest.raises(OutOfMemoryError):
            reader.step()
        assert reader.has_work()
    (reading,) = reader.step()
    assert reading.data == {"number": "A", "total": 3}


@pytest.mark.parametrize("steps", [0, 1])
def test_a_page_can_be_forgotten_at_any_time(steps):
    reader = checked(Oracle(lambda *_: "bad"))
    reader.submit(PageJob(key=1))
    for _ in range(steps):
        assert reader.step() == []
    reader.abort(1)
    assert not reader.has_work() and reader.step() == []
    assert read(reader, keys=(1,))[1].status == "error"


def test_words_that_stand_for_pictures_do_not_come_back_in_questions():
    oracle = Oracle(lambda key, q, n: '{"number": ["<|image_pad|>{x}"], "total": 1}')
    read(checked(oracle))
    (again, *_) = oracle.asked[1][1]
    assert not set("<|>{}") & set(again)


def test_records_have_data_or_an_error_and_never_both(tmp_path):
    from vlmcli.pipeline import run_ocr
    from vlmcli.report import NullReporter

    scan = write_pages(Path(tmp_path) / "scan.pdf", range(3))
    oracle = Oracle(lambda key, q, n: "bad" if key == 2 else good(key, q, n))
    stdout = io.BytesIO()
    summary = run_ocr(
        OcrOptions(
            inputs=(str(scan),),
            question=QUESTIONS,
            formats=("jsonl",),
            text_layer="ignore",
            jobs=1,
            reuse="off",
        ),
        stdout=stdout,
        reporter=NullReporter(),
        make_reader=lambda *_: checked(oracle),
    )
    records = [json.loads(line) for line in stdout.getvalue().splitlines()]
    assert summary.exit_code == 5
    assert [record["status"] for record in records] == ["ok", "error", "ok"]
    assert [("data" in record, "error" in record) for record in records] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert records[1]["error"]["code"] == "answers"
    assert [answer["text"] for answer in records[1]["answers"]] == ["bad", "bad"]
