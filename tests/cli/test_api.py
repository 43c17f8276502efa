"""`from vlmcli import recognize`: the records of the command line, as they come."""

import itertools
import json
import subprocess
import sys
import threading

import pymupdf
import pytest
from command_line import ROOT, without_seconds

import vlmcli
from vlmcli import PageRecord, recognize
from vlmcli.errors import EncryptedError, InputError, UsageError

SAMPLES = ROOT / "samples"


@pytest.fixture(autouse=True)
def no_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("VLMCLI_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def many(tmp_path):
    """A document of 40 pages with text layers."""
    with pymupdf.open() as document:
        for number in range(40):
            page = document.new_page(width=300, height=200)
            for line in range(6):
                page.insert_text((20, 30 + 20 * line), f"page {number + 1} has some words here")
        document.save(tmp_path / "many.pdf")
    return tmp_path / "many.pdf"


def test_records_are_those_of_the_command_line(real):
    names = [str(SAMPLES / name) for name in ("scan.pdf", "blank-middle.pdf")]
    done = real.records(*names, "--no-cache")
    ours = [json.loads(record.to_json()) for record in recognize(*names, cache=False)]
    assert without_seconds(ours) == without_seconds(done)
    assert all(isinstance(record, PageRecord) for record in recognize(names[1]))


def test_pages_come_as_they_are_taken_and_a_loop_may_be_left(many):
    threads = threading.active_count()
    records = recognize(many)
    first = list(itertools.islice(records, 3))
    assert [record.page for record in first] == [1, 2, 3]
    assert all(record.source == "text-layer" for record in first)
    records.close()
    assert threading.active_count() == threads
    assert [record.page for record in recognize(many, pages="5-7")] == [5, 6, 7]
    assert len(list(recognize(many))) == 40


@pytest.mark.parametrize("text_layer", ["only", "ignore"])
def test_a_script_may_end_in_the_middle_of_a_loop(many, text_layer):
    """The iterator was still held by the script, the job waited for ever to be asked, and Python
    for the job."""
    script = (
        f"from vlmcli import recognize; records = recognize({str(many)!r}, "
        f"text_layer={text_layer!r}); print(next(records).page)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_a_script_may_end_while_the_job_waits_for_room(many):
    script = (
        "import time; from vlmcli import recognize; "
        f"records = recognize({str(many)!r}); print(next(records).page); time.sleep(2)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_what_goes_wrong_is_raised(tmp_path):
    with pytest.raises(InputError):
        list(recognize(tmp_path / "nothing.pdf"))
    with pytest.raises(EncryptedError):
        list(recognize(SAMPLES / "encrypted.pdf"))
    with pytest.raises(UsageError, match="output"):
        recognize(SAMPLES / "scan.pdf", output="x.txt")
    assert not hasattr(vlmcli, "nothing")
