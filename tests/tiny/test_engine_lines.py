"""The built-in model through the whole engine: its draft head changes the cost, not the text."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from tiny_checkpoints import as_input

import vlmcli
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.preprocess import pad_line
from vlmcli.engine.request import PlaceholderRange, Request, SamplingParams

NANO = Path(vlmcli.__file__).parent / "nano"
TEXT = (
    "it was the first of many letters that nobody had asked for and yet everyone was glad to read "
    "when the long evenings came and the harbour lay still under a thin sheet of ice"
)


def line(index: int) -> np.ndarray:
    rng = np.random.default_rng(index)
    words = TEXT.split()
    start = int(rng.integers(0, len(words) - 8))
    text = " ".join(words[start : start + int(rng.integers(1, 8))])
    font = ImageFont.load_default(21)
    image = Image.new("L", (int(font.getlength(text)) + 12, 28), 255)
    ImageDraw.Draw(image).text((6, 1), text, font=font, fill=0)
    return pad_line(np.asarray(image), 28)


def requests_for(engine: Engine, num: int) -> list[Request]:
    config = engine.model_config
    requests = []
    for i in range(num):
        pixels = line(i)
        size = pixels.shape[1] // 28
        requests.append(
            Request(
                request_id=f"{i}",
                prompt_token_ids=[
                    config.vision_start_token_id,
                    *[config.image_token_id] * size,
                    config.vision_end_token_id,
                ],
                images=(as_input(pixels),),
                placeholders=(PlaceholderRange(offset=1, length=size, grid=(1, 1, size)),),
                sampling=SamplingParams(max_tokens=8 * size),
            )
        )
    return requests


@pytest.fixture(scope="module")
def plain():
    engine = Engine.from_checkpoint(NANO, EngineConfig(enable_drafts=False))
    return engine, engine.generate(requests_for(engine, 16))


@pytest.mark.parametrize("max_num_seqs", [64, 4])
def test_drafts_of_the_head_save_passes_and_change_nothing(plain, max_num_seqs):
    engine = Engine.from_checkpoint(NANO, EngineConfig(max_num_seqs=max_num_seqs))
    outputs = engine.generate(requests_for(engine, 16))
    without, want = plain
    assert [o.token_ids for o in outputs] == [o.token_ids for o in want]
    assert [o.text for o in outputs] == [o.text for o in want]
    stats = engine.stats()
    assert stats["accepted_tokens"] > 0.4 * stats["output_tokens"]
    assert stats["decoder_batches"] < without.stats()["decoder_batches"] * (64 // max_num_seqs)
    engine.check_integrity()


def test_the_text_of_a_line_is_what_its_tokens_say(plain):
    engine, outputs = plain
    for output in outputs:
        assert output.text == engine.decode(output.token_ids)
    joined = " ".join(output.text for output in outputs)
    assert sum(word in joined for word in ("letters", "evenings", "harbour", "everyone")) >= 2
