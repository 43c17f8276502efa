"""Readers over an engine made of paper: loops, retries, equal crops, aborts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest

from vlmcli.checkpoint import built_in_path
from vlmcli.documents.lines import LineCrop
from vlmcli.engine.config import EngineConfig, ModelConfig
from vlmcli.engine.correction import Weighed
from vlmcli.engine.engine import Engine
from vlmcli.engine.request import ImageInput, Request, RequestOutput, StageSeconds
from vlmcli.readers.crops import crop_digest, pad_crop
from vlmcli.readers.guard import Guard
from vlmcli.readers.lines import LineReader
from vlmcli.readers.spelling import Change, Words
from vlmcli.reading import OutOfMemoryError, PageJob, PageReading
from vlmcli.results import Seconds

END = 259


@pytest.fixture(scope="module")
def config() -> ModelConfig:
    from vlmcli.engine.loader import read_model_config

    return read_model_config(built_in_path())


def _certain(num_looks: int) -> float:
    return 0.0


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
    has_head: bool = True
    likelihood: Any = _certain
    """ln p of a text by the draft head, from the number of further looks."""
    config: EngineConfig = field(default_factory=EngineConfig)
    looked: list[list[int]] = field(default_factory=list)
    """Columns of the pictures of each batch of further looks."""
    sight: str = "grey {} {}"
    """What a look says, of the mean grey and the width of its picture."""
    suggested: list[list[Change]] = field(default_factory=list)
    """Spellings between which the head had to choose; it takes them all."""
    shortages: list[Exception] = field(default_factory=list)
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

    @property
    def images(self) -> "PaperEngine":
        return self

    def weighed(self, text: str, mm_hash: bytes, looks: Sequence[str] = ()) -> Weighed | None:
        assert len(mm_hash) == 32
        if not self.has_head:
            return None
        return Weighed(looks[-1] if looks else str(self.mend(text)), self.likelihood(len(looks)))

    def respelled(
        self, text: str, changes: list[Change], mm_hash: bytes, looks: Sequence[str]
    ) -> Weighed | None:
        assert len(mm_hash) == 32 and looks
        self.suggested.append(changes)
        for start, stop, other in reversed(changes):
            text = text[:start] + other + text[stop:]
        return Weighed(text, self.likelihood(len(looks)))

    def look(self, images: Sequence[ImageInput]) -> list[str]:
        if self.shortages:
            raise self.shortages.pop()
        self.looked.append([image.pixels.shape[1] // 28 for image in images])
        return [self.sight.format(int(np.median(i.pixels)), i.pixels.shape[1]) for i in images]

    def stats(self) -> dict[str, float]:
        return {}


def crop(grey: int, width: int = 300, line: int = 0) -> LineCrop:
    pixels = np.full((28, width), grey, np.uint8)
    return LineCrop(pixels=pixels, bbox=(0, 0, width, 28), line=line, block=0, row=line, cell=None)


def make(
    engine: PaperEngine,
    *,
    retries: int = 2,
    share: bool = True,
    reread_below: float = 0.0,
    words: Words | None = None,
) -> LineReader:
    guard = Guard(cast(Engine, engine), retries=retries)
    return LineReader(
        guard, max_tokens=None, share_equal_crops=share, reread_below=reread_below, words=words
    )


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


def test_a_line_in_doubt_is_looked_at_until_it_is_believed(config: ModelConfig) -> None:
    """Each look tells another wording and is booked; equal crops are looked at once."""
    engine = PaperEngine(config, lambda grey, _: f"grey {grey}")
    engine.sureness = lambda request: -0.001 if request.images[0].pixels[0, 0] == 40 else -0.2
    engine.likelihood = lambda looks: -1.0 if looks == 0 else 0.0
    reader = make(engine, reread_below=0.96)
    reader.submit(PageJob(key=1, crops=(crop(10), crop(40, line=1), crop(10, line=2))))
    reading = drain(reader)[1]
    # 300 pixels are 11 columns: 308, 8 % wider 333 and so 12 columns, 7 % narrower 286 and so 11.
    assert engine.looked == [[12, 12], [11]]
    assert [c.text for c in reading.crops] == ["grey 10 308", "grey 40 336", "grey 10 308"]
    assert reading.crops[0].confidence == pytest.approx(math.exp(-0.1))
    assert reading.crops[1].confidence == pytest.approx(math.exp(-0.0005))
    assert reading.tokens.visual == 3 * 11 + 2 * (12 + 11) + 12
    assert reading.seconds.encode > 2
    assert reader.stats()["crops_reread"] == 3
    reader.submit(PageJob(key=2, crops=(crop(10),)))
    assert drain(reader)[2].crops == reading.crops[:1]
    assert reader.stats()["crops_reread"] == 3


def test_words_are_looked_up_where_all_looks_leave_a_line_in_doubt(config: ModelConfig) -> None:
    """Not in lines that are believed, at first sight or at a look; for equal crops once."""
    engine = PaperEngine(config, lambda grey, _: f"grey qrey grey {grey}")
    engine.sight = "grey qrey grey {}"
    engine.sureness = lambda request: -0.001 if request.images[0].pixels[0, 0] == 40 else -0.2
    reader = make(engine, reread_below=0.96, words=Words(["grey"]))
    reader.submit(PageJob(key=1, crops=(crop(10), crop(40, line=1), crop(10, line=2))))
    texts = [c.text for c in drain(reader)[1].crops]
    assert texts == ["grey grey grey 10", "grey qrey grey 40", "grey grey grey 10"]
    assert engine.suggested == [[(5, 9, "grey")]]
    engine.likelihood = lambda looks: 0.0
    engine.sureness = lambda request: -0.001
    reader.submit(PageJob(key=2, crops=(crop(20),)))
    assert drain(reader)[2].crops[0].text == "grey qrey grey 20"
    assert len(engine.suggested) == 1


def test_nobody_looks_again_where_it_could_change_nothing(config: ModelConfig) -> None:
    """Lines that are believed, loops, and models without a draft head."""
    believed = PaperEngine(config, lambda *_: "a line")
    looped = PaperEngine(config, lambda *_: "a b c " * 60)
    headless = PaperEngine(config, lambda *_: "a line", has_head=False)
    for engine, below in ((believed, 0.5), (looped, 1.0)):
        reader = make(engine, reread_below=below, retries=0)
        reader.submit(PageJob(key=1, crops=(crop(10, width=1100),)))
        assert drain(reader)[1].crops and not engine.looked
    reader = make(headless, reread_below=1.0)
    reader.submit(PageJob(key=1, crops=(crop(10),)))
    assert [c.text for c in drain(reader)[1].crops] == ["a line"]


def test_looks_go_together_as_far_as_an_encoder_batch_goes(config: ModelConfig) -> None:
    engine = PaperEngine(config, lambda grey, _: f"grey {grey}", pace=99)
    engine.config = EngineConfig(max_encoder_tokens=24)
    reader = make(engine, reread_below=1.0)
    crops = tuple(crop(grey, line=grey) for grey in range(5))
    reader.submit(PageJob(key=1, crops=crops))
    assert len(drain(reader)[1].crops) == 5
    assert all(sum(batch) <= 24 for batch in engine.looked)
    assert sum(map(len, engine.looked)) == 10
    reader.submit(PageJob(key=2, crops=(crop(99, width=1100),)))
    assert drain(reader)[2].crops and max(map(sum, engine.looked)) > 24


def test_aborted_while_it_is_in_doubt_a_page_leaves_nothing(config: ModelConfig) -> None:
    engine = PaperEngine(config, lambda grey, _: f"grey {grey}", pace=99)
    engine.config = EngineConfig(max_encoder_tokens=12)
    reader = make(engine, reread_below=1.0)
    shared = crop(10)
    reader.submit(PageJob(key=1, crops=(shared, crop(20, line=1))))
    reader.submit(PageJob(key=2, crops=(shared,)))
    assert reader.step() == [] and not engine.live
    reader.abort(1)
    readings = drain(reader)
    assert list(readings) == [2] and readings[2].crops[0].text.startswith("grey 10")
    assert sum(map(len, engine.looked)) == 2


def test_a_shortage_of_memory_in_a_look_loses_nothing(config: ModelConfig) -> None:
    engine = PaperEngine(config, lambda grey, _: f"grey {grey}", pace=99)
    engine.shortages = [MemoryError("can't allocate memory")]
    reader = make(engine, reread_below=0.97)
    reader.submit(PageJob(key=1, crops=(crop(10), crop(20, line=1))))
    with pytest.raises(OutOfMemoryError):
        reader.step()
    texts = [c.text for c in drain(reader)[1].crops]
    assert texts == ["grey 10 308", "grey 20 308"]


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
