"""Files that one option names: nothing is replaced that somebody needs, and not a word is needed
where nothing is lost."""

import os
import stat
import threading
from pathlib import Path

import pytest

from vlmcli.errors import OutputError, UsageError
from vlmcli.outputs.single import check_single, refuse_stdout, write_single
from vlmcli.outputs.targets import STDOUT_NAMES

OPTION = "--stats"


@pytest.fixture(autouse=True)
def inside_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def check(name: str, *, inputs=(), outputs=(), new_folders=(), overwrite=False) -> None:
    check_single(
        Path(name),
        OPTION,
        inputs=map(Path, inputs),
        outputs=map(Path, outputs),
        new_folders=[Path(folder) for folder in new_folders],
        overwrite=overwrite,
    )


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["in.png", "./in.png", "soft", "hard"])
def test_an_input_is_never_replaced_under_whatever_name(name, overwrite):
    Path("in.png").write_bytes(b"picture")
    Path("soft").symlink_to("in.png")
    os.link("in.png", "hard")
    with pytest.raises(OutputError, match="also an input") as caught:
        check(name, inputs=["other.png", "in.png"], overwrite=overwrite)
    assert caught.value.remedy == "choose another with --stats"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_another_output_is_never_replaced_be_it_there_or_not(is_there, overwrite):
    Path("link").symlink_to("all.json")
    if is_there:
        Path("all.json").touch()
    for name in ("all.json", "./all.json", "link"):
        with pytest.raises(OutputError, match="also another output"):
            check(name, outputs=["x.json", "all.json"], overwrite=overwrite)


def test_no_two_outputs_differ_in_case_alone():
    with pytest.raises(OutputError, match="also another output"):
        check("ALL.json", outputs=["all.json"])


def test_what_is_there_needs_a_word():
    Path("old.json").write_text("old")
    Path("link").symlink_to("old.json")
    Path("dangling").symlink_to("not-yet.json")
    for name in ("old.json", "link", "dangling"):
        with pytest.raises(OutputError, match=f"output exists: {name}") as caught:
            check(name)
        assert "--overwrite" in caught.value.remedy and "--stats" in caught.value.remedy
        check(name, overwrite=True)


def test_a_folder_that_nobody_makes_is_missed_beforehand():
    with pytest.raises(OutputError, match="no such directory: no") as caught:
        check("no/x.json")
    assert "--stats" in caught.value.remedy
    check("out/x.json", new_folders=["out"])
    Path("dangling").symlink_to("no/x.json")
    with pytest.raises(OutputError, match="no such directory"):
        check("dangling", overwrite=True)


def test_names_that_no_file_can_have_and_places_that_take_none(monkeypatch):
    Path("folder").mkdir()
    for name in ("folder", "."):
        with pytest.raises(OutputError, match="a directory"):
            check(name, overwrite=True)
    with pytest.raises(OutputError, match="too long") as caught:
        check("a" * 300)
    assert caught.value.remedy == "choose a shorter name with --stats"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OutputError, match="no permission to write into folder"):
        check("folder/x.json")


@pytest.mark.parametrize("name", [name for name in STDOUT_NAMES if name])
def test_stdout_is_for_what_the_command_prints(name):
    with pytest.raises(UsageError, match="--stats cannot write to stdout") as caught:
        refuse_stdout(name, OPTION)
    assert "name a file" in caught.value.remedy


def test_a_pipe_is_written_to_and_stays_a_pipe():
    os.mkfifo("pipe")
    check("pipe")
    said = []
    reader = threading.Thread(target=lambda: said.append(Path("pipe").read_bytes()))
    reader.start()
    write_single(Path("pipe"), OPTION, b"figures")
    reader.join(timeout=60)
    assert said == [b"figures"]
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)


def test_a_device_is_written_to_and_stays_a_device():
    device = Path("null")
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, Path("/dev/null").stat().st_rdev)
        device.write_bytes(b"")
    except PermissionError:
        pytest.skip("devices of one's own need root and a file system that has them")
    check("null")
    write_single(device, OPTION, b"figures")
    assert stat.S_ISCHR(device.stat().st_mode)
    assert [path.name for path in Path().iterdir()] == ["null"]


def test_a_file_is_whole_or_what_it_was():
    Path("x.json").write_text("old")
    write_single(Path("x.json"), OPTION, b"new")
    assert Path("x.json").read_bytes() == b"new"
    assert [path.name for path in Path().iterdir()] == ["x.json"]
