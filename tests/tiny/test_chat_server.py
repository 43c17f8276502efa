"""`vlmcli serve` with a page-reading checkpoint: answers to questions, streamed as they come."""

import base64
import io
import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from asking import ask, pictures, write_page_checkpoint
from PIL import Image

QUESTION = "What is this?"
TOKENS = 24


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return write_page_checkpoint(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def url(checkpoint):
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "vlmcli", "serve", "--port", "0", "--threads", "1"),
            *("--model", str(checkpoint), "--max-pixels", "100000", "--max-tokens", "64"),
        ],
        env=os.environ | {"PYTHONPATH": str(root), "TMPDIR": str(checkpoint.parent)},
        stderr=subprocess.PIPE,
    )
    try:
        found = None
        while found is None and (line := process.stderr.readline()):
            found = re.search(rb"(http://\S+/v1)", line)
        assert found, process.wait()
        yield found[1].decode()
    finally:
        process.kill()
        process.communicate()


def post(url: str, picture, **more) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    link = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    parts = [{"type": "image_url", "image_url": {"url": link}}, {"type": "text", "text": QUESTION}]
    data = {"model": "tiny", "messages": [{"role": "user", "content": parts}], **more}
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(data).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read()


def test_whole_and_streamed_answers_are_those_of_ask(checkpoint, url):
    (picture,) = pictures(1)
    expected = ask(checkpoint, (QUESTION,), [picture], max_tokens=TOKENS).readings[0]
    whole = json.loads(post(url, picture, max_tokens=TOKENS))
    text = whole["choices"][0]["message"]["content"]
    assert text.strip() == expected.answers[0].text
    assert whole["usage"]["completion_tokens"] == expected.tokens.output
    streamed = post(url, picture, max_tokens=TOKENS, stream=True).decode().strip().split("\n\n")
    assert streamed.pop() == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: "))["choices"][0] for line in streamed]
    pieces = [chunk["delta"].get("content", "") for chunk in chunks]
    assert "".join(pieces) == text
    assert len([piece for piece in pieces if piece]) > 3, "nothing was streamed"
    assert chunks[-1]["finish_reason"] == whole["choices"][0]["finish_reason"]


def test_sampling_is_repeatable(url):
    (picture,) = pictures(1)
    texts = [
        json.loads(post(url, picture, temperature=1.5, seed=seed, max_tokens=TOKENS))["choices"]
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_a_blank_picture_is_asked_about_all_the_same(url):
    (picture,) = pictures(1)
    answer = json.loads(post(url, picture * 0 + 255, max_tokens=3))
    assert answer["usage"]["completion_tokens"] >= 1
