"""The whole way with the real model: documents in, records and files out. No exact text expected.

One job over a folder with every kind of input is run once and looked at from all sides; other runs
must agree with it.
"""

import difflib
import json
import shlex
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from command_line import ROOT, RealCli, read_records, without_history, without_seconds
from jsonschema import Draft202012Validator
from PIL import Image, ImageDraw
from real_documents import LINES, write_frames, write_pages, write_text_pdf

SCHEMA = json.loads((ROOT / "docs/record.schema.json").read_text())

NAMES = ["b/letter.pdf", "b/letter.png", "b/p2.tiff", "b/p10.pdf", "born.pdf"]
"""The documents below `docs` in natural order."""
NUM_PAGES = [3, 1, 3, 1, 2]
SCAN = "docs/b/letter.pdf"


def write_documents(folder: Path) -> None:
    below = folder / "docs" / "b"
    below.mkdir(parents=True)
    write_pages(below / "letter.pdf", [1, 2, 1])
    write_frames(below / "letter.png", [LINES])
    write_frames(below / "p2.tiff", [LINES[:1], [], LINES[1:2]])
    write_pages(below / "p10.pdf", [9])
    write_text_pdf(folder / "docs" / "born.pdf", ["Written, not printed", "Second page"])
    (folder / "docs" / ".hidden.pdf").write_bytes((below / "p10.pdf").read_bytes())
    (folder / "docs" / "notes.txt").write_text("no document")


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A folder in which `ocr docs -o out` has been run in three formats, without a network."""
    cli = RealCli(tmp_path_factory.mktemp("job"))
    write_documents(cli.folder)
    args = ["ocr", "docs", "-o", "out", "-f", "jsonl", "-f", "text", "-f", "markdown"]
    done = subprocess.run(
        [*no_network(), *cli.command(*args, "--stats", "stats.json", "-v", fake=False)],
        cwd=cli.folder,
        env=cli.environment(),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == b""
    return cli


def no_network() -> list[str]:
    """A prefix for commands that takes the network away, where this machine lets us."""
    prefix = ["unshare", "--map-root-user", "--net"]
    is_there = shutil.which("unshare") is not None
    works = is_there and subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    return prefix if works else []


def output(job: RealCli, name: str, suffix: str) -> Path:
    stem = {"b/letter.pdf": "b/letter.pdf", "b/letter.png": "b/letter.png"}.get(
        name, name.rpartition(".")[0]
    )
    return job.folder / "out" / (stem + suffix)


def all_records(job: RealCli) -> list[dict]:
    return [r for name in NAMES for r in read_records(output(job, name, ".jsonl").read_bytes())]


def test_every_document_has_its_files_and_nothing_else_is_there(job):
    expected = {output(job, name, end) for name in NAMES for end in (".jsonl", ".txt", ".md")}
    assert {path for path in (job.folder / "out").rglob("*") if path.is_file()} == expected


def test_every_page_has_its_record_in_order(job):
    for name, num_pages in zip(NAMES, NUM_PAGES, strict=True):
        records = read_records(output(job, name, ".jsonl").read_bytes())
        assert [record["page"] for record in records] == list(range(1, num_pages + 1))
        assert {record["pages"] for record in records} == {num_pages}
        assert {record["document"] for record in records} == {f"docs/{name}"}


def test_records_are_as_the_published_schema_says(job):
    Draft202012Validator.check_schema(SCHEMA)
    validator = Draft202012Validator(SCHEMA)
    for record in all_records(job):
        assert not [error.message for error in validator.iter_errors(record)]
        assert list(record) == SCHEMA["required"]


def test_pages_are_answered_by_whoever_can(job):
    found = [(record["status"], record["source"]) for record in all_records(job)]
    assert found == [
        *(("ok", "model"), ("ok", "model"), ("ok", "reuse")),
        ("ok", "model"),
        *(("ok", "model"), ("blank", None), ("ok", "model")),
        ("ok", "model"),
        *(("ok", "text-layer"),) * 2,
    ]
    models = {record["model"] for record in all_records(job)}
    assert len(models) == 2 and None in models
    assert all(model is None or model.startswith("nano@") for model in models)


def likeness(text: str, truth: str) -> float:
    return difflib.SequenceMatcher(None, text.lower(), truth.lower(), autojunk=False).ratio()


def test_large_clean_print_is_read(job):
    records = {(r["document"], r["page"]): r["text"] for r in all_records(job)}
    assert likeness(records["docs/b/letter.png", 1], "\n".join(LINES)) > 0.7
    assert likeness(records["docs/b/p2.tiff", 1], LINES[0]) > 0.7
    assert likeness(records["docs/b/p2.tiff", 3], LINES[1]) > 0.7
    assert records["docs/born.pdf", 1] == "Written, not printed"


def test_lines_have_boxes_on_the_page_and_make_up_the_text(job):
    for record in all_records(job):
        for line in record["lines"]:
            x0, y0, x1, y1 = line["bbox"]
            assert 0 <= x0 < x1 <= record["width"] and 0 <= y0 < y1 <= record["height"]
        texts = [line["text"] for line in record["lines"]]
        assert "".join(record["text"].split()) == "".join("".join(texts).split())
        tops = [line["bbox"][1] for line in record["lines"]]
        assert tops == sorted(tops)


def test_equal_pages_have_equal_texts_and_others_have_their_own(job):
    first, second, third = read_records(output(job, "b/letter.pdf", ".jsonl").read_bytes())
    assert first["text"] == third["text"] != second["text"]
    assert first["lines"] == third["lines"] and first["model"] == third["model"]
    assert third["reuse"] == {
        "kind": "exact",
        "from": {"document": first["document"], "page": 1},
        "verified_by": "sha256",
    }
    spent = first["tokens"].keys() - {"sources"}
    assert third["tokens"] == dict.fromkeys(spent, 0) and third["attempts"] == 0


def test_all_formats_say_the_same(job):
    for name in NAMES:
        texts = [r["text"] for r in read_records(output(job, name, ".jsonl").read_bytes())]
        pages = output(job, name, ".txt").read_text().split("\f")
        assert [page.strip("\n") for page in pages] == [text.strip("\n") for text in texts]
        markdown = output(job, name, ".md").read_text()
        marks = [f"<!-- page {n} -->" for n in range(1, len(texts) + 1)]
        assert [line for line in markdown.splitlines() if line.startswith("<!--")] == marks


def test_the_stats_count_the_job(job):
    stats = json.loads((job.folder / "stats.json").read_text())
    wanted = {"pages": 10, "failed": 0, "blank": 1, "resumed": 0, "documents": 5}
    assert {name: stats[name] for name in wanted} == wanted
    assert stats["seconds"] > 0 and stats["seconds_render"] > 0
    records = [
        one for name in NAMES for one in read_records(output(job, name, ".jsonl").read_bytes())
    ]
    for field in ("status", "source"):
        counted = Counter(one[field] or "none" for one in records)
        assert {name: count for name, count in stats[field].items() if count} == counted
    assert stats["pages_per_minute"] > 0
    assert stats["bottleneck"] in ("render", "encode", "prefill", "decode", "write")
    assert stats["memory_peak_bytes"] > 0 and stats["memory_planned_bytes"] > 0


def test_alone_as_among_others(job):
    alone = job.records(SCAN)
    in_company = read_records(output(job, "b/letter.pdf", ".jsonl").read_bytes())
    assert without_history(alone) == without_history(in_company)


@pytest.mark.slow
def test_where_every_page_is_read_two_runs_differ_in_seconds_alone(job):
    first, second = (job.records(SCAN, "--reuse", "off", "-j", str(jobs)) for jobs in (1, 3))
    assert without_seconds(first) == without_seconds(second)
    assert {record["reuse"]["kind"] for record in first} == {"none"}


@pytest.mark.parametrize("option", ["--drafts=off", "--reuse=off"])
def test_what_saves_time_changes_no_text(job, option):
    expected = read_records(output(job, "b/letter.pdf", ".jsonl").read_bytes())
    found = job.records(SCAN, option, "--jobs", "2", "--threads", "1")
    assert without_history(found) == without_history(expected)
    is_drafted = sum(record["tokens"]["drafted"] for record in found) > 0
    assert is_drafted == (option != "--drafts=off")


def test_stdin_and_a_reader_that_stops_early(job):
    command = shlex.join(job.command("ocr", "-", "-f", "jsonl", fake=False))
    script = f"set -o pipefail; cat {SCAN} | {command} | head -1"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=job.folder,
        env=job.environment(),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    (record,) = read_records(done.stdout)
    expected = read_records(output(job, "b/letter.pdf", ".jsonl").read_bytes())
    assert record.pop("document") == "-"
    assert expected[0].pop("document") == SCAN
    assert without_history([record]) == without_history(expected[:1])


def test_selected_pages_and_one_file_for_all(job):
    names = ["docs/born.pdf", "docs/b/p2.tiff"]
    done = job("ocr", *names, "--pages", "2", "-o", "two.md", "-f", "markdown", "-f", "jsonl")
    assert done.returncode == 0, done.stderr.decode()
    records = read_records((job.folder / "two.jsonl").read_bytes())
    assert [(r["document"], r["page"], r["status"]) for r in records] == [
        (names[0], 2, "ok"),
        (names[1], 2, "blank"),
    ]
    markdown = (job.folder / "two.md").read_text()
    assert markdown.index(names[0]) < markdown.index("Second page") < markdown.index(names[1])


@pytest.mark.slow
def test_a_drawing_without_text_is_doubted_and_a_scan_is_not(real, tmp_path):
    """Strokes that the line finder takes for writing: the model makes something of them."""
    rng = np.random.default_rng(1)
    drawing = Image.new("L", (900, 900), 200)
    draw = ImageDraw.Draw(drawing)
    for x, y, dx, dy, grey in rng.integers(
        (0, 0, -40, -40, 0), (900, 900, 40, 40, 255), (2500, 5)
    ).tolist():
        draw.line((x, y, x + dx, y + dy), fill=grey, width=3)
    drawing.save(tmp_path / "drawing.png")
    scan, drawing_read = real.records(
        str(ROOT / "samples" / "scan.pdf"), "drawing.png", "--text-layer", "ignore"
    )
    assert scan["suspect"] == []
    assert drawing_read["text"] and "low-confidence" in drawing_read["suspect"]
