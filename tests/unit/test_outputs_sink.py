"""The sink: records reach their targets, whole or not at all, however often a job is resumed."""

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_strategies import document, failed, page

from vlmcli.options import OcrOptions
from vlmcli.outputs import RecordSink, plan_outputs

NAMES = ("a.pdf", "b.pdf", "c.pdf")
RECORDS = [record for name, n in zip(NAMES, (2, 1, 3), strict=True) for record in document(name, n)]


@pytest.fixture(autouse=True)
def inside_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def sink_for(output: str | None, *formats, stdout=None, **more) -> RecordSink:
    options = OcrOptions(inputs=NAMES, output=output, formats=formats or ("text",), **more)
    plan = plan_outputs(options, [(name, Path(name)) for name in NAMES])
    sink = RecordSink(plan, stdout or io.BytesIO())
    sink.begin()
    return sink


def write_all(sink: RecordSink, records=RECORDS) -> None:
    for record in records:
        sink.write(record)
    sink.finish()


def contents(folder=".") -> dict[str, bytes]:
    paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def jsonl(records) -> bytes:
    return b"".join(record.to_json().encode() + b"\n" for record in records)


def test_stdout_has_every_record_as_soon_as_it_is_written():
    stdout = io.BytesIO()
    sink = sink_for(None, "jsonl", stdout=stdout)
    for n, record in enumerate(RECORDS, 1):
        sink.write(record)
        assert stdout.getvalue() == jsonl(RECORDS[:n])
    sink.finish()
    assert stdout.getvalue() == jsonl(RECORDS)
    assert not stdout.closed
    assert contents() == {}


def test_one_file_takes_all_documents_in_every_format():
    write_all(sink_for("all.txt", "text", "jsonl", "markdown"))
    found = contents()
    assert set(found) == {"all.txt", "all.jsonl", "all.md"}
    assert found["all.txt"].count(b"\f") == len(RECORDS) - 1
    assert found["all.jsonl"] == jsonl(RECORDS)
    assert [found["all.md"].count(f"<!-- document {name} -->".encode()) for name in NAMES] == [
        1
    ] * 3


def test_a_directory_has_a_file_for_every_document_published_one_by_one():
    sink = sink_for("out/", "text", "jsonl")
    for record in RECORDS[:3]:
        sink.write(record)
    assert set(contents("out")) >= {"a.txt", "a.jsonl", "b.jsonl"}
    assert "b.txt" not in contents("out")
    for record in RECORDS[3:]:
        sink.write(record)
    sink.finish()
    found = contents("out")
    assert set(found) == {f"{stem}{ending}" for stem in "abc" for ending in (".txt", ".jsonl")}
    assert found["c.jsonl"] == jsonl(RECORDS[3:])
    assert found["c.txt"] == b"c.pdf 1\nline\n\fc.pdf 2\nline\n\fc.pdf 3\nline\n"


def test_an_aborted_job_leaves_whole_documents_and_whole_lines():
    sink = sink_for("out/", "text", "jsonl")
    for record in RECORDS[:5]:
        sink.write(record)
    sink.abort()
    found = contents("out")
    assert set(found) == {"a.txt", "a.jsonl", "b.txt", "b.jsonl", "c.jsonl"}
    assert found["c.jsonl"] == jsonl(RECORDS[3:5])


def test_a_document_that_cannot_be_opened_has_a_record_and_no_text():
    broken = failed("b.pdf", 0, "damaged", pages=0)
    records = [page("a.pdf", 1), broken, page("c.pdf", 1)]
    write_all(sink_for("out/", "text", "jsonl"), records)
    assert set(contents("out")) == {"a.txt", "a.jsonl", "b.jsonl", "c.txt", "c.jsonl"}
    assert contents("out")["b.jsonl"] == jsonl([broken])
    write_all(sink_for("all.txt"), records)
    assert Path("all.txt").read_text() == "text\n\f[vlmcli: b.pdf failed: damaged]\n\ftext\n"


def test_nothing_is_created_or_replaced_before_the_first_record():
    Path("out.jsonl").write_bytes(b"old\n")
    sink = sink_for("out.jsonl", "jsonl", overwrite=True)
    sink.abort()
    assert contents() == {"out.jsonl": b"old\n"}


def test_a_job_without_records_makes_an_empty_file():
    write_all(sink_for("out.jsonl", "jsonl"), [])
    assert contents() == {"out.jsonl": b""}


stops = st.lists(st.integers(0, len(RECORDS)), max_size=4)


@given(stops, st.sampled_from(["all.x", "out/"]), st.sampled_from([b"", b'{"half": ']))
@settings(max_examples=25)
def test_any_number_of_kills_gives_the_same_files(tmp_path_factory, stopped_after, output, rest):
    """Whatever was on disk before a kill is a beginning of what is there at the end."""
    folder = tmp_path_factory.mktemp("job")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        formats = ("jsonl", "text", "markdown")
        for count in stopped_after:
            # A killed process does not call abort: it leaves temporary files and half a line.
            Path("out").mkdir(exist_ok=True)
            Path("out/.vlmcli-journal").touch()
            Path("all.x.vlmcli-journal").touch()
            killed = sink_for(output, *formats, resume=True)
            for record in RECORDS[:count]:
                killed.write(record)
            lines = {path: path.read_bytes() for path in folder.rglob("*.jsonl")}
            for path in lines:
                path.write_bytes(lines[path] + rest)
            again = sink_for(output, *formats, resume=True)
            for record in RECORDS[: count // 2]:
                again.write(record)
            for path, data in lines.items():
                assert path.read_bytes().startswith(data)
            killed.abort()
            again.abort()
        sink = sink_for(output, *formats, resume=True)
        write_all(sink)
        resumed = {name: data for name, data in contents().items() if "journal" not in name}
        Path("fresh").mkdir()
        patch.chdir("fresh")
        write_all(sink_for(output, *formats))
        assert resumed == contents()


def test_a_document_that_comes_back_is_a_bug_of_ours():
    sink = sink_for("out/")
    sink.write(page("a.pdf", 1))
    sink.write(page("b.pdf", 1))
    with pytest.raises(AssertionError, match=r"came back: a\.pdf"):
        sink.write(page("a.pdf", 2))
    sink.abort()
