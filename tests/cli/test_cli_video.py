"""A video as users read it: a page for what is on display, the same whoever draws it."""

import json

import numpy as np
import pytest
from command_line import ROOT, read_records, without_history
from jsonschema import Draft202012Validator
from PIL import Image, ImageDraw, ImageFont
from video_kit import write_video

SCHEMA = json.loads((ROOT / "docs/record.schema.json").read_text())
SLIDES = (
    ["Memory is planned", "before anything is loaded"],
    ["Pages are never lost", "nor are they invented"],
    ["Nothing is done twice", "and nothing is guessed"],
)


def slide(lines: list[str]) -> np.ndarray:
    image = Image.new("RGB", (640, 360), (250, 250, 245))
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(34)
    for number, line in enumerate(lines):
        draw.text((40, 80 + 70 * number), line, font=font, fill=(20, 20, 60))
    return np.asarray(image)[:, :, ::-1]


@pytest.fixture(scope="module")
def talk(tmp_path_factory):
    """Three slides of four seconds each, five frames a second, with a little noise."""
    rng = np.random.default_rng(0)

    def frames():
        for lines in SLIDES:
            still = slide(lines).astype(np.int16)
            for _ in range(20):
                noisy = still + rng.integers(-2, 3, still.shape, dtype=np.int16)
                yield np.clip(noisy, 0, 255).astype(np.uint8)

    return write_video(tmp_path_factory.mktemp("talk") / "talk.mp4", frames(), code="mp4v", rate=5)


def test_a_record_for_every_page_whoever_draws_it(real, talk):
    args = (str(talk), "--frame-interval", "2", "--reuse", "off")
    alone = real.records(*args, "--jobs", "1")
    assert [record["time"] for record in alone] == [0, 2, 4, 6, 8, 10]
    assert [record["page"] for record in alone] == [1, 2, 3, 4, 5, 6]
    assert {record["pages"] for record in alone} == {6}
    for record in alone:
        assert not [error.message for error in Draft202012Validator(SCHEMA).iter_errors(record)]
        assert record["width"] == 640 and record["dpi"] is None
    assert "planned" in alone[0]["text"] and "twice" in alone[5]["text"]
    together = real.records(*args, "--jobs", "3")
    assert without_history(together) == without_history(alone)


def test_a_slide_that_stays_is_read_once(real, talk):
    records = real.records(str(talk), "--jobs", "1")
    assert [record["time"] for record in records] == list(range(12))
    assert [record["source"] for record in records if record["time"] % 4 == 0] == ["model"] * 3
    reused = [record for record in records if record["source"] == "reuse"]
    assert len(reused) >= 6
    for record in reused:
        assert record["reuse"]["from"]["page"] == 1 + record["time"] // 4 * 4


def test_lecture_says_when_a_slide_was_on(real, talk):
    done = real("ocr", str(talk), "--recipe", "lecture")
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    marks = ["<!-- page 1, 0:00:00 -->", "<!-- page 2, 0:00:05 -->", "<!-- page 3, 0:00:10 -->"]
    assert [line for line in text.splitlines() if line.startswith("<!--")] == marks


def test_plan_knows_the_pages_before_anything_is_drawn(real, talk):
    done = real("plan", str(talk), "--frame-interval", "2", "--json")
    assert done.returncode == 0
    plan = json.loads(done.stdout)
    assert plan["num_pages"] == 6


def test_pages_can_be_chosen_and_a_pipe_will_do(real, talk):
    args = ("-", "--frame-interval", "2", "--pages", "2,5-end")
    done = real("ocr", *args, "-f", "jsonl", input=talk.read_bytes())
    assert done.returncode == 0, done.stderr
    records = read_records(done.stdout)
    assert [(r["document"], r["page"], r["time"]) for r in records] == [
        ("-", 2, 2.0),
        ("-", 5, 8.0),
        ("-", 6, 10.0),
    ]


def test_what_cannot_be_read_says_so_and_the_others_are_read(real, talk):
    (real.folder / "cut.mp4").write_bytes(talk.read_bytes()[:-1000])
    done = real("ocr", "cut.mp4")
    assert done.returncode == 3 and done.stdout == b""
    assert b"cut.mp4: damaged or truncated video" in done.stderr
    records = real.records("cut.mp4", str(talk), "--frame-interval", "6", code=5)
    assert [record["status"] for record in records] == ["error", "ok", "ok"]


def test_a_video_has_no_pdf(real, talk):
    done = real("ocr", str(talk), "-f", "pdf", "-o", "talk.pdf")
    assert done.returncode == 2 and b"no PDF form" in done.stderr
    assert list(real.folder.iterdir()) == []
