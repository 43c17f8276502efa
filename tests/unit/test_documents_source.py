"""Inputs: told apart by content, walked in natural order, and never lost without a word."""

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from documents_kit import opened, pages_pdf, text_at
from PIL import Image

from vlmcli.documents import heif
from vlmcli.documents.source import Source, iter_sources, open_document
from vlmcli.errors import EncryptedError, InputError, UsageError
from vlmcli.paths import path_of

PAGE = pages_pdf([text_at(20, 300, "hello")])


def picture(kind: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((20, 30), 200, np.uint8)).save(out, kind)
    return out.getvalue()


AVIF = ["AVIF"] if heif.is_readable("AVIF") else []


@pytest.fixture(autouse=True)
def no_heic(monkeypatch):
    """HEIC is of the kinds that are not read here, whatever is installed."""
    monkeypatch.setattr(heif, "is_readable", lambda kind: kind == "AVIF")


def names(folder: Path) -> list[str]:
    return [str(source.path.relative_to(folder)) for source in iter_sources([str(folder)])]


@pytest.mark.parametrize(
    "kind", ["PDF", "PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "JPEG2000", "AVIF"]
)
@pytest.mark.parametrize("suffix", ["", ".pdf", ".txt", ".jpg"])
def test_content_decides_and_not_the_suffix(tmp_path, kind, suffix):
    path = tmp_path / f"input{suffix}"
    path.write_bytes(PAGE if kind == "PDF" else picture(kind))
    with opened(path) as document:
        assert document.num_pages == 1
        assert document.page(0).unit == ("pt" if kind == "PDF" else "px")


FAULTS = {
    "empty": (b"", "empty", "empty"),
    "html": (b"<!DOCTYPE html><html><body>Not found</body></html>", "not-a-document", "HTML"),
    "text": ("Grüße aus der Datei\n".encode() * 80, "not-a-document", "text file"),
    "garbage": (bytes(range(1, 256)) * 9 + b"\x00", "not-a-document", "no known kind"),
    "zip": (b"PK\x03\x04" + bytes(40), "not-a-document", "ZIP"),
    "heic": (b"\x00\x00\x00\x20ftypheic" + bytes(40), "not-a-document", "HEIC"),
    "mp4 head": (b"\x00\x00\x00\x20ftypmp42" + bytes(40), "damaged", "video"),
    "mkv head": (b"\x1a\x45\xdf\xa3" + bytes(40), "damaged", "video"),
    "avi head": (b"RIFF\x20\x00\x00\x00AVI LIST", "damaged", "video"),
    "header only": (b"%PDF-1.7\n%%EOF\n", "damaged", "PDF"),
    "pdf garbage": (b"%PDF-1.7\n" + bytes(range(256)) * 20, "damaged", "PDF"),
    "no pages": (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
        b"2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\ntrailer<</Root 1 0 R>>\n",
        "no-pages",
        "no pages",
    ),
    "list of pages lost": (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\ntrailer<</Root 1 0 R>>\n",
        "damaged",
        "truncated",
    ),
    "png header": (picture("PNG")[:20], "damaged", "image"),
    "jpeg head": (b"\xff\xd8\xff\xe0" + bytes(30), "damaged", "image"),
    "tiff head": (b"II*\x00\x08\x00\x00\x00", "damaged", "image"),
    "webp head": (b"RIFF\x20\x00\x00\x00WEBPVP8 ", "damaged", "image"),
    "bmp head": (b"BM" + bytes(12) + b"\x28\x00\x00\x00", "damaged", "image"),
    "jpeg 2000 head": (b"\x00\x00\x00\x0cjP  \r\n\x87\n" + bytes(30), "damaged", "image"),
    "text that begins like a bmp": (b"BMW is a maker of cars.", "not-a-document", "text file"),
    "gif head": (b"GIF89a\x01", "damaged", "image"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_read_is_one_clear_error(tmp_path, fault):
    data, code, words = FAULTS[fault]
    path = tmp_path / "input.pdf"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        opened(path)
    assert caught.value.exit_code == 3
    assert caught.value.code == code
    assert words in caught.value.message
    assert "input.pdf" in caught.value.message
    assert str(tmp_path) not in caught.value.message, "the name says where; the path is noise"
    assert "\n" not in str(caught.value)


def test_missing_unreadable_and_special_files(tmp_path):
    with pytest.raises(InputError) as caught:
        opened(tmp_path / "no.pdf")
    assert caught.value.code == "missing"
    with pytest.raises(InputError) as caught:
        open_document(Source(path=Path("/dev/null"), name="/dev/null"))
    assert caught.value.code == "not-a-document"
    with pytest.raises(InputError) as caught:
        open_document(Source(path=Path("a\0b"), name="a\0b"))
    assert caught.value.exit_code == 3
    with pytest.raises(InputError):
        open_document(Source(path=Path("x" * 5000), name="long"))


def test_missing_files_do_not_stop_the_others(tmp_path):
    (tmp_path / "good.pdf").write_bytes(PAGE)
    found = list(iter_sources([str(tmp_path / "bad.pdf"), str(tmp_path / "good.pdf")]))
    assert [source.path.name for source in found] == ["bad.pdf", "good.pdf"]
    with open_document(found[1]) as document:
        assert document.num_pages == 1


def test_folders_are_walked_in_natural_order(tmp_path):
    for name in ("p10.pdf", "p2.pdf", "P1.pdf", "sub/a1.png", "sub/a01.png", "z.pdf", "p2b.pdf"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(picture("PNG") if name.endswith("png") else PAGE)
    assert names(tmp_path) == [
        "P1.pdf",
        "p2.pdf",
        "p2b.pdf",
        "p10.pdf",
        "sub/a01.png",
        "sub/a1.png",
        "z.pdf",
    ]


def test_folders_give_documents_and_what_claims_to_be_one(tmp_path):
    (tmp_path / "scan").write_bytes(picture("TIFF"))
    (tmp_path / "notes.txt").write_text("nothing to read")
    (tmp_path / "broken.pdf").write_bytes(b"")
    (tmp_path / ".hidden.pdf").write_bytes(PAGE)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.pdf").write_bytes(PAGE)
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.pdf")
    assert names(tmp_path) == ["broken.pdf", "scan"]


def test_an_empty_folder_is_reported(tmp_path):
    (found,) = iter_sources([str(tmp_path)])
    with pytest.raises(InputError, match="no documents"):
        open_document(found)


@pytest.mark.parametrize(
    "name", ["a b.pdf", "naïve 漢字.pdf", "-.pdf", os.fsdecode(b"\xff\xfe.pdf")]
)
def test_odd_names(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(PAGE)
    (found,) = iter_sources([str(path)])
    assert path_of(found.name) == path
    with open_document(found) as document:
        assert document.text_layer(0, _spec()) is not None


def _spec():
    from documents_kit import GREY

    return GREY


def test_names_are_shown_as_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/x.pdf").write_bytes(PAGE)
    found = list(iter_sources(["./in/x.pdf", "in"]))
    assert [source.name for source in found] == ["./in/x.pdf", "in/x.pdf"]


def test_stdin_is_kept_until_the_job_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PAGE)))
    found = iter_sources(["-"])
    (source,) = found
    assert source.name == "-"
    assert source.path.stat().st_mode & 0o077 == 0 or source.path.parent.stat().st_mode & 0o077 == 0
    with open_document(source) as document:
        assert document.num_pages == 1
    found.close()
    assert not source.path.parent.exists()
    found.close()


def test_a_pipe_is_read_like_stdin(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(PAGE,))
    writer.start()
    found = iter_sources([str(pipe)])
    source = next(found)
    writer.join()
    with open_document(source) as document:
        assert document.num_pages == 1
    found.close()


def test_stdin_twice_is_a_usage_error():
    with pytest.raises(UsageError):
        iter_sources(["-", "x.pdf", "-"])


def test_inputs_are_found_as_they_are_asked_for(tmp_path):
    (tmp_path / "a.pdf").write_bytes(PAGE)
    found = iter_sources([str(tmp_path / "a.pdf"), "-"])
    assert next(found).path.name == "a.pdf"
    found.close()


def test_pymupdf_comes_without_its_layout_model_and_without_a_word():
    code = (
        "import sys; from vlmcli.documents import mupdf; mupdf.load(); "
        "assert not {'onnxruntime', 'pymupdf4llm'} & set(sys.modules), 'heavy'; "
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("password", [None, "", "wrong"])
def test_an_encrypted_file_without_its_password(tmp_path, password):
    path = encrypted(tmp_path / "e.pdf", user="sesame", owner="open")
    with pytest.raises(EncryptedError) as caught:
        opened(path, password=password)
    assert caught.value.exit_code == 8
    assert ("wrong" in caught.value.message) == (password == "wrong")
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("method", ["RC4_40", "RC4_128", "AES_128", "AES_256"])
@pytest.mark.parametrize("password", ["sesame", "open"])
def test_an_encrypted_file_with_a_password_has_its_text(tmp_path, method, password):
    path = encrypted(tmp_path / "e.pdf", user="sesame", owner="open", method=method)
    with opened(path, password=password) as document:
        layer = document.text_layer(0, _spec())
        assert layer is not None
        assert "".join(item.text for item in layer.fragments) == "hello"


def test_an_owner_password_alone_is_not_asked_for(tmp_path):
    path = encrypted(tmp_path / "e.pdf", user="", owner="open")
    with opened(path) as document:
        assert document.text_layer(0, _spec()) is not None


def test_an_unknown_encryption_is_said_to_be_one(tmp_path):
    path = tmp_path / "e.pdf"
    trailer = b"/Encrypt<</Filter/Acme.Sealed/V 9>>/ID[<00><00>]"
    path.write_bytes(pages_pdf([b""], trailer=trailer))
    with pytest.raises(EncryptedError):
        opened(path, password="x")


def encrypted(path: Path, *, user: str, owner: str, method: str = "AES_256") -> Path:
    from vlmcli.documents import mupdf

    pymupdf = mupdf.load()
    with pymupdf.open(stream=PAGE, filetype="pdf") as document:
        document.save(
            path,
            encryption=getattr(pymupdf, f"PDF_ENCRYPT_{method}"),
            user_pw=user,
            owner_pw=owner,
        )
    return path


def test_links_that_lead_nowhere_are_documents_that_are_missing(tmp_path):
    """Or a folder of links would lose pages without a word when what they point to moves."""
    (tmp_path / "kept.pdf").write_bytes(PAGE)
    (tmp_path / "gone.pdf").symlink_to(tmp_path / "nowhere.pdf")
    (tmp_path / "note").symlink_to(tmp_path / "nowhere")
    (tmp_path / "one.png").symlink_to(tmp_path / "two.png")
    (tmp_path / "two.png").symlink_to(tmp_path / "one.png")
    assert names(tmp_path) == ["gone.pdf", "kept.pdf", "one.png", "two.png"]
    with pytest.raises(InputError):
        open_document(Source(path=tmp_path / "gone.pdf", name="gone.pdf"))
    with pytest.raises(InputError):
        open_document(Source(path=tmp_path / "one.png", name="one.png"))


LEFT_OUT = {
    "letter.docx": b"PK\x03\x04" + bytes(40),
    "photo.heic": b"\x00\x00\x00\x20ftypheic" + bytes(40),
    "paper.ps": b"%!PS-Adobe-3.0\n",
    "letter.rtf": b"{\\rtf1 Hello}",
    "book.djvu": b"AT&TFORM" + bytes(40),
    "scan.xyz": bytes(range(1, 256)) + b"\x00",
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_file_in_a_folder_that_may_be_a_document_is_not_dropped_silently(tmp_path, name):
    (tmp_path / "a.pdf").write_bytes(PAGE)
    (tmp_path / name).write_bytes(LEFT_OUT[name])
    said = []
    found = iter_sources([str(tmp_path)], on_left_out=said.append)
    assert [source.path.name for source in found] == ["a.pdf"]
    (warning,) = said
    assert warning.startswith("left out a file of a kind that vlmcli does not read: ")
    assert str(tmp_path / name) in warning


def test_files_that_were_left_out_are_counted_over_all_folders(tmp_path):
    for place in ("x", "x/deep", "y"):
        (tmp_path / place).mkdir()
        for name, data in LEFT_OUT.items():
            (tmp_path / place / name).write_bytes(data)
    said = []
    inputs = [str(tmp_path / "x"), str(tmp_path / "y")]
    found = list(iter_sources(inputs, on_left_out=said.append))
    assert [source.path for source in found] == [Path(name) for name in inputs], "nothing to read"
    first = tmp_path / "x" / "book.djvu"
    assert said == [
        f"left out {3 * len(LEFT_OUT)} files of kinds that vlmcli does not read, "
        f"the first of them {first} (it is a DjVu file)"
    ]


def test_files_that_are_plainly_no_documents_need_no_word(tmp_path):
    for name, data in {
        "notes.txt": "Grüße".encode(),
        "x.jsonl": b'{"a": 1}\n',
        "x.md": b"# Title",
        "page.html": b"<!DOCTYPE html><html></html>",
        "empty": b"",
        ".hidden.docx": LEFT_OUT["letter.docx"],
        "a.pdf": PAGE,
        "broken.bmp": b"not a picture",
    }.items():
        (tmp_path / name).write_bytes(data)
    said = []
    found = iter_sources([str(tmp_path)], on_left_out=said.append)
    assert [source.path.name for source in found] == ["a.pdf", "broken.bmp"]
    assert said == []
