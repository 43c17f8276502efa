"""The memory cap as users meet it: refused with a line to paste, or kept to the end."""

import json
import re
import resource
import shlex
import sys

import pymupdf
import pytest
from command_line import read_records
from PIL import Image, ImageDraw, ImageFont
from real_documents import write_pages, write_text_pdf

from vlmcli.bench.rss import run_measured
from vlmcli.checkpoint import built_in_path
from vlmcli.memory.gate import MemoryGate
from vlmcli.memory.request import PlanRequest, make_planner

MIB = 1 << 20
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, sets limits")


def plan_of(real, *args: str) -> dict:
    return json.loads(real("plan", *args, "--json").stdout)


def printed(width: int, height: int) -> Image.Image:
    """A sheet with a few lines of print."""
    sheet = Image.new("L", (width, height), 255)
    font = ImageFont.load_default(size=height // 50)
    for line in range(6):
        at = (width // 10, height // 9 * (line + 1))
        ImageDraw.Draw(sheet).text(at, "the quick brown fox jumps", font=font, fill=0)
    return sheet


def test_a_job_beyond_the_cap_is_refused_and_the_pasted_remedy_does_it(real) -> None:
    write_pages(real.folder / "my scan.pdf", range(2))
    args = ("my scan.pdf", "--text-layer", "ignore", "-f", "jsonl", "-o", "the text.jsonl")
    done = real("ocr", *args, "--max-memory", "300MiB")
    assert done.returncode == 6
    assert done.stdout == b""
    said = done.stderr.decode()
    assert "does not fit" in said and "300.0 MiB are there" in said
    assert "Traceback" not in said
    assert [path.name for path in real.folder.iterdir()] == ["my scan.pdf"]
    (line,) = [line for line in said.splitlines() if line.startswith("    vlmcli ocr")]
    program, *words = shlex.split(line)
    assert program == "vlmcli"
    again = real(*words)
    assert again.returncode == 0, again.stderr.decode()
    records = read_records((real.folder / "the text.jsonl").read_bytes())
    assert [record["page"] for record in records] == [1, 2]
    assert {record["source"] for record in records} == {"model"}


def test_text_layers_are_read_where_the_model_would_not_fit(real) -> None:
    write_text_pdf(real.folder / "born.pdf", ["the first page", "the second"])
    for mode in ("auto", "only"):
        done = real("ocr", "born.pdf", "--max-memory", "300MiB", "--text-layer", mode)
        assert done.returncode == 0, done.stderr.decode()
        assert b"the second" in done.stdout
    done = real("ocr", "born.pdf", "--max-memory", "90MiB")
    assert done.returncode == 6
    assert "drawing the pages takes" in done.stderr.decode()


def test_a_scan_among_text_is_refused_before_weights_are_loaded(real) -> None:
    write_pages(real.folder / "scan.pdf", [3])
    write_text_pdf(real.folder / "born.pdf", ["only words here"])
    env = {"PYTHONPROFILEIMPORTTIME": "1"}
    args = ("born.pdf", "scan.pdf", "--max-memory", "300MiB", "-o", "out/")
    done = real("ocr", *args, env=env)
    assert done.returncode == 6
    said = done.stderr.decode()
    assert "does not fit" in said
    assert "safetensors" not in said and "torch.nn" not in said
    assert not list(real.folder.rglob("*.txt"))


@linux
def test_a_job_under_the_tightest_cap_that_it_is_granted_stays_below(real) -> None:
    scan = write_pages(real.folder / "scan.pdf", range(8), lines=6)
    least = plan_of(real, "scan.pdf", "--jobs", "1")["minimum_bytes"]
    assert plan_of(real, "scan.pdf", "--jobs", "1", "--max-memory", str(least))["fits"]
    assert not plan_of(real, "scan.pdf", "--jobs", "1", "--max-memory", str(least - 1))["fits"]
    out, stats = real.folder / "out.jsonl", real.folder / "stats.json"
    row = run_measured(
        real.command(
            *("ocr", str(scan), "--text-layer", "ignore", "--jobs", "1", "-f", "jsonl"),
            *("-o", str(out), "--max-memory", str(least), "--stats", str(stats)),
            fake=False,
        ),
        env=real.environment(),
    )
    assert row.returncode == 0
    records = read_records(out.read_bytes())
    assert [record["page"] for record in records] == list(range(1, 9))
    assert {record["status"] for record in records} <= {"ok", "looped"}
    figures = json.loads(stats.read_text())
    assert figures["memory_planned_bytes"] <= figures["memory_cap_bytes"] == least
    assert 0 < figures["memory_peak_bytes"] <= row.peak_rss + 8 * MIB
    assert row.peak_rss <= least


@linux
@pytest.mark.parametrize(
    ("name", "mode", "more"),
    [
        ("strips.tif", "1", {"compression": "group4"}),
        ("one-strip.tif", "1", {"compression": "group4", "tiffinfo": {278: 5600}}),
        ("grey.png", "L", {}),
        ("grey.jpg", "L", {}),
        ("clear.png", "RGBA", {}),
        ("colour.webp", "RGB", {}),
        ("packed.tif", "RGB", {"compression": "tiff_lzw"}),
    ],
)
def test_pictures_that_become_a_pdf_keep_below_the_tightest_cap(real, name, mode, more) -> None:
    """The main process decoded them, in colour, and held them four times: 560 MiB became 1,400.

    What is copied as it is or in bands takes next to nothing, what cannot be is in the plan.
    """
    sheet = printed(4000, 5600).convert(mode)
    sheet.save(real.folder / name, **more)
    args = (str(real.folder / name), "-f", "pdf", "--jobs", "1", "--reuse", "off", "--no-cache")
    plan = plan_of(real, *args)
    if mode in ("1", "L"):
        assert plan["terms"]["outputs"] <= 72 * MIB
    cap = str(plan["minimum_bytes"])
    row = run_measured(
        real.command(
            "ocr", *args, "-o", str(real.folder / "a.pdf"), "--max-memory", cap, fake=False
        ),
        env=real.environment(),
    )
    assert row.returncode == 0
    assert row.peak_rss <= plan["minimum_bytes"]
    with pymupdf.open(real.folder / "a.pdf") as pdf:
        assert "quick" in pdf[0].get_text()


@linux
@pytest.mark.parametrize(("limit", "code"), [(900, 6), (2000, 0)])
def test_a_limit_on_address_space_is_a_cap(real, limit: int, code: int) -> None:
    write_pages(real.folder / "scan.pdf", [5])

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit * MIB, limit * MIB))

    done = real("ocr", "scan.pdf", "--text-layer", "ignore", "--threads", "1", preexec_fn=lower)
    assert done.returncode == code, done.stderr.decode()
    assert ("does not fit" in done.stderr.decode()) == (code == 6)


