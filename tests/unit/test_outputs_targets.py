"""The plan: everything that can be known to go wrong with outputs is said before any work."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.errors import OutputError, UsageError
from vlmcli.options import OcrOptions
from vlmcli.outputs import lock
from vlmcli.outputs.targets import EXTENSIONS, OutputPlan, assign_stems, plan_outputs


@pytest.fixture(autouse=True)
def inside_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def make(*names: str) -> list[tuple[str, Path]]:
    """Documents with these paths, as sources; `x/` in a path makes directories."""
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(b"")
    return [(name, Path(name)) for name in names]


def plan(*names: str, output: str | None = None, **more) -> OutputPlan:
    inputs = more.pop("inputs", names)
    return plan_outputs(OcrOptions(inputs=tuple(inputs), output=output, **more), make(*names))


def outputs(a_plan: OutputPlan, *names: str) -> list[str]:
    return [str(path) for name in names for path in a_plan.files_of(name).values()]


@pytest.mark.parametrize("output", [None, "-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_stdout_under_all_its_names(output):
    found = plan("a.pdf", output=output)
    assert (found.kind, found.path, found.journal_path) == ("stream", None, None)


def test_a_device_or_pipe_is_a_stream_without_a_journal():
    os.mkfifo("pipe")
    for output in ("/dev/null", "pipe"):
        found = plan("a.pdf", output=output)
        assert (found.kind, found.journal_path) == ("stream", None)
        assert outputs(found, "a.pdf") == [output]


@pytest.mark.parametrize("more", [{"formats": ("text", "jsonl")}, {"resume": True}])
@pytest.mark.parametrize("output", [None, "/dev/null"])
def test_a_stream_takes_one_format_and_cannot_be_resumed(output, more):
    with pytest.raises(UsageError, match=r"stdout|/dev/null"):
        plan("a.pdf", output=output, **more)


def test_a_file_takes_all_documents():
    found = plan("a.pdf", "b.pdf", output="all.txt")
    assert found.kind == "file"
    assert outputs(found, "a.pdf") == outputs(found, "b.pdf") == ["all.txt"]
    assert found.journal_path == Path("all.txt.vlmcli-journal")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("out.txt", ["out.txt", "out.jsonl"]),
        ("out.jsonl", ["out.txt", "out.jsonl"]),
        ("out", ["out.txt", "out.jsonl"]),
        ("out.v2", ["out.v2.txt", "out.v2.jsonl"]),
    ],
)
def test_a_file_in_several_formats(output, expected):
    found = plan("a.pdf", output=output, formats=("text", "jsonl", "text"))
    assert outputs(found, "a.pdf") == expected
    assert outputs(plan("a.pdf", output=output), "a.pdf") == [output]


@pytest.mark.parametrize("output", ["out/", "out", "deep/er/out/"])
def test_many_documents_into_a_directory(output):
    found = plan("a.pdf", "sub/b.png", output=output)
    assert found.kind == "directory"
    assert found.journal_path == Path(output, ".vlmcli-journal")
    base = output.rstrip("/")
    assert outputs(found, "a.pdf", "sub/b.png") == [f"{base}/a.txt", f"{base}/b.txt"]
    assert not Path(output).exists(), "planning creates nothing"


def test_one_document_into_a_directory_that_exists():
    Path("out").mkdir()
    assert outputs(plan("x/a.pdf", output="out"), "x/a.pdf") == ["out/a.txt"]
    assert outputs(plan("x/a.pdf", output="out2"), "x/a.pdf") == ["out2"]


def test_directories_keep_their_structure():
    names = ("scans/a.pdf", "scans/x/a.pdf", "scans/x/y/b.tiff", "scans/x/b.pdf")
    found = plan(*names, inputs=("scans",), output="out", formats=("markdown",))
    assert outputs(found, *names) == ["out/a.md", "out/x/a.md", "out/x/y/b.md", "out/x/b.md"]


def test_same_stems_keep_their_suffixes():
    found = plan("x.pdf", "x.png", "y.pdf", output="out/")
    assert outputs(found, "x.pdf", "x.png", "y.pdf") == [
        "out/x.pdf.txt",
        "out/x.png.txt",
        "out/y.txt",
    ]


def test_same_names_keep_their_directories():
    found = plan("in/a/x.pdf", "in/b/x.pdf", "in/b/z.pdf", output="out/")
    assert outputs(found, "in/a/x.pdf", "in/b/x.pdf", "in/b/z.pdf") == [
        "out/a/x.pdf.txt",
        "out/b/x.pdf.txt",
        "out/z.txt",
    ]


def test_documents_from_above_stay_inside_the_output(monkeypatch):
    sources = make("p/x.pdf", "q/job/x.pdf")
    monkeypatch.chdir("q/job")
    named = [("../../p/x.pdf", Path("../../p/x.pdf")), ("x.pdf", Path("x.pdf"))]
    stems = assign_stems(Path("out"), [name for name, _ in named], named)
    assert len(sources) == len({str(stem) for stem in stems.values()})
    assert not any(".." in stem.parts for stem in stems.values())


def test_a_document_given_twice_is_refused_before_any_work():
    make("x.pdf")
    sources = [("x.pdf", Path("x.pdf")), ("./x.pdf", Path("./x.pdf"))]
    with pytest.raises(UsageError, match="given twice"):
        plan_outputs(OcrOptions(inputs=("x.pdf", "./x.pdf"), output="out/"), sources)


PARTS = st.sampled_from(["a", "A", "a.pdf", "a.png", "a.pdf.pdf", "b", "b.txt", "a b.tar.gz"])


@given(st.sets(st.lists(PARTS, min_size=1, max_size=3).map("/".join), min_size=1, max_size=12))
def test_no_two_documents_share_an_output(paths):
    named = [(path, Path("/in", path)) for path in sorted(paths)]
    different = {path.casefold() for path in paths}
    if len(different) < len(paths):
        with pytest.raises(UsageError):
            assign_stems(Path("out"), [], named)
        return
    stems = assign_stems(Path("out"), [], named)
    assert set(stems) == paths
    assert len({str(stem).casefold() for stem in stems.values()}) == len(paths)
    assert all(stem.parts[0] == "out" and ".." not in stem.parts for stem in stems.values())
    assert assign_stems(Path("out"), [], named[::-1]) == stems


def test_standard_input_has_a_name():
    options = OcrOptions(inputs=("-",), output="out/")
    assert outputs(plan_outputs(options, [("-", Path("/tmp/spool-123"))]), "-") == ["out/stdin.txt"]


def test_an_existing_output_needs_a_word():
    Path("out.txt").write_text("old")
    with pytest.raises(OutputError, match=r"output exists: out\.txt") as caught:
        plan("a.pdf", output="out.txt")
    assert "--overwrite" in caught.value.remedy
    assert plan("a.pdf", output="out.txt", overwrite=True).overwrite
    with pytest.raises(OutputError, match="no journal"):
        plan("a.pdf", output="out.txt", resume=True)
    Path("out.txt.vlmcli-journal").touch()
    assert plan("a.pdf", output="out.txt", resume=True).resume


def test_any_existing_output_of_many_is_named():
    Path("out").mkdir()
    Path("out/b.txt").touch()
    Path("out/c.txt").symlink_to("nowhere")
    with pytest.raises(OutputError, match=r"out/b\.txt \(and 1 more\)"):
        plan("a.pdf", "b.pdf", "c.pdf", output="out")
    Path("out/unrelated.md").touch()
    assert plan("d.pdf", output="out")


@pytest.mark.parametrize("output", ["out.txt", "out/"])
def test_an_unfinished_job_is_not_overwritten_silently(output):
    Path("out").mkdir()
    for journal in ("out.txt.vlmcli-journal", "out/.vlmcli-journal"):
        Path(journal).touch()
    with pytest.raises(OutputError, match="unfinished job") as caught:
        plan("a.pdf", output=output)
    assert "--resume" in caught.value.remedy and "--overwrite" in caught.value.remedy
    assert plan("a.pdf", output=output, resume=True)
    assert plan("a.pdf", output=output, overwrite=True)


@pytest.mark.parametrize("output", ["out.txt", "out/"])
@pytest.mark.parametrize("more", [{}, {"resume": True}, {"overwrite": True}])
def test_a_job_that_still_runs_is_not_taken_for_one_that_was_left(output, more):
    Path("out").mkdir()
    for journal in (Path("out.txt.vlmcli-journal"), Path("out/.vlmcli-journal")):
        with journal.open("w") as held:
            lock.take(held.fileno(), journal)
            assert lock.is_taken(journal)
            if str(journal).startswith(output):
                with pytest.raises(OutputError, match="another vlmcli is writing") as caught:
                    plan("a.pdf", output=output, **more)
                assert "--resume" not in caught.value.remedy
        assert not lock.is_taken(journal)
    assert not lock.is_taken(Path("nothing"))


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_output_is_never_an_input(overwrite):
    make("a.txt", "b.pdf")
    Path("link.txt").symlink_to("a.txt")
    os.link("b.pdf", "hard.txt")
    for output in ("a.txt", "./a.txt", "link.txt", "hard.txt"):
        with pytest.raises(OutputError, match="also an input"):
            plan("b.pdf", "a.txt", output=output, overwrite=overwrite)
    Path("b.txt").symlink_to("a.txt")
    with pytest.raises(OutputError, match="also an input"):
        plan("b.pdf", "a.txt", output="./", overwrite=overwrite)


def test_places_that_do_not_exist_or_are_no_directories():
    make("a.pdf")
    with pytest.raises(OutputError, match="no such directory: nowhere"):
        plan("a.pdf", output="nowhere/out.txt")
    with pytest.raises(OutputError, match="not a directory"):
        plan("a.pdf", output="a.pdf/deep/")
    with pytest.raises(UsageError, match="empty"):
        plan("a.pdf", output="")
    Path("out").mkdir()
    Path("out/a.txt").mkdir()
    with pytest.raises(OutputError, match=r"not a regular file: out/a\.txt"):
        plan("a.pdf", output="out", overwrite=True)


@pytest.mark.parametrize("output", ["closed/out.txt", "closed/", "closed/new/"])
def test_a_place_without_permission(output, monkeypatch):
    Path("closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("closed"))
    with pytest.raises(OutputError, match="no permission to write into closed"):
        plan("a.pdf", output=output)


def test_ten_thousand_documents_have_ten_thousand_outputs():
    names = [f"in/{n % 100}/{n}.pdf" for n in range(10_000)]
    named = [(name, Path(name)) for name in names]
    found = plan_outputs(OcrOptions(inputs=("in",), output="out/"), named)
    assert len(set(outputs(found, *names))) == 10_000


LONG = st.builds(
    lambda letter, length, rest: letter * (length // len(os.fsencode(letter))) + rest,
    st.sampled_from(["a", "A", "ß", "😀", "\udcff"]),
    st.integers(230, 251),
    st.sampled_from(["", "b", "c", ".b"]),
).filter(lambda name: len(os.fsencode(name)) <= 251)


@given(st.sets(st.tuples(LONG, st.sampled_from([".png", ".pdf"])), min_size=1, max_size=12))
def test_names_that_are_too_long_are_cut_and_stay_apart(names):
    """Whatever a folder may hold, every document has an output of its own that can be made."""
    named = [(stem + suffix, Path("/in", stem + suffix)) for stem, suffix in sorted(names)]
    if len({name.casefold() for name, _ in named}) < len(named):
        return
    stems = assign_stems(Path("out"), [], named)
    files = [str(stem) + extension for stem in stems.values() for extension in EXTENSIONS.values()]
    assert len({file.casefold() for file in files}) == len(named) * len(EXTENSIONS)
    assert all(len(os.fsencode(Path(file).name)) <= 255 for file in files)
    assert assign_stems(Path("out"), [], named[::-1]) == stems


def test_a_cut_name_is_the_same_beside_other_documents_and_begins_like_the_document():
    long = "a" * 251 + ".png"
    (alone,) = assign_stems(Path("out"), [], [(long, Path("/in", long))]).values()
    others = [(name, Path("/in", name)) for name in ("z.png", long, "b" * 250 + ".png")]
    assert assign_stems(Path("out"), [], others)[long] == alone
    assert alone.name.startswith("a" * 230) and len(alone.name) == 255 - len(".dolma.jsonl")
    fits = "a" * (255 - len(".dolma.jsonl"))
    stems = assign_stems(Path("out"), [], [("x", Path("/in", fits + ".png"))])
    assert stems["x"].name == fits, "what fits is left alone"


def test_a_crafted_name_takes_no_other_documents_output():
    long = "a" * 251
    (cut,) = assign_stems(Path("out"), [], [("x", Path("/in", long + ".png"))]).values()
    named = [("x", Path("/in", long + ".png")), ("y", Path("/in", cut.name + ".png"))]
    assert len(set(assign_stems(Path("out"), [], named).values())) == 2


def test_a_file_system_with_shorter_names(monkeypatch):
    monkeypatch.setattr(os, "pathconf", lambda path, name: 143)
    name = "d" * 200 + "/" + "a" * 200 + ".png"
    (stem,) = assign_stems(Path("out"), ["/in"], [(name, Path("/in", name))]).values()
    assert len(stem.name) == 143 - len(".dolma.jsonl")


def test_a_path_that_is_too_long_is_refused_before_any_work():
    deep = "/".join(["d" * 200] * 21)
    with pytest.raises(OutputError, match="too long"):
        plan("a.pdf", output=f"{deep}/")
