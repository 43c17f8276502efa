"""Files: nothing is ever half written, and the system's errors name the file."""

import errno
import io
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.errors import OutputError, ReaderGoneError
from vlmcli.outputs.files import AtomicFile, GrowingFile, StreamFile

lines = st.lists(st.binary(max_size=8).map(lambda b: b.replace(b"\n", b"") + b"\n"), max_size=8)


@pytest.fixture(autouse=True)
def common_umask():
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_atomic_file_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "out.txt"
    file = AtomicFile(target)
    file.write(b"one ")
    file.write(b"two")
    assert not target.exists()
    file.publish()
    assert target.read_bytes() == b"one two"
    assert list(tmp_path.iterdir()) == [target]
    assert mode(target) == 0o640


def test_discarded_atomic_file_leaves_what_was_there(tmp_path):
    target = tmp_path / "out.txt"
    target.write_bytes(b"old")
    file = AtomicFile(target)
    file.write(b"new")
    file.discard()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]
    AtomicFile(target).discard()


def test_atomic_file_without_bytes_is_published_empty(tmp_path):
    AtomicFile(tmp_path / "out.txt").publish()
    assert (tmp_path / "out.txt").read_bytes() == b""


@pytest.mark.parametrize("make", [AtomicFile, lambda path: GrowingFile(path, overwrite=True)])
def test_a_replaced_file_is_a_new_file_for_those_who_have_it_open(tmp_path, make):
    target = tmp_path / "out"
    target.write_bytes(b"old\n")
    with target.open("rb") as reader:
        file = make(target)
        file.write(b"new\n")
        file.publish()
        assert reader.read() == b"old\n"
    assert target.read_bytes() == b"new\n"


def test_a_replaced_file_keeps_its_permissions_and_its_links(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o604)
    link.symlink_to(real)
    file = AtomicFile(link)
    file.write(b"new")
    file.publish()
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert mode(real) == 0o604


def test_what_a_killed_job_left_is_replaced_not_piled_up(tmp_path):
    killed = AtomicFile(tmp_path / "out.txt")
    killed.write(b"x" * 10_000)
    file = AtomicFile(tmp_path / "out.txt")
    file.write(b"whole")
    file.publish()
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]
    killed.discard()
    assert (tmp_path / "out.txt").read_bytes() == b"whole"


@given(lines, lines, st.binary(max_size=5))
def test_growing_file_walks_over_what_is_there(tmp_path_factory, first, more, rest):
    """Resuming gives the same bytes as never having been killed, and never fewer whole lines."""
    target = tmp_path_factory.mktemp("grow") / "out.jsonl"
    target.write_bytes(b"".join(first) + rest.replace(b"\n", b""))
    file = GrowingFile(target, resume=True)
    for line in first:
        file.write(line)
        assert target.read_bytes().startswith(b"".join(first))
    for line in more:
        file.write(line)
        assert target.read_bytes().endswith(line)
    file.publish()
    assert target.read_bytes() == b"".join(first + more)


@given(lines, lines)
def test_growing_file_holds_what_was_written_whatever_was_there(tmp_path_factory, old, new):
    target = tmp_path_factory.mktemp("grow") / "out.jsonl"
    target.write_bytes(b"".join(old))
    file = GrowingFile(target, resume=True)
    for line in new:
        file.write(line)
    file.publish()
    assert target.read_bytes() == b"".join(new)


def test_growing_file_has_every_line_on_disk_at_once(tmp_path):
    file = GrowingFile(tmp_path / "out.jsonl")
    for n in range(1, 4):
        file.write(b"line\n")
        assert (tmp_path / "out.jsonl").read_bytes() == b"line\n" * n
    file.discard()
    assert (tmp_path / "out.jsonl").read_bytes() == b"line\n" * 3
    assert mode(tmp_path / "out.jsonl") == 0o640


def test_growing_file_does_not_take_over_a_stranger(tmp_path):
    (tmp_path / "out.jsonl").write_bytes(b"somebody's\n")
    with pytest.raises(OutputError, match=r"out\.jsonl"):
        GrowingFile(tmp_path / "out.jsonl").write(b"line\n")
    assert (tmp_path / "out.jsonl").read_bytes() == b"somebody's\n"


def test_a_full_disk_never_leaves_half_a_line(tmp_path, monkeypatch):
    file = GrowingFile(tmp_path / "out.jsonl")
    file.write(b"first line\n")
    room = [4]
    write = os.write

    def filling_write(fd, data):
        if room:
            return write(fd, data[: room.pop()])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", filling_write)
    with pytest.raises(OutputError, match="No space left") as caught:
        file.write(b"second line\n")
    assert "--resume" in caught.value.remedy
    file.discard()
    assert (tmp_path / "out.jsonl").read_bytes() == b"first line\n"


def test_stream_errors_name_the_stream():
    full_disk = pytest.raises(OutputError, match="cannot write stdout: No space left")
    with Path("/dev/full").open("wb", buffering=0) as full, full_disk:
        StreamFile(full, "stdout").write(b"text")
    file = StreamFile(None, "/dev/full")
    with pytest.raises(OutputError, match=r"cannot write /dev/full(?!.*--resume)"):
        file.write(b"text")
    file.discard()


def test_a_reader_that_has_gone_is_no_error_of_the_output():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb", buffering=0) as stream, pytest.raises(ReaderGoneError):
        StreamFile(stream, "stdout").write(b"text")


def test_a_full_pipe_that_does_not_block_is_waited_for():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    data = os.urandom(300_000)
    got = bytearray()

    def read() -> None:
        while chunk := os.read(reader, 65536):
            got.extend(chunk)

    thread = threading.Thread(target=read)
    thread.start()
    with io.FileIO(writer, "wb") as stream:
        file = StreamFile(stream, "stdout")
        file.write(data)
        file.publish()
    thread.join()
    os.close(reader)
    assert bytes(got) == data


def test_a_named_pipe_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    thread = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    thread.start()
    file = StreamFile(None, str(pipe))
    file.write(b"through")
    file.publish()
    thread.join()
    assert got == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