def under(limit: int):
    """For `preexec_fn`: a limit on address space, in KiB as the shell's `ulimit -v` has it."""
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (limit * 1024, limit * 1024))


@linux
@pytest.mark.parametrize("limit", [50_000, 100_000, 250_000, 350_000, 450_000, 600_000, 750_000])
def test_libraries_that_a_limit_on_address_space_keeps_out_are_no_bug(real, limit: int) -> None:
    write_pages(real.folder / "scan.pdf", [5])
    args = ("ocr", "scan.pdf", "--text-layer", "ignore", "--max-memory", "600MiB", "--no-cache")
    done = real(*args, "--threads", "1", preexec_fn=under(limit))
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (6, b""), said
    assert f"ulimit -v {limit}" in said
    assert "bug" not in said and "Traceback" not in said


@linux
def test_where_a_limit_on_address_space_is_what_is_short_it_is_named(real) -> None:
    write_pages(real.folder / "scan.pdf", [5])
    args = ("scan.pdf", "--threads", "1", "--jobs", "1", "--no-cache")
    done = real("ocr", *args, preexec_fn=under(600_000))
    said = done.stderr.decode()
    assert done.returncode == 6
    assert "0 B are there (left by the limit on address space, ulimit -v 600000)" in said
    assert "free on this machine" not in said
    enough = re.search(r"as in ulimit -v (\d+);", said)
    assert enough is not None
    assert real("ocr", *args, preexec_fn=under(int(enough[1]))).returncode == 0
    planned = real("plan", *args[:1], "--jobs", "1", preexec_fn=under(600_000))
    assert planned.returncode == 6
    assert b"ulimit -v 600000" in planned.stdout + planned.stderr
    assert b"ulimit -v 200000" in real("plan", "scan.pdf", preexec_fn=under(200_000)).stderr


