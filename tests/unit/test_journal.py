"""The journal: a kill loses at most the line that was being written, and resuming never guesses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_strategies import document, page, records

from vlmcli.errors import OutputError
from vlmcli.journal import Journal, job_fingerprint
from vlmcli.options import OcrOptions
from vlmcli.results import PageRecord

JOB = {"model": "nano@1", "--dpi": "200"}
PAGES = [record for name in ("a.pdf", "b.pdf") for record in document(name, 3)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out.vlmcli-journal"


def open_journal(path: Path, *, resume: bool = True, job=JOB, overwrite: bool = False) -> Journal:
    return Journal.open(path, fingerprint=job, resume=resume, overwrite=overwrite)


def written(path: Path, some_records) -> bytes:
    """Bytes of a journal that a killed process left: nothing is closed in good order."""
    journal = open_journal(path, resume=False, overwrite=True)
    for record in some_records:
        journal.append(record)
    data = path.read_bytes()
    journal.close()
    return data


def by_page(some_records) -> dict[tuple[str, int], PageRecord]:
    return {(record.document, record.page): record for record in some_records}


@given(st.lists(records, max_size=6))
@settings(max_examples=40)
def test_a_resumed_journal_has_every_record(tmp_path_factory, some_records):
    path = tmp_path_factory.mktemp("journal") / "j"
    data = written(path, some_records)
    path.write_bytes(data)
    journal = open_journal(path)
    assert dict(journal.done) == by_page(some_records)
    assert path.read_bytes() == data
    journal.close()


@given(st.permutations(PAGES), st.integers(0, 10_000), st.data())
@settings(max_examples=40)
def test_cut_anywhere_it_loses_the_partial_line_alone(tmp_path_factory, order, cut, data):
    path = tmp_path_factory.mktemp("journal") / "j"
    whole = written(path, order)
    kept = whole[: cut % (len(whole) + 1)]
    path.write_bytes(kept)
    num_lines = kept.count(b"\n") - 1
    before, rest = order[: max(0, num_lines)], order[max(0, num_lines) :]
    journal = open_journal(path)
    assert dict(journal.done) == by_page(before)
    for record in data.draw(st.permutations(rest)):
        journal.append(record)
    assert dict(journal.done) == by_page(before)
    journal.close()
    journal = open_journal(path)
    assert dict(journal.done) == by_page(order)
    journal.close()


@given(st.lists(st.integers(0, len(PAGES)), max_size=4), st.booleans())
@settings(max_examples=40)
def test_runs_killed_again_and_again_never_redo_a_page(tmp_path_factory, kills, is_backwards):
    path = tmp_path_factory.mktemp("journal") / "j"
    done: list[PageRecord] = []
    for count in [*kills, len(PAGES)]:
        journal = open_journal(path)
        assert dict(journal.done) == by_page(done)
        missing = [record for record in PAGES if (record.document, record.page) not in journal.done]
        for record in missing[::-1][:count] if is_backwards else missing[:count]:
            journal.append(record)
            done.append(record)
        journal.close()
    assert by_page(done) == by_page(PAGES)
    assert len(done) == len(PAGES)


def test_what_a_power_failure_leaves_ends_the_journal(path):
    data = written(path, PAGES)
    lines = data.splitlines(keepends=True)
    for rubbish in (b"\0" * 50 + b"\n", b"{}\n", b"[]\n", b"3\n", b"\xff\n", b"\n"):
        path.write_bytes(b"".join(lines[:3]) + rubbish + b"".join(lines[3:]))
        journal = open_journal(path)
        assert dict(journal.done) == by_page(PAGES[:2])
        assert path.read_bytes() == b"".join(lines[:3])
        journal.close()


def test_every_record_is_on_disk_when_append_returns(path):
    journal = open_journal(path)
    for count, record in enumerate(PAGES, 1):
        journal.append(record)
        lines = path.read_bytes().split(b"\n")
        assert lines.pop() == b""
        assert len(lines) == count + 1
        assert PageRecord.from_dict(json.loads(lines[-1])) == record
    journal.close()


def test_a_page_that_is_not_done_is_not_in_it(path):
    journal = open_journal(path)
    journal.append(page("a.pdf", 1))
    journal.close()
    journal = open_journal(path)
    assert ("a.pdf", 1) in journal.done
    assert ("a.pdf", 2) not in journal.done
    assert ("b.pdf", 1) not in journal.done
    with pytest.raises(KeyError):
        journal.done["b.pdf", 1]
    journal.close()


def test_a_different_job_is_refused_and_the_change_is_named(path):
    data = written(path, PAGES)
    path.write_bytes(data)
    with pytest.raises(OutputError, match=r"not the same: model, --dpi changed") as caught:
        open_journal(path, job={"model": "other@2", "--dpi": "300"})
    assert "--overwrite" in caught.value.remedy
    with pytest.raises(OutputError, match="--mood changed"):
        open_journal(path, job={**JOB, "--mood": "fine"})
    assert path.read_bytes() == data


def test_overwriting_starts_over_where_nothing_can_be_resumed(path):
    path.write_bytes(written(path, PAGES))
    journal = open_journal(path, job={"model": "other@2"}, overwrite=True)
    assert not journal.done
    journal.append(page())
    journal.close()
    journal = open_journal(path, job={"model": "other@2"}, overwrite=True)
    assert len(journal.done) == 1
    journal.close()


@pytest.mark.parametrize("data", [b"my diary\n", b"{}\n", b"[1]\n", b'{"journal": "vlmcli"}\n'])
def test_a_file_that_is_no_journal_is_left_alone(path, data):
    path.write_bytes(data)
    with pytest.raises(OutputError, match="not a journal"):
        open_journal(path)
    assert path.read_bytes() == data


def test_a_journal_of_another_schema_is_refused(path):
    data = written(path, PAGES).replace(b'"schema": 1', b'"schema": 999')
    path.write_bytes(data)
    with pytest.raises(OutputError, match="another version"):
        open_journal(path)


def test_without_resume_it_starts_over(path):
    path.write_bytes(written(path, PAGES))
    journal = open_journal(path, resume=False)
    assert not journal.done
    journal.append(page())
    journal.close()
    assert path.read_bytes().count(b"\n") == 2


def test_it_goes_when_the_job_is_complete_or_never_began(path):
    journal = open_journal(path)
    journal.append(page())
    journal.remove()
    assert not path.exists()
    open_journal(path).close()
    assert not path.exists()
    journal = open_journal(path)
    journal.append(page())
    journal.close()
    journal.close()
    assert path.exists()


def test_two_processes_cannot_write_the_same_journal(path):
    journal = open_journal(path)
    code = (
        "import sys; from pathlib import Path; from vlmcli.journal import Journal\n"
        "Journal.open(Path(sys.argv[1]), fingerprint={}, resume=False, overwrite=True)"
    )
    command = [sys.executable, "-c", code, str(path)]
    rival = subprocess.run(command, capture_output=True, text=True, check=False)
    assert rival.returncode == 1
    assert "another vlmcli is writing this output" in rival.stderr
    journal.append(page())
    journal.close()
    journal = open_journal(path)
    assert len(journal.done) == 1
    journal.close()


def test_a_lock_on_a_removed_file_is_not_taken_for_the_journal(path, monkeypatch):
    """Between opening and locking, the last owner may remove the file."""
    real_open, calls = os.open, []

    def racing_open(name, *args):
        fd = real_open(name, *args)
        if not calls:
            path.unlink()
        calls.append(name)
        return fd

    monkeypatch.setattr(os, "open", racing_open)
    journal = open_journal(path)
    monkeypatch.undo()
    journal.append(page())
    assert path.read_bytes().count(b"\n") == 2
    journal.close()


def test_a_full_disk_is_an_output_error_and_leaves_whole_lines(path, monkeypatch):
    journal = open_journal(path)
    journal.append(PAGES[0])
    write = os.write
    room = [10]

    def filling_write(fd, data):
        if not room:
            raise OSError(28, os.strerror(28))
        return write(fd, data[: room.pop()])

    monkeypatch.setattr(os, "write", filling_write)
    with pytest.raises(OutputError, match="No space left"):
        journal.append(PAGES[1])
    monkeypatch.undo()
    journal.append(PAGES[2])
    journal.close()
    journal = open_journal(path)
    assert dict(journal.done) == by_page([PAGES[0], PAGES[2]])
    journal.close()


def test_a_folder_that_cannot_be_written_is_an_output_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        open_journal(tmp_path / "file" / "j")


def test_fingerprints_tell_jobs_apart(tmp_path):
    one, two = tmp_path / "1.pdf", tmp_path / "2.pdf"
    one.write_bytes(b"one")
    two.write_bytes(b"two")
    options = OcrOptions(inputs=("x",))
    sources = [("1.pdf", one), ("2.pdf", two)]
    first = job_fingerprint(options, sources, model="m@1")
    assert job_fingerprint(options, sources, model="m@1") == first
    assert job_fingerprint(options, sources[::-1], model="m@1") != first
    assert job_fingerprint(options, sources[:1], model="m@1") != first
    assert job_fingerprint(options, sources, model="m@2") != first
    assert job_fingerprint(options, sources, model=None) != first
    other = OcrOptions(inputs=("x",), dpi=300)
    changed = job_fingerprint(other, sources, model="m@1")
    assert {name for name in first if first[name] != changed[name]} == {"--dpi"}
    asking = OcrOptions(inputs=("x",), question=("Who?",))
    changed = job_fingerprint(asking, sources, model="m@1")
    assert {name for name in first if first[name] != changed[name]} == {"--question"}
    patient = OcrOptions(inputs=("x",), page_timeout=60.0, retries=9, jobs=3, password="secret")
    assert job_fingerprint(patient, sources, model="m@1") == first
    one.write_bytes(b"longer")
    assert job_fingerprint(options, sources, model="m@1") != first
    one.unlink()
    assert job_fingerprint(options, sources, model="m@1") != first


def test_standard_input_is_known_by_its_content(tmp_path):
    options = OcrOptions(inputs=("-",))
    marks = []
    for name, data in (("spool1", b"same"), ("spool2", b"same"), ("spool3", b"else")):
        (tmp_path / name).write_bytes(data)
        marks.append(job_fingerprint(options, [("-", tmp_path / name)], model=None))
    assert marks[0] == marks[1] != marks[2]


def test_odd_file_names_come_back_exactly(path):
    name = os.fsdecode(b"caf\xe9 \xf0\x9f\x93\x84\n.pdf")
    journal = open_journal(path)
    journal.append(page(name, 1))
    journal.close()
    journal = open_journal(path)
    assert list(journal.done) == [(name, 1)]
    assert journal.done[name, 1].document == name
    journal.close()
