"""Pages of text out of files: what is compared, page by page.

A JSON Lines file has records (`document`, `page`, `text`), a text file has pages between form
feeds, a folder has such files. Documents are known by the stems of their names, so that a record of
`scans/a.pdf` and the file `truth/a.txt` are the same document.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from vlmcli.documents.base import RenderSpec
from vlmcli.errors import InputError, UsageError
from vlmcli.paths import is_folder, name_of, path_of

PageKey = tuple[str, int]
"""Document's stem and page number, from 1."""
_MEASURED = RenderSpec(dpi=100, max_pixels=10**7)
_HEAD = 1024
"""Bytes that are looked at for what no text has."""
_SUFFIXES = (".jsonl", ".txt", ".md", ".text")


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePair:
    """A page's text as it is and as it should be; either is empty where the page is missing."""

    document: str
    page: int
    text: str
    truth: str
    is_missing: bool = False
    """Whether the prediction has no such page."""


def read_pages(path: Path) -> dict[PageKey, str]:
    """The pages of a file or of the files of a folder.

    Raises:
        InputError: there is nothing to read, or a line is no record.
    """
    if is_folder(path):
        files = text_files(path)
        pages: dict[PageKey, str] = {}
        for file in files:
            pages |= read_pages(file)
        if not files:
            raise InputError(f"no texts in {path}", remedy="texts end with .jsonl, .txt or .md")
        return pages
    text = _text(path)
    if path.suffix.lower() == ".jsonl":
        return {(_stem(name), page): content for name, page, content in _lines(path, text)}
    return {(_stem(name_of(path)), number): page for number, page in enumerate(text.split("\f"), 1)}


def text_files(path: Path) -> list[Path]:
    """The files that `read_pages` reads there: the file itself, or those of a folder."""
    if not is_folder(path):
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix.lower() in _SUFFIXES)


def read_text_layers(prediction: Path) -> dict[PageKey, str]:
    """The text layers of the documents that a JSON Lines file names, for pages that have one.

    Raises:
        UsageError: it is no JSON Lines file.
        InputError: a document is not where the records say; the file holds no records.
    """
    from vlmcli.documents.source import Source, open_document
    from vlmcli.documents.textlayer import compose

    pages: dict[PageKey, str] = {}
    for name, numbers in _named_pages(prediction).items():
        document = open_document(Source(path=path_of(name), name=name))
        try:
            for number in sorted(numbers):
                verdict = compose(document.text_layer(number - 1, _MEASURED))
                if verdict.text:
                    pages[_stem(name), number] = verdict.text
        finally:
            document.close()
    return pages


def answered_by_text_layer(prediction: Path) -> set[PageKey]:
    """The pages that a JSON Lines file says were answered from the document's own text layer.

    Against that layer they have no errors, whatever it is worth. Nothing is known of text files.

    Raises:
        InputError: a line is no record.
    """
    if prediction.suffix.lower() != ".jsonl":
        return set()
    text = _text(prediction)
    keys = [(_stem(name), page) for name, page, _ in _lines(prediction, text)]
    sources = [json.loads(line).get("source") for line in text.split("\n") if line.strip()]
    return {key for key, source in zip(keys, sources, strict=True) if source == "text-layer"}


def named_documents(prediction: Path) -> list[Path]:
    """The documents whose text layers `read_text_layers` reads.

    Raises:
        UsageError: it is no JSON Lines file.
        InputError: the file holds no records.
    """
    return [path_of(name) for name in _named_pages(prediction)]


def _named_pages(prediction: Path) -> dict[str, set[int]]:
    if prediction.suffix.lower() != ".jsonl":
        raise UsageError(
            "--truth text-layer needs to know the documents",
            remedy="give records, as written by `vlmcli ocr -f jsonl`",
        )
    wanted: dict[str, set[int]] = {}
    for name, number, _ in _lines(prediction, _text(prediction)):
        wanted.setdefault(name, set()).add(number)
    return wanted


def pair_up(texts: Mapping[PageKey, str], truths: Mapping[PageKey, str]) -> list[PagePair]:
    """Every page of the truth with its text; pages that only the prediction has are left out.

    Where each side has one document, its name does not matter.

    Raises:
        UsageError: they have no page in common.
    """
    if len({name for name, _ in texts}) == 1 == len({name for name, _ in truths}):
        (name, _), *_ = truths
        texts = {(name, page): text for (_, page), text in texts.items()}
    if not texts.keys() & truths.keys():
        raise UsageError(
            "prediction and truth have no page in common",
            remedy="documents are matched by the stems of their names",
        )
    return [
        PagePair(
            document=name,
            page=page,
            text=texts.get((name, page), ""),
            truth=truth,
            is_missing=(name, page) not in texts,
        )
        for (name, page), truth in truths.items()
    ]


def _text(path: Path) -> str:
    """What a file says; bytes that are no UTF-8 become replacement characters.

    Raises:
        InputError: it cannot be read, or is no text.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    # A document's bytes would pass for one page of very bad text.
    if b"\0" in data[:_HEAD] or data.startswith(b"%PDF-"):
        raise InputError(
            f"{path} is no text", remedy="give records (.jsonl) or a text file in UTF-8"
        )
    with io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="replace") as stream:
        return stream.read()


def _lines(path: Path, text: str) -> list[tuple[str, int, str]]:
    """Document, page and text of each record of a JSON Lines file."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
            found.append((str(data["document"]), int(data["page"]), str(data["text"])))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}, line {number}: not a page record",
                remedy="give what `vlmcli ocr -f jsonl` writes",
            ) from error
    return found


def _stem(name: str) -> str:
    return PurePath(name).stem