def test_ocr_and_plan_agree(real) -> None:
    scan = write_pages(real.folder / "scan.pdf", range(3))
    options = ("--max-memory", "2GiB", "--jobs", "2", "--dpi", "150")
    planned = plan_of(real, "scan.pdf", *options)
    from vlmcli.documents.source import Source, open_document

    request = PlanRequest(inputs=("scan.pdf",), max_memory=2 << 30, jobs=2, dpi=150)
    gate = MemoryGate(make_planner(request), "always")
    with open_document(Source(path=scan, name="scan.pdf")) as document:
        gate.add([document.page(index) for index in range(3)])
    gate.open()
    assert gate.plan is not None
    assert gate.plan.peak_bytes == planned["peak_bytes"]
    assert planned["model"] == "nano" and built_in_path().is_dir()


def followed(real, *args: str) -> list[str]:
    """What is left of a refused command once its remedies are followed, one after the other."""
    words = list(args)
    for _ in range(3):
        done = real("ocr", *words)
        said = done.stderr.decode()
        found = re.search(r"give (--max-memory|--max-pixels) (\S+?)[,)]? |to (\d{6,})\)", said)
        if done.returncode == 0 or found is None:
            break
        option, value = (found[1], found[2]) if found[1] else ("--max-pixels", found[3])
        words += [option, value.rstrip(")")]
    assert done.returncode == 0, said
    return words[len(args) :]


def test_a_remedy_that_is_followed_to_the_letter_leads_to_no_other_refusal(real) -> None:
    """A cap of nothing asked for 149 MiB, those were refused, and asked for 457 MiB."""
    write_text_pdf(real.folder / "born.pdf", ["the first page", "the second"])
    write_pages(real.folder / "scan.pdf", range(2))
    for name in ("born.pdf", "scan.pdf"):
        args = (name, "-o", name + ".txt", "--max-memory", "0")
        assert len(followed(real, *args)) == 2


def test_a_picture_that_cannot_be_decoded_costs_itself_alone_and_says_what_would_do(real) -> None:
    """It was planned as if it could, and fewer pixels were advised, which change nothing there.

    After that: "raise --max-pixels", by how much was a guess.
    """
    Image.new("1", (15_000, 15_000), 1).save(real.folder / "huge.png")
    printed(1200, 1600).save(real.folder / "small.png")
    args = ("small.png", "huge.png", "-f", "jsonl", "--max-memory", "520MiB")
    done = real("ocr", *args)
    assert done.returncode == 5
    good, bad = read_records(done.stdout)
    assert good["status"] == "ok" and bad["error"]["code"] == "bomb"
    assert "raise --max-pixels to 28125000" in done.stderr.decode()
    assert bad["error"]["message"].startswith("a picture of 15000 × 15000 pixels is too large")
    below = real("ocr", "huge.png", "-f", "jsonl", "--max-pixels", "28124999")
    assert "raise --max-pixels to 28125000" in below.stderr.decode()
    enough = real("ocr", "huge.png", "--max-pixels", "28125000", "--max-memory", "300MiB")
    said = enough.stderr.decode()
    assert enough.returncode == 6
    assert "--max-pixels" not in said and "give --max-memory" in said
    wanted = re.search(r"--max-memory (\d+MiB)", said)
    assert wanted
    more = ("--max-pixels", "28125000", "--max-memory", wanted[1])
    assert real("ocr", "huge.png", *more).returncode == 0
