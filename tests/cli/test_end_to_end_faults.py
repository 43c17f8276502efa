"""Bad inputs cost themselves alone, and the exit code says which kind of bad. None needs the model.

Every run here finds an interpreter that refuses to import torch.
"""

import contextlib
import json
import os
import subprocess
from pathlib import Path

import psutil
import pytest
from command_line import RealCli, read_records
from real_documents import (
    LINES,
    hostile_files,
    printed,
    write_frames,
    write_pages,
    write_text_pdf,
)

FORBID = """
import sys
class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "transformers"):
            raise RuntimeError(f"{name} was imported")
sys.meta_path.insert(0, Forbid())
"""


class WithoutTorch(RealCli):
    """The real command line on a Python without torch."""

    def environment(self, fake: dict | None = None, **more: str) -> dict[str, str]:
        found = super().environment(fake, **more)
        return found | {"PYTHONPATH": f"{self.folder / 'site'}{os.pathsep}{found['PYTHONPATH']}"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A folder with hostile files below `files`, and what each of them ends in."""
    cli = WithoutTorch(tmp_path_factory.mktemp("hostile"))
    (cli.folder / "site").mkdir()
    (cli.folder / "site/sitecustomize.py").write_text(FORBID)
    (cli.folder / "files").mkdir()
    return cli, hostile_files(cli.folder / "files")


@pytest.fixture
def real(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(FORBID)
    return WithoutTorch(tmp_path)


def one_line(done) -> str:
    """What was said, which is one line and nothing on stdout."""
    assert done.stdout == b""
    (line,) = done.stderr.decode().splitlines()
    return line


def test_torch_is_forbidden_here(real):
    write_frames(real.folder / "a.png", [LINES])
    done = real("ocr", "a.png")
    assert done.returncode == 1 and b"torch was imported" in done.stderr


def test_every_broken_file_has_its_code_and_one_clear_line(hostile):
    cli, files = hostile
    for name, code in files.items():
        done = cli("ocr", f"files/{name}")
        assert done.returncode == code, name
        line = one_line(done)
        assert line.startswith(f"vlmcli: error: files/{name}: ") and len(line.split()) > 5


def test_among_others_a_broken_file_is_a_record(hostile):
    cli, files = hostile
    write_text_pdf(cli.folder / "files/zz-good.pdf", ["All is well", "Here as well"])
    done = cli("ocr", "files", "-o", "out", "-f", "jsonl", "-f", "text")
    assert done.returncode == 5
    out = cli.folder / "out"
    failed = [read_records(path.read_bytes()) for path in out.glob("*.jsonl")]
    errors = {r["document"]: r["error"]["code"] for (r, *_) in failed if r["status"] == "error"}
    assert set(errors) == {f"files/{name}" for name in files}
    assert {"empty", "not-a-document", "damaged", "no-pages", "encrypted"} <= set(errors.values())
    assert all(len(records) == 1 for records in failed if records[0]["status"] == "error")
    assert [path.name for path in out.glob("*.txt")] == ["zz-good.txt"]
    assert (out / "zz-good.txt").read_text() == "All is well\n\fHere as well\n"
    said = done.stderr.decode()
    assert all(said.count(f"files/{name}: ") == 1 for name in files)
    fast = cli("ocr", "files", "-o", "fast", "--fail-fast")
    assert fast.returncode == 3 and not (cli.folder / "fast/zz-good.txt").exists()


def test_a_missing_file_and_an_empty_folder(real):
    (real.folder / "void").mkdir()
    for name in ("nowhere.pdf", "void"):
        done = real("ocr", name)
        assert done.returncode == 3 and name in one_line(done)


def test_passwords(real):
    folder = real.folder
    write_text_pdf(folder / "locked.pdf", ["Secret!"], user_password="sesame")
    write_text_pdf(folder / "owned.pdf", ["Open to all"], owner_password="owner")
    (folder / "right").write_text("sesame\n")
    (folder / "wrong").write_text("simsalabim\n")
    refused = [
        real("ocr", "locked.pdf"),
        real("ocr", "locked.pdf", "--password-file", "wrong"),
        real("ocr", "locked.pdf", "--password", "x"),
    ]
    assert [done.returncode for done in refused] == [8, 8, 8]
    assert "a password is needed" in one_line(refused[0])
    assert "wrong" in one_line(refused[1]) and "simsalabim" not in one_line(refused[1])
    opened = [
        real("ocr", "locked.pdf", "--password-file", "right"),
        real("ocr", "locked.pdf", env={"VLMCLI_PASSWORD": "sesame"}),
        real("ocr", "locked.pdf", "--password", "sesame"),
    ]
    assert [(done.returncode, done.stdout) for done in opened] == [(0, b"Secret!\n")] * 3
    assert real("ocr", "owned.pdf").stdout == b"Open to all\n"


def test_a_password_is_in_no_command_line(real):
    write_text_pdf(real.folder / "a.pdf", ["x"] * 2, user_password="sesame", heavy=[2])
    (real.folder / "right").write_text("sesame\n")
    job = real.start("ocr", "a.pdf", "--password-file", "right", "--page-timeout", "3", "-j", "2")
    main = psutil.Process(job.pid)
    lines: set[str] = set()
    while job.poll() is None:
        for process in (main, *main.children()):
            with contextlib.suppress(psutil.Error):
                lines.add(" ".join(process.cmdline()))
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(0.05)
    job.communicate()
    assert any("page_worker" in line for line in lines)
    assert not [line for line in lines if "sesame" in line]


def broken_table(path: Path) -> Path:
    """A PDF whose table of objects is nowhere near where it says."""
    data = write_text_pdf(path, ["Still readable"]).read_bytes()
    head, _, _ = data.rpartition(b"startxref")
    path.write_bytes(head + b"startxref\n7\n%%EOF\n")
    return path


def test_what_can_be_repaired_is_read_with_a_warning_unless_strict(real):
    broken_table(real.folder / "a.pdf")
    done = real("ocr", "a.pdf")
    assert (done.returncode, done.stdout) == (0, b"Still readable\n")
    assert done.stderr.startswith(b"vlmcli: warning: a.pdf: ")
    strict = real("ocr", "a.pdf", "--strict")
    assert strict.returncode == 3 and "a.pdf" in one_line(strict)


def broken_page(path: Path) -> Path:
    """A PDF of three pages; the second leads back to the page tree."""
    content = b"BT /F 12 Tf 20 200 Td (Page %d) Tj ET"
    resources = b"/MediaBox[0 0 300 300]/Resources<</Font<</F 7 0 R>>>>"
    page = b"<</Type/Page/Parent 2 0 R/Contents %d 0 R" + resources + b">>"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R 2 0 R 5 0 R]/Count 3>>",
        page % 4,
        b"<</Length %d>>stream\n%s\nendstream" % (len(content % 1), content % 1),
        page % 6,
        b"<</Length %d>>stream\n%s\nendstream" % (len(content % 3), content % 3),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    body = b"".join(b"%d 0 obj\n%s\nendobj\n" % pair for pair in enumerate(objects, 1))
    path.write_bytes(b"%PDF-1.4\n" + body + b"trailer<</Size 8/Root 1 0 R>>\nstartxref\n0\n%%EOF\n")
    return path


def test_a_page_that_cannot_be_opened_is_a_record_and_the_job_goes_on(real):
    broken_page(real.folder / "a.pdf")
    records = real.records("a.pdf", code=5)
    pages = [(r["page"], r["status"]) for r in records]
    assert pages[:2] == [(1, "ok"), (2, "error")]
    assert records[1]["error"]["message"] and records[1]["text"] == ""
    fast = real("ocr", "a.pdf", "--fail-fast")
    assert fast.returncode == 5 and b"page 2" in fast.stderr
    text = real("ocr", "a.pdf").stdout.decode()
    assert "[vlmcli: page 2 failed: " in text and text.startswith("Page 1\n\f")


def test_a_page_that_takes_too_long_is_given_up(real):
    write_text_pdf(real.folder / "a.pdf", ["one", "two", "three"], heavy=[2])
    records = real.records("a.pdf", "--page-timeout", "3", code=5)
    assert [(r["page"], r["status"]) for r in records] == [(1, "ok"), (2, "timeout"), (3, "ok")]
    assert records[1]["error"] == {"code": "timeout", "message": "not rendered within 3 s"}


@pytest.mark.parametrize("args", [["born.pdf"], ["blank.png"], ["scan.pdf", "--text-layer=only"]])
def test_what_needs_no_model_imports_no_torch(real, args):
    write_text_pdf(real.folder / "born.pdf", ["born digital"])
    printed([], width=400).save(real.folder / "blank.png")
    write_pages(real.folder / "scan.pdf", [1])
    (record,) = real.records(*args)
    expected = {
        "born.pdf": ("ok", "text-layer", "born digital", []),
        "blank.png": ("blank", None, "", []),
        "scan.pdf": ("ok", "text-layer", "", ["no-text-layer"]),
    }
    found = tuple(record[key] for key in ("status", "source", "text", "suspect"))
    assert found == expected[args[0]]


def test_standard_input_selected_pages_and_progress(real):
    file = write_text_pdf(real.folder / "a.pdf", [f"Page {n}" for n in range(1, 8)])
    with file.open("rb") as stream:
        done = real("ocr", "-", "--pages", "2,5-6", "--progress", "json", stdin=stream)
    assert (done.returncode, done.stdout) == (0, b"Page 2\n\fPage 5\n\fPage 6\n")
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [event["page"] for event in events if event["event"] == "page"] == [2, 5, 6]


def test_pages_that_are_not_there(real):
    write_text_pdf(real.folder / "a.pdf", ["Page 1", "Page 2"])
    write_text_pdf(real.folder / "b.pdf", ["Page 1"])
    for pages in ("0", "x", "3-2"):
        assert "page selection" in one_line(done := real("ocr", "a.pdf", "b.pdf", "--pages", pages))
        assert done.returncode == 2
    done = real("ocr", "a.pdf", "--pages", "3")
    assert done.returncode == 2 and "a.pdf: " in one_line(done)
    done = real("ocr", "a.pdf", "b.pdf", "--pages", "2")
    assert (done.returncode, done.stdout) == (5, b"Page 2\n\f[vlmcli: b.pdf failed: usage]\n")
    assert b"b.pdf: page selection '2' goes beyond the end" in done.stderr
