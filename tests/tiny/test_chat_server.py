"""`vlmcli serve` with a page-reading checkpoint: answers to questions, streamed as they come."""

from pathlib import Path

import pytest
from asking import ask, pictures, write_page_checkpoint
from PIL import Image
from serving import content, data_url, question, serving

QUESTION = "What is this?"
TOKENS = 24


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return write_page_checkpoint(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def server(checkpoint):
    limits = ("--max-pixels", "100000", "--max-tokens", "64")
    with serving(checkpoint.parent, "--model", str(checkpoint), *limits) as running:
        yield running


@pytest.fixture
def asked(tmp_path):
    """Makes a request about a picture."""

    def make(picture, **more) -> dict:
        Image.fromarray(picture).save(tmp_path / "page.png")
        data = question(data_url(tmp_path / "page.png"), words=QUESTION, **more)
        return {**data, "model": "tiny"}

    return make


def test_whole_and_streamed_answers_are_those_of_ask(checkpoint, server, asked):
    (picture,) = pictures(1)
    expected = ask(checkpoint, (QUESTION,), [picture], max_tokens=TOKENS).readings[0]
    data = asked(picture, max_tokens=TOKENS)
    whole = server.post(data)[1]
    text = content(whole)
    assert text.strip() == expected.answers[0].text
    assert whole["usage"]["completion_tokens"] == expected.tokens.output
    chunks = [chunk["choices"][0] for chunk in server.stream(data)]
    pieces = [chunk["delta"].get("content", "") for chunk in chunks]
    assert "".join(pieces) == text
    assert len([piece for piece in pieces if piece]) > 3, "nothing was streamed"
    assert chunks[-1]["finish_reason"] == whole["choices"][0]["finish_reason"]


def test_sampling_is_repeatable(server, asked):
    (picture,) = pictures(1)
    texts = [
        server.post(asked(picture, temperature=1.5, seed=seed, max_tokens=TOKENS))[1]["choices"]
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_a_blank_picture_is_asked_about_all_the_same(server, asked):
    (picture,) = pictures(1)
    answer = server.post(asked(picture * 0 + 255, max_tokens=3))[1]
    assert answer["usage"]["completion_tokens"] >= 1
