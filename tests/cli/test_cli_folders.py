"""Folders with all sorts of files: what is read, what is said, and that `plan` says the same."""

import json

import pymupdf
import pytest
from command_line import ROOT
from PIL import Image

from vlmcli.documents import heif

KINDS = {"gray.png": "L", "rgb.jp2": "RGB", "real.bmp": "RGB", "bare.j2k": "L", "any.tiff": "1"}
KINDS |= {"photo.avif": "RGB"} if heif.is_readable("AVIF") else {}


WITHOUT_LAYER = (
    f"vlmcli: warning: {len(KINDS)} pages have no text layer; "
    "--text-layer auto has a model read such pages\n"
).encode()


@pytest.fixture
def folder(real):
    """Blank pictures of many formats, a PDF, and two files that nobody here reads."""
    mixed = real.folder / "mix"
    mixed.mkdir()
    for name, mode in KINDS.items():
        Image.new(mode, (300, 200), "white").save(mixed / name)
    with pymupdf.open() as pdf:
        pdf.new_page(width=300, height=200).insert_text((20, 40), "Words of a document.")
        (mixed / "z.pdf").write_bytes(pdf.tobytes())
    (mixed / "notes.txt").write_text("notes")
    return mixed


def test_every_picture_of_a_folder_has_a_record_and_a_place_in_the_plan(real, folder):
    done = real("ocr", "mix", "--text-layer", "only", "-f", "jsonl")
    assert (done.returncode, done.stderr) == (0, WITHOUT_LAYER)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert {record["document"] for record in records} == {f"mix/{n}" for n in [*KINDS, "z.pdf"]}
    planned = real("plan", "mix", "--json")
    assert (planned.returncode, planned.stderr) == (0, b"")
    assert json.loads(planned.stdout)["num_pages"] == len(records)


@pytest.mark.parametrize("output", [(), ("-o", "out/")])
def test_what_is_left_out_is_said_once_by_ocr_and_plan(real, folder, output):
    (folder / "letter.docx").write_bytes(b"PK\x03\x04" + bytes(40))
    (folder / "photo.jxl").write_bytes(b"\xff\x0a" + bytes(40))
    done = real("ocr", "mix", "--text-layer", "only", *output)
    planned = real("plan", "mix", "--json")
    said = (
        b"vlmcli: warning: left out 2 files of kinds that vlmcli does not read, the first of them "
        b"mix/letter.docx (it is a ZIP archive or Office file)\n"
    )
    assert (done.returncode, done.stderr) == (0, said + WITHOUT_LAYER)
    assert (planned.returncode, planned.stderr) == (0, said)


def test_a_folder_of_nothing_else_says_what_is_there(real):
    (real.folder / "mix").mkdir()
    (real.folder / "mix/letter.docx").write_bytes(b"PK\x03\x04" + bytes(40))
    for command in ("ocr", "plan"):
        done = real(command, "mix")
        assert done.returncode == 3
        assert b"no documents in this folder" in done.stderr
        assert b"mix/letter.docx" in done.stderr


def test_codes_of_documents_in_records_stand_in_the_documentation(real, folder):
    """Of documents that are cut, empty, no documents, or have too few pages for `--pages`."""
    (folder / "empty.pdf").write_bytes(b"")
    (folder / "text.png").write_bytes(b"text")
    (folder / "cut.jp2").write_bytes((folder / "rgb.jp2").read_bytes()[:40])
    done = real("ocr", "mix", "--pages", "2-3", "--text-layer", "only", "-f", "jsonl")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    codes = {record["error"]["code"] for record in records}
    assert codes == {"usage", "empty", "not-a-document", "damaged"}
    table = (ROOT / "docs" / "records.md").read_text().partition("## Error codes")[2]
    assert all(f"`{code}`" in table for code in codes)
