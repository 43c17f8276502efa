"""File names that are no UTF-8: records keep them, and everything finds the files again."""

import json
import os
from pathlib import Path

import jsonschema
import pymupdf
import pytest
from command_line import ROOT, journaled, read_records
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.documents.lookup import find_document
from vlmcli.documents.source import iter_sources
from vlmcli.outputs.base import encode
from vlmcli.paths import name_of, path_of
from vlmcli.results import PageRecord

NAMES = (b"caf\xe9.pdf", b"caf\xe8.pdf", b"\xff\xfe.pdf", "naïve 漢字 🙂.pdf".encode())
"""The first two were the same to records: `caf\ufffd.pdf`."""

# What a file may be called: no zero byte, no slash, and no name that means a folder.
file_names = st.binary(min_size=1, max_size=40).filter(
    lambda name: not {0, ord("/")} & set(name) and name not in (b".", b"..", b"-")
)


def record_of(name: str) -> PageRecord:
    return PageRecord(document=name, page=1, pages=1, status="ok", text="x")


@given(file_names, file_names)
def test_a_record_keeps_any_name(one, other):
    name = name_of(os.fsdecode(one))
    line = encode(record_of(name).to_json())
    again = PageRecord.from_dict(json.loads(line.decode("utf-8")))
    assert os.fsencode(path_of(again.document)) == one
    assert (name == name_of(os.fsdecode(other))) == (one == other)


@given(st.text(st.characters(), max_size=40))
def test_what_is_no_name_of_a_file_is_found_nowhere(text):
    """Records come from anywhere: other surrogates and zero bytes raise nothing."""
    assert isinstance(path_of(text), Path)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A folder with a small PDF under each of the names."""
    folder = tmp_path_factory.mktemp("shelf")
    try:
        for number, name in enumerate(NAMES):
            with pymupdf.open() as pdf:
                page = pdf.new_page(width=300, height=200)
                page.insert_text((20, 40), f"The words of document number {number}.")
                Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(pdf.tobytes())
    except OSError:
        pytest.skip("this file system takes no such names")
    return folder


def test_sources_are_found_again(shelf):
    found = list(iter_sources([str(shelf)]))
    assert len(found) == len({source.name for source in found}) == len(NAMES)
    for source in found:
        assert find_document(source.name, beside=Path("/nowhere")).path == source.path


def test_every_output_and_every_reader_of_records(real, shelf):
    """All formats, then the report, the evaluation, and the schema."""
    formats = [word for name in FORMATS for word in ("-f", name)]
    done = real("ocr", str(shelf), "--text-layer", "only", *formats, "-o", "out/")
    assert done.returncode == 0, done.stderr.decode()
    out = os.fsencode(real.folder / "out")
    for name in NAMES:
        for suffix in (b".txt", b".jsonl", b".pdf", b".hocr", b".xml", b".md"):
            assert os.path.exists(out + b"/" + name[:-4] + suffix), (name, suffix)  # noqa: PTH110
    done = real("ocr", str(shelf), "--text-layer", "only", "-f", "jsonl", "-o", "all.jsonl")
    assert done.returncode == 0, done.stderr.decode()
    records = read_records((real.folder / "all.jsonl").read_bytes())
    schema = json.loads((ROOT / "docs" / "record.schema.json").read_text())
    for record in records:
        jsonschema.validate(record, schema)
        assert path_of(record["document"]).is_file()
    report = real("view", "all.jsonl", "-o", "-")
    assert report.stderr == b""
    assert report.stdout.count(b"<script type=") == len(NAMES)
    planned = real("plan", str(shelf), "--json")
    assert planned.returncode == 0, planned.stderr.decode()
    assert json.loads(planned.stdout)["fits"] is True
    score = real("eval", "all.jsonl", "--truth", "text-layer", "--html", "worst.html", "--json")
    assert score.returncode == 0, score.stderr.decode()
    assert json.loads(score.stdout)["cer"]["value"] == 0


FORMATS = ("text", "markdown", "jsonl", "hocr", "alto", "pdf", "dolma")


def test_a_killed_job_goes_on(cli):
    name = os.fsdecode(b"caf\xe9.pdf")
    try:
        (cli.folder / name).write_bytes(b"document")
    except OSError:
        pytest.skip("this file system takes no such names")
    args = ("ocr", name, "b.pdf", "-f", "jsonl", "-o", "out.jsonl")
    killed = cli(*args, fake={"pages": 4, "at": 3, "kill": True})
    assert killed.returncode < 0
    assert journaled(cli.folder / "out.jsonl") == 2
    done = cli(*args, "--resume", fake={"pages": 4, "log": "computed"})
    assert done.returncode == 0, done.stderr.decode()
    records = read_records((cli.folder / "out.jsonl").read_bytes())
    assert [record["page"] for record in records] == [1, 2, 3, 4, 1, 2, 3, 4]
    assert path_of(records[0]["document"]) == Path(name)
    assert len((cli.folder / "computed").read_bytes().splitlines()) == 6


def test_names_with_no_room_for_an_extension_end_no_job(real):
    """Every document has its outputs, in every format, and a second job finds them again."""
    names = [letter * (251 // len(letter.encode())) + ".pdf" for letter in "aß😀"]
    (real.folder / "in").mkdir()
    for name in [*names, "z.pdf"]:
        with pymupdf.open() as pdf:
            pdf.new_page(width=300, height=200).insert_text((20, 40), f"I am {name[0]}.")
            (real.folder / "in" / name).write_bytes(pdf.tobytes())
    formats = [word for name in FORMATS for word in ("-f", name)]
    args = ("ocr", "in", "--text-layer", "only", *formats, "-o", "out/")
    done = real(*args)
    assert (done.returncode, done.stderr) == (0, b"")
    outputs = sorted((real.folder / "out").iterdir())
    assert len(outputs) == 4 * len(FORMATS)
    records = [
        record
        for path in (real.folder / "out").glob("*.jsonl")
        if not path.name.endswith(".dolma.jsonl")
        for record in read_records(path.read_bytes())
    ]
    assert {record["document"] for record in records} == {f"in/{n}" for n in [*names, "z.pdf"]}
    assert b"output exists" in real(*args).stderr
    assert real(*args, "--overwrite").returncode == 0
    assert sorted((real.folder / "out").iterdir()) == outputs
