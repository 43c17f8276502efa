"""The built-in checkpoint: transformers loads it as it is, both sides agree, and it can read."""

import difflib
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont
from tiny_checkpoints import (
    Chunk,
    as_input,
    load_reference,
    load_runner,
    make_batch,
    make_prompt,
    reference_logits,
)

import vlmcli
from vlmcli.engine.preprocess import pad_line
from vlmcli.engine.tokenizer import load_tokenizer

NANO = Path(vlmcli.__file__).parent / "nano"
TEXT = "in the days of the old king"
TOLERANCE = 1e-5


def picture_of(text, height=28):
    """A line of black text on white in Pillow's own font, padded to whole columns."""
    font = ImageFont.load_default(21)
    width = int(font.getlength(text)) + 12
    image = Image.new("L", (width, height), 255)
    ImageDraw.Draw(image).text((6, 1), text, font=font, fill=0)
    return pad_line(np.asarray(image), 28)


@pytest.fixture(scope="module")
def runner():
    return load_runner(NANO, num_blocks=40)


def likeness(text):
    return difflib.SequenceMatcher(None, text, TEXT).ratio()


def greedy(runner, picture, limit=60):
    """Bytes that the decoder writes for a line, one step at a time."""
    prompt = make_prompt(runner, [picture])
    head = runner.model_config.draft_head
    if head is not None:
        (draft,) = runner.draft(runner.encode([as_input(picture)]))
        prompt.ids.extend(head.in_prompt(draft))
    blocks = tuple(range(1, 20))
    done, ids = 0, []
    while len(ids) < limit:
        logits = runner.execute(make_batch(runner, [Chunk(prompt, done, len(prompt.ids), blocks)]))
        token = int(logits[-1].argmax())
        if token in runner.model_config.eos_token_ids:
            break
        ids.append(token)
        done = len(prompt.ids)
        prompt.ids.append(token)
    return ids


def test_transformers_loads_it_and_agrees(runner, caplog):
    with caplog.at_level(logging.WARNING):
        reference = load_reference(NANO)
    assert not caplog.records, "transformers complains about the checkpoint"
    for text in (TEXT, "1", "No. 47, Grüße & more"):
        prompt = make_prompt(runner, [picture_of(text)])
        prompt.ids.extend(text.encode())
        ours = runner.execute(
            make_batch(runner, [Chunk(prompt, 0, len(prompt.ids), tuple(range(1, 20)))])
        )
        theirs = reference_logits(reference, runner, prompt)
        scale = theirs.abs().max().item()
        torch.testing.assert_close(ours, theirs, atol=TOLERANCE * scale, rtol=0)
        assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


def test_it_reads_a_clean_line(runner):
    tokenizer = load_tokenizer(NANO)
    read = tokenizer.decode(greedy(runner, picture_of(TEXT)))
    assert likeness(read) > 0.9, read


def test_draft_head_guesses_the_line(runner):
    embeds = runner.encode([as_input(picture_of(TEXT))])
    guess = bytes(runner.draft(embeds)[0]).decode(errors="replace")
    assert likeness(guess) > 0.8, guess


def test_small_enough_for_the_wheel():
    assert sum(file.stat().st_size for file in NANO.rglob("*") if file.is_file()) < 12 << 20
