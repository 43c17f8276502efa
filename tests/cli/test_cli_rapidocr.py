"""`--model rapidocr` as users meet it: the records, the store and the plan of any other model."""

import json

import pytest
from PIL import Image, ImageDraw, ImageFont

pytest.importorskip("rapidocr")
pytest.importorskip("onnxruntime")

WORDS = ("Invoice 4711", "Total 12.50 EUR", "Thank you")


@pytest.fixture
def pictures(real):
    """Two pictures with the same three lines, one of them larger, and a blank one."""
    font = ImageFont.load_default(size=36)
    for name, height in (("a.png", 300), ("b.png", 420)):
        image = Image.new("RGB", (600, height), "white")
        pen = ImageDraw.Draw(image)
        for row, words in enumerate(WORDS):
            pen.text((40, 30 + 80 * row), words, fill="black", font=font)
        image.save(real.folder / name)
    Image.new("L", (300, 300), 255).save(real.folder / "c.png")
    return ("a.png", "b.png", "c.png")


def test_records_reuse_and_plan_are_those_of_any_model(real, pictures):
    env = {"VLMCLI_CACHE_DIR": str(real.folder / "store")}
    args = (*pictures, "--model", "rapidocr", "--threads", "1", "--jobs", "1")
    records = real.records(*args, "--stats", "stats.json", env=env)
    assert [(r["document"], r["status"]) for r in records] == [
        ("a.png", "ok"),
        ("b.png", "ok"),
        ("c.png", "blank"),
    ]
    for record in records[:2]:
        assert record["model"].startswith("rapidocr@") and record["source"] == "model"
        assert [line["text"] for line in record["lines"]] == list(WORDS)
        assert record["text"].split() == " ".join(WORDS).split()
        for row, line in enumerate(record["lines"]):
            x0, y0, x1, y1 = line["bbox"]
            assert 0 <= x0 < x1 <= record["width"] and 0 <= y0 < y1 <= record["height"]
            assert y0 <= 30 + 80 * row + 20 <= y1
            assert 0.5 <= line["confidence"] <= 1
        assert record["reuse"]["kind"] == "none"
    stats = json.loads((real.folder / "stats.json").read_text())
    assert (stats["pages_read"], stats["lines_read"]) == (2, 6)
    assert stats["memory_peak_bytes"] <= stats["memory_planned_bytes"]
    again = real.records(*args, env=env)
    assert [r["reuse"]["kind"] for r in again] == ["exact", "exact", "none"]
    assert [r["lines"] for r in again] == [r["lines"] for r in records]
    other = real.records("a.png", "--jobs", "1", env=env)
    assert other[0]["model"].startswith("nano@") and other[0]["source"] == "model"


def test_a_page_that_takes_too_long_says_so(real, pictures):
    done = real(
        *("ocr", "a.png", "c.png", "--model", "rapidocr", "--jobs", "1", "--text-layer", "ignore"),
        *("--page-timeout", "0.1", "-f", "jsonl"),
    )
    assert done.returncode == 5, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["status"] == "timeout" and first["text"] == ""
    assert second["status"] in ("blank", "timeout")


def test_a_cap_that_is_too_small_is_refused_before_anything_is_loaded(real, pictures):
    done = real(
        "ocr", "a.png", "-m", "rapidocr", "--text-layer", "ignore", "--max-memory", "256MiB"
    )
    assert done.returncode == 6, done.stderr
    assert b"does not fit" in done.stderr
