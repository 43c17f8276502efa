"""Readers over an engine made of paper: loops, retries, equal crops, aborts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest

from vlmcli.checkpoint import built_in_path
from vlmcli.documents.lines import LineCrop
from vlmcli.engine.config import ModelConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.request import Request, RequestOutput, StageSeconds
from vlmcli.readers.guard import Guard
from vlmcli.readers.lines import LineReader, crop_digest, pad_crop
from vlmcli.reading import PageJob, PageReading
from vlmcli.results import Seconds

END = 259


@pytest.fixture(scope="module")
def config() -> ModelConfig:
    from vlmcli.engine.loader import read_model_config

    return read_model_config(built_in_path())


@dataclass
class PaperEngine:
    """Writes a scripted answer for each picture, `pace` bytes a step.

    `script` maps the mean grey of a crop and the attempt's temperature to what is written.
    """

    model_config: ModelConfig
    script: Any
    pace: int = 8
    sureness: Any = None
    """Log-probability of every token, from the request; −0.1 without."""
    mend: Any = str
    """What the draft head makes of a text."""
    live: dict[str, tuple[Request, list[int], int]] = field(default_factory=dict)
    temperatures: list[float] = field(default_factory=list)
    longest: int = 0

    def add_request(self, request: Request) -> None:
        assert request.request_id not in self.live
        grey = int(np.median(request.images[0].pixels))
        text = self.script(grey, request.sampling.temperature)
        tokens = list(text.encode())[: request.sampling.max_tokens]
        if len(tokens) < request.sampling.max_tokens:
            tokens.append(END)
        self.temperatures.append(request.sampling.temperature)
        self.live[request.request_id] = (request, tokens, 0)

    def abort_request(self, request_id: str) -> None:
        self.live.pop(request_id, None)

    def step(self) -> list[RequestOutput]:
        outputs = []
        for request_id, (request, tokens, written) in list(self.live.items()):
            written = min(len(tokens), written + self.pace)
            self.longest = max(self.longest, written)
            is_finished = written == len(tokens)
            if is_finished:
                del self.live[request_id]
            else:
                self.live[request_id] = (request, tokens, written)
            shown = tokens[:written]
            outputs.append(
                RequestOutput(
                    request_id=request_id,
                    token_ids=tuple(shown),
                    text=self.decode(shown),
                    finished=is_finished,
                    finish_reason=("stop" if shown[-1] == END else "length")
                    if is_finished
                    else None,
                    logprobs=(self.sureness(request) if self.sureness else -0.1,) * written,
                    num_prompt_tokens=len(request.prompt_token_ids),
                    num_visual_tokens=request.placeholders[0].length,
                    num_cached_tokens=0,
                    num_drafted=0,
                    num_accepted=0,
                    drafted={},
                    agreement={},
                    accepted={},
                    seconds=StageSeconds(encode=1.0),
                )
            )
        return outputs

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token for token in tokens if token < 256).decode(errors="replace")

    def corrected(self, text: str, mm_hash: bytes) -> str:
        assert len(mm_hash) == 32
        return str(self.mend(text))

    def stats(self) -> dict[str, float]:
        return {}


def crop(grey: int, width: int = 300, line: int = 0) -> LineCrop:
    pixels = np.full((28, width), grey, np.uint8)
    return LineCrop(pixels=pixels, bbox=(0, 0, width, 28), line=line, block=0, row=line, cell=None)


def make(
    engine: PaperEngine, *, retries: int = 2, share: bool = True, reread_below: float = 0.0
) -> LineReader:
    guard = Guard(cast(Engine, engine), retries=retries)
    return LineReader(guard, max_tokens=None, share_equal_crops=share, reread_below=reread_below)


def drain(reader: LineReader) -> dict[int, PageReading]:
    readings: dict[int, PageReading] = {}
    for _ in range(10_000):
        if not reader.has_work():
            return readings
        for reading in reader.step():
            assert reading.key not in readings
            readings[reading.key] = reading
    raise AssertionError("the reader does not come to an end")


def test_what_the_draft_head_mends_is_mended_for_all_who_wait(config: ModelConfig) -> None:
    engine = PaperEngine(config, lambda grey, _: f"grey grey {grey}")
    engine.mend = lambda text: text.replace("grey grey", "grey")
    reader = make(engine)
    reader.submit(PageJob(key=1, crops=(crop(10), crop(10, line=1), crop(20, line=2))))
    first = drain(reader)[1]
    reader.submit(PageJob(key=2, crops=(crop(10),)))
    second = drain(reader)[2]
    assert [c.text for c in first.crops] == ["grey 10", "grey 10", "grey 20"]
    assert second.crops == first.crops[:1]


@pytest.mark.parametrize("again", [-0.5, -0.01])
def test_a_doubtful_line_is_read_twice_and_the_surer_reading_counts(
    config: ModelConfig, again: float
) -> None:
    """Crops of one grey are sure at first sight; the others differ by what a second look gives."""
    seen: list[int] = []

    def sureness(request: Request) -> float:
        pixels = request.images[0].pixels
        is_again = pixels.shape[1] > 308
        return again if is_again else (-0.001 if int(np.median(pixels)) == 40 else -0.2)

    engine = PaperEngine(config, lambda grey, _: f"grey {grey} {seen.append(grey) or len(seen)}")
    engine.sureness = sureness
    reader = make(engine, reread_below=0.97)
    reader.submit(PageJob(key=1, crops=(crop(10), crop(40, line=1), crop(10, line=2))))
    reading = drain(reader)[1]
    assert seen == [10, 40, 10]
    texts = [c.text for c in reading.crops]
    assert texts == [f"grey 10 {3 if again > -0.2 else 1}", "grey 40 2", texts[0]]
    assert reading.crops[0].confidence == pytest.approx(np.exp(max(again, -0.2)))
    assert reading.tokens.output == 4 * len("grey 10 1.") + len("grey 40 2.")
    assert reader.stats()["crops_reread"] == 1
    reader.submit(PageJob(key=2, crops=(crop(10),)))
    assert drain(reader)[2].crops == reading.crops[:1]


def test_aborted_while_it_is_read_again_a_page_leaves_nothing(config: ModelConfig) -> None:
    engine = PaperEngine(config, lambda *_: "one line", pace=99)
    reader = make(engine, reread_below=1.0)
    reader.submit(PageJob(key=1, crops=(crop(10),)))
    assert reader.step() == [] and engine.live
    reader.abort(1)
    assert not engine.live and not reader.has_work()


def test_crops_keep_their_places(config: ModelConfig) -> None:
    reader = make(PaperEngine(config, lambda grey, _: f"grey {grey} " + "x" * (grey % 7) * 9))
    reader.submit(PageJob(key=1, crops=tuple(crop(g, line=g) for g in (10, 20, 30))))
    reader.submit(PageJob(key=2, crops=(crop(99),)))
    reader.submit(PageJob(key=3))
    readings = drain(reader)
    assert [c.text.split("x")[0].strip() for c in readings[1].crops] == [
        "grey 10",
        "grey 20",
        "grey 30",
    ]
    assert readings[2].crops[0].text.startswith("grey 99")
    assert readings[3].crops == ()


def test_a_loop_is_stopped_tried_warmer_and_cut(config: ModelConfig) -> None:
    engine = PaperEngine(config, lambda *_: "Dear Sir, " + "a b c " * 100)
    reader = make(engine, retries=2)
    reader.submit(PageJob(key=1, crops=(crop(10, width=1100),)))
    reading = drain(reader)[1]
    assert engine.temperatures == sorted(set(engine.temperatures))
    assert engine.temperatures[0] == 0.0
    assert len(engine.temperatures) == 3
    assert engine.longest < 100, "the loop was stopped long before the token limit"
    assert reading.status == "looped"
    assert reading.attempts == 3
    assert reading.crops[0].text in ("Dear Sir,", "Dear Sir, a b c", "Dear Sir, a b c a b c")
    assert reading.message


@pytest.mark.parametrize("retries", [0, 2])
def test_the_same_answer_however_many_tokens_a_step_brings(
    config: ModelConfig, retries: int
) -> None:
    """A loop that ends by itself is noticed too, in one step or in many."""
    texts = {10: "Dear Sir, " + "a b c " * 25, 20: "Dear Sir, " + "so so " * 100, 30: "fine " * 4}

    def read(pace: int) -> PageReading:
        script = PaperEngine(config, lambda grey, warmth: texts[grey] + "!" * int(warmth > 0), pace)
        reader = make(script, retries=retries)
        crops = tuple(crop(grey, width=1100, line=grey) for grey in texts)
        reader.submit(PageJob(key=1, crops=crops))
        return replace(drain(reader)[1], seconds=Seconds())

    readings = [read(pace) for pace in (1, 8, 23, 1000)]
    assert readings[0].status == "looped"
    assert all(reading == readings[0] for reading in readings)


def test_a_retry_that_ends_well_is_a_good_page(config: ModelConfig) -> None:
    engine = PaperEngine(
        config, lambda _, warmth: "fine" if warmth else "Dear Sir, " + "a b c " * 100
    )
    reader = make(engine)
    reader.submit(PageJob(key=1, crops=(crop(10, width=1100),)))
    reading = drain(reader)[1]
    assert (reading.status, reading.attempts, reading.crops[0].text) == ("ok", 2, "fine")
    assert engine.live == {}


def test_tables_and_leaders_are_not_cut(config: ModelConfig) -> None:
    texts = {10: "0.00 " * 40, 20: "Contents " + "." * 150 + " 7"}
    reader = make(PaperEngine(config, lambda grey, _: texts[grey]))
    reader.submit(PageJob(key=1, crops=(crop(10, 1100), crop(20, 1100, line=1))))
    reading = drain(reader)[1]
    assert reading.status == "ok"
    assert [c.text for c in reading.crops] == [text.strip() for text in texts.values()]


def test_a_line_cut_by_the_token_limit_is_suspect(config: ModelConfig) -> None:
    long = "".join(chr(65 + (i * i) % 57) for i in range(3000))
    reader = make(PaperEngine(config, lambda *_: long))
    reader.submit(PageJob(key=1, crops=(crop(10),)))
    reading = drain(reader)[1]
    assert reading.status == "ok"
    assert reading.suspect == ("truncated",)


@pytest.mark.parametrize("share", [True, False])
def test_equal_crops_are_read_once_and_everybody_gets_the_text(
    config: ModelConfig, share: bool
) -> None:
    engine = PaperEngine(config, lambda grey, _: f"text {grey}")
    reader = make(engine, share=share)
    reader.submit(PageJob(key=1, crops=(crop(10), crop(20, line=1), crop(10, line=2))))
    reader.submit(PageJob(key=2, crops=(crop(10),)))
    first = drain(reader)
    reader.submit(PageJob(key=3, crops=(crop(10), crop(30, line=1))))
    readings = first | drain(reader)
    assert [c.text for c in readings[1].crops] == ["text 10", "text 20", "text 10"]
    assert [c.text for c in readings[2].crops] == ["text 10"]
    assert [c.text for c in readings[3].crops] == ["text 10", "text 30"]
    assert len(engine.temperatures) == (3 if share else 6)
    assert reader.stats()["crops_shared"] == (3 if share else 0)
    # What a page costs in tokens must not depend on who was first.
    one = replace(readings[2].tokens)
    assert readings[1].tokens.output == 3 * one.output
    assert sum(r.seconds.encode for r in readings.values()) == len(engine.temperatures)


def test_no_more_crops_are_remembered_than_there_is_room_for(
    config: ModelConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vlmcli.readers.lines._KNOWN_CROPS", 3)
    engine = PaperEngine(config, lambda grey, _: f"text {grey}")
    reader = make(engine)
    for key, grey in enumerate((10, 20, 30, 40, 40, 30, 10)):
        reader.submit(PageJob(key=key, crops=(crop(grey),)))
        assert [c.text for c in drain(reader)[key].crops] == [f"text {grey}"]
        assert len(reader._known) <= 3
    # The one that was forgotten is read again, those that were not are not.
    assert len(engine.temperatures) == 5


def test_aborting_a_page_frees_its_requests_but_not_shared_ones(config: ModelConfig) -> None:
    engine = PaperEngine(config, lambda grey, _: f"text {grey} " + "abcdefgh" * 5, pace=2)
    reader = make(engine)
    reader.submit(PageJob(key=1, crops=(crop(10), crop(20, line=1))))
    reader.submit(PageJob(key=2, crops=(crop(10),)))
    reader.step()
    assert len(engine.live) == 2
    reader.abort(1)
    assert len(engine.live) == 1
    readings = drain(reader)
    assert set(readings) == {2}
    assert readings[2].crops[0].text.startswith("text 10")
    reader.submit(PageJob(key=4, crops=(crop(20),)))
    assert drain(reader)[4].crops[0].text.startswith("text 20")


def test_digests_tell_size_and_pixels_apart() -> None:
    base = np.zeros((28, 56), np.uint8)
    other = base.copy()
    other[3, 4] = 1
    turned = np.zeros((56, 28), np.uint8)
    assert len({crop_digest(base), crop_digest(other), crop_digest(turned)}) == 3
    assert crop_digest(base) == crop_digest(base.copy())


def test_padding_continues_the_ground() -> None:
    pixels = np.full((28, 30), 231, np.uint8)
    padded = pad_crop(pixels, 28)
    assert padded.shape == (28, 56)
    assert (padded == 231).all()
    assert pad_crop(padded, 28).shape == (28, 56)
