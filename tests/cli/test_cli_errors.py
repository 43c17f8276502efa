"""Exit codes are a contract, an error is one line, and only our own bugs have tracebacks."""

import os

import pytest

from vlmcli import __version__
from vlmcli.errors import ExitCode

CAUSES = {
    "UsageError": 2,
    "InputError": 3,
    "OutputError": 4,
    "PageError": 5,
    "WillNotFitError": 6,
    "ModelError": 7,
    "EncryptedError": 8,
    "UnreachableError": 9,
}


@pytest.mark.parametrize(("kind", "code"), CAUSES.items())
def test_an_error_of_the_user_is_one_line_and_its_code(cli, kind, code):
    done = cli("ocr", "a.pdf", fake={"raise": kind, "at": 2})
    assert done.returncode == code
    assert done.stderr == b"vlmcli: error: it is like that\n"


@pytest.mark.parametrize("kind", ["RuntimeError", "BrokenPipeError", "EOFError", "OSError"])
def test_a_bug_of_ours_has_a_traceback_and_a_request(cli, kind):
    done = cli("ocr", "a.pdf", fake={"raise": kind, "at": 2})
    assert done.returncode == ExitCode.INTERNAL
    assert b"Traceback" in done.stderr and kind.encode() in done.stderr
    assert b"please report" in done.stderr and __version__.encode() in done.stderr


def test_pages_that_failed_make_the_job_partial(cli):
    done = cli("ocr", "a.pdf", "b.pdf", fake={"fail": [2]})
    assert done.returncode == ExitCode.PARTIAL
    pages = done.stdout.decode().split("\f")
    assert len(pages) == 6
    assert pages[1] == pages[4] == "[vlmcli: page 2 failed: timeout]\n"
    assert b"vlmcli: a.pdf page 2: timeout: not read within 5 s\n" in done.stderr


WRONG = [
    ["nope"],
    ["ocr"],
    ["ocr", "a.pdf", "--no-such-option"],
    ["ocr", "a.pdf", "--dpi", "3"],
    ["ocr", "a.pdf", "--dpi", "many"],
    ["ocr", "a.pdf", "--retries", "-1"],
    ["ocr", "a.pdf", "-f", "docx"],
    ["ocr", "a.pdf", "--device", "tpu"],
    ["ocr", "a.pdf", "--quantize", "int2"],
    ["ocr", "a.pdf", "--quantize", "int8", "--quantize", "int4"],
    ["ask", "a.pdf", "-q", "What?", "--quantize", "int8,"],
    ["plan", "--quantize", "vit"],
    ["ocr", "a.pdf", "--text-layer", "sometimes"],
    ["ocr", "a.pdf", "--max-memory", "lots"],
    ["ocr", "a.pdf", "-f", "text", "-f", "jsonl"],
    ["ocr", "a.pdf", "--resume"],
    ["ocr", "-", "-"],
    ["ocr", ""],
    ["ocr", "a.pdf", "-o", ""],
    ["ocr", "a.pdf", "--password", "x", "--password-file", "a.pdf"],
]


@pytest.mark.parametrize("args", WRONG, ids=" ".join)
def test_wrong_usage_is_exit_2_and_says_nothing_on_stdout(cli, args):
    done = cli(*args, fake={})
    assert done.returncode == ExitCode.USAGE
    assert done.stdout == b""
    assert done.stderr and b"Traceback" not in done.stderr and b"\x1b" not in done.stderr


def test_outputs_are_checked_before_any_work(cli, tmp_path):
    (tmp_path / "out.txt").write_text("old")
    log = tmp_path / "log"
    for output in ("out.txt", "nowhere/out.txt", "a.pdf"):
        done = cli("ocr", "a.pdf", "-o", output, fake={"log": str(log)})
        assert done.returncode == ExitCode.OUTPUT
        assert done.stderr.startswith(b"vlmcli: error: ") and done.stderr.count(b"\n") == 1
    assert not log.exists()
    assert (tmp_path / "out.txt").read_text() == "old"


def test_a_full_disk_is_exit_4(cli):
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = cli("ocr", "a.pdf", fake={}, capture_output=False, stdout=full, stderr=-1)
    assert done.returncode == ExitCode.OUTPUT
    assert b"cannot write stdout: No space left on device" in done.stderr


def test_a_file_name_cannot_break_the_line_or_the_terminal(cli):
    name = "evil\n\x1b[2Jname.txt"
    (cli.folder / name).write_text("old")
    done = cli("ocr", "a.pdf", "-o", name, fake={})
    assert done.returncode == ExitCode.OUTPUT
    assert done.stderr.count(b"\n") == 1 and b"\x1b" not in done.stderr


def test_a_password_comes_from_one_place(cli, tmp_path):
    done = cli("ocr", "a.pdf", "--password-file", "nowhere", fake={})
    assert done.returncode == ExitCode.INPUT
    assert b"no such password file: nowhere" in done.stderr
    done = cli("ocr", "a.pdf", "--password-file", str(tmp_path), fake={})
    assert done.returncode == ExitCode.INPUT


def test_names_in_any_bytes_work(cli):
    name = os.fsdecode(b"caf\xe9 mit Leerzeichen.pdf")
    (cli.folder / name).write_bytes(b"document")
    done = cli("ocr", name, "-f", "jsonl", "-o", "out/", fake={})
    assert done.returncode == ExitCode.OK, done.stderr
    assert [path.name for path in (cli.folder / "out").iterdir()] == [
        os.fsdecode(b"caf\xe9 mit Leerzeichen.jsonl")
    ]


LONG = "n" * 300


@pytest.mark.parametrize(
    "args",
    [
        ["ocr", f"{LONG}.pdf"],
        ["ocr", "a.pdf", "-o", f"{LONG}.txt"],
        ["ocr", "a.pdf", "-m", LONG],
        ["plan", LONG],
        ["view", "a.jsonl", "-o", "x.html", "--root", LONG],
        ["view", LONG, "-o", "x.html"],
        ["eval", LONG, LONG],
        ["doctor", LONG],
        ["models", "show", LONG],
        ["models", "show", f"owner/{LONG}"],
        ["models", "show", "~nobody-of-that-name/model"],
    ],
    ids=lambda args: " ".join(args).replace(LONG, "LONG"),
)
def test_names_that_no_file_can_have_are_no_bugs(cli, tmp_path, args):
    """The system refuses to look at them, where it otherwise says that nothing is there."""
    (tmp_path / "a.jsonl").write_text("")
    done = cli(*args)
    assert done.returncode in (2, 3, 4, 7)
    assert b"Traceback" not in done.stderr and done.stderr.count(b"\n") == 1
