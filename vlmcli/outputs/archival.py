"""PDF/A of a searchable PDF (`--pdfa`): level 2b, or 3b where files are attached.

pikepdf's allowlist validator (extra `pdfa`) decides: a PDF is published as PDF/A only if every
construct in the file as written is known to conform, so an archival PDF that it does not know is
refused. What stands on pages is never changed; Ghostscript, the usual way, writes it all anew.
Embeds no fonts, converts no colours, takes off no encryption: such documents are refused.
"""

import contextlib
import logging
import warnings
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import Any

from vlmcli.documents.base import Source
from vlmcli.documents.pdf import open_pdf
from vlmcli.errors import InputError, MissingExtraError, OutputError

_LIBRARIES = ("pikepdf", "fontTools", "jsonschema", "referencing")
_NEWEST = "1.7"
"""The version of PDF that PDF/A-2 and 3 are based on."""
_PRIVATE = ("/PieceInfo", "/LastModified")
"""What programs keep for themselves in pages and pictures."""
_HOW_IT_OPENS = ("/OpenAction", *_PRIVATE)
"""Of the catalogue: where a viewer begins, private data."""
_PAGE_MODES = ("/UseNone", "/UseOutlines", "/UseThumbs", "/FullScreen")
_LONGEST = 160
"""Characters of a fault: some list every glyph of a font."""
_REMEDY = "mend it first, or leave out --pdfa: -f pdf keeps a document as it is"


def require_extra() -> None:
    """See to it that the validator is installed.

    Raises:
        MissingExtraError: it is not.
    """
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"--pdfa needs {', '.join(missing)}", "pdfa")


def require_archivable(source: Source) -> list[str]:
    """See to it, before a page is read, that a PDF can become PDF/A.

    A file that cannot be opened is let pass: the job says what ails it. One that can be read, but
    not by pikepdf, is refused: after the reading it would be as damaged.

    Args:
        source: a PDF.

    Returns:
        What will be left out of it or added to it, in sentences.

    Raises:
        OutputError: it cannot; the message names the fault and its place in the file.
    """
    pikepdf, pdfa = _load()
    with contextlib.ExitStack() as stack:
        try:
            # Opened here: pikepdf takes no names that are not Unicode.
            stream = stack.enter_context(source.path.open("rb"))
            pdf = stack.enter_context(pikepdf.open(stream))
        except pikepdf.PasswordError as error:
            raise _encrypted(source.name) from error
        except OSError:
            return []
        except pikepdf.PdfError as error:
            if _has_pages(source):
                message = f"{source.name} cannot become PDF/A: {_fault(error)}"
                raise OutputError(message, remedy=_REMEDY) from error
            return []
        flavour, notes = _prepare(pdf, source.name)
        _require_pass(pdfa.check(pdf, flavour, **_settings(pdf)), source.name)
    return notes


def write_archival(path: Path, target: Path, name: str) -> None:
    """Write a searchable PDF as PDF/A. What is written is read back and checked.

    Args:
        path: the searchable PDF.
        target: the new file.
        name: of the document, for messages.

    Raises:
        OutputError: it cannot become PDF/A, or cannot be written.
    """
    pikepdf, pdfa = _load()
    try:
        with pikepdf.open(path) as pdf:
            flavour, _ = _prepare(pdf, name)
            pdfa.save(pdf, target, flavour, **_settings(pdf))
    except pdfa.PdfaError as error:
        _require_pass(error.report, name)
    except pikepdf.PasswordError as error:
        raise _encrypted(name) from error
    except (pikepdf.PdfError, OSError) as error:
        message = f"cannot write PDF/A of {name}: {_fault(error)}"
        raise OutputError(message, remedy=_REMEDY) from error


def _has_pages(source: Source) -> bool:
    """Whether MuPDF, which mends more than pikepdf does, would read pages of it."""
    try:
        open_pdf(source, password=None, strict=False).close()
    except InputError:
        return False
    return True


def _fault(error: Exception) -> str:
    """What is wrong, without the name of the file that pikepdf begins with: it may be a copy's."""
    return str(error).rpartition("): ")[2]


def _load() -> tuple[Any, Any]:
    """pikepdf and its validator, silent: fonts that are a little wrong are no news here."""
    logging.getLogger("fontTools").addHandler(logging.NullHandler())
    logging.getLogger("pikepdf").addHandler(logging.NullHandler())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pikepdf
        from pikepdf import pdfa
    return pikepdf, pdfa


def _prepare(pdf: Any, name: str) -> tuple[str, list[str]]:
    """Mend in memory what is no page's content; the level, and what was changed, in sentences."""
    from pikepdf import pdfa

    if pdf.is_encrypted:
        raise _encrypted(name)
    flavour = "3b" if _has_files(pdf) else "2b"
    _refer_to_files(pdf)
    dropped = _drop_private(pdf)
    notes = [f"left out for PDF/A: {', '.join(dropped)}"] if dropped else []
    changes = pdfa.prepare(pdf, flavour).messages()
    notes += [sentence for level, sentence in changes if level != "debug"]
    return flavour, notes


def _encrypted(name: str) -> OutputError:
    return OutputError(
        f"{name} is encrypted, which PDF/A forbids",
        remedy="take the encryption off first, as with qpdf --decrypt, or leave out --pdfa",
    )


def _has_files(pdf: Any) -> bool:
    """Whether files are attached, to the document or on a page."""
    return bool(pdf.attachments) or any(_has(entry, "/EF") for entry in pdf.objects)


def _refer_to_files(pdf: Any) -> None:
    """Make descriptions of attached files objects of their own, as PDF/A-3 wants them.

    Columns of a collection say nothing where there is no collection.
    """
    from pikepdf import NameTree

    files = pdf.Root.get("/Names", {}).get("/EmbeddedFiles")
    if files is None:
        return
    tree = NameTree(files)
    for name, description in list(tree.items()):
        if "/Collection" not in pdf.Root and "/CI" in description:
            del description["/CI"]
        if not description.is_indirect:
            tree[name] = pdf.make_indirect(description)


def _drop_private(pdf: Any) -> list[str]:
    """Leave out what is neither content nor known to the validator; the keys that were there."""
    found: dict[str, None] = {}

    def drop(holder: Any, keys: tuple[str, ...]) -> None:
        for key in keys:
            if key in holder:
                del holder[key]
                found[key[1:]] = None

    if "/Info" in pdf.Root:
        # Means nothing in the catalogue, and is nothing to tell of.
        del pdf.Root["/Info"]
    drop(pdf.Root, _HOW_IT_OPENS)
    if pdf.Root.get("/PageMode", "/UseNone") not in _PAGE_MODES:
        drop(pdf.Root, ("/PageMode",))
    if str(pdf.Root.get("/Version", "")) > f"/{_NEWEST}":
        del pdf.Root["/Version"]
    for entry in pdf.objects:
        if _has(entry, "/PieceInfo"):
            drop(entry, _PRIVATE)
    return list(found)


def _has(entry: Any, key: str) -> bool:
    from pikepdf import Dictionary, Stream

    return isinstance(entry, Dictionary | Stream) and key in entry


def _settings(pdf: Any) -> dict[str, str]:
    """How it is saved. Newer PDFs become 1.7: what 1.7 does not know is refused anyway."""
    return {"force_version": _NEWEST} if pdf.pdf_version > _NEWEST else {}


def _require_pass(report: Any, name: str) -> None:
    """Refuse what did not pass, by its first fault; violations before what is merely unknown."""
    faults = [*report.violations, *report.unsupported]
    if not faults:
        return
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    what = shorten(faults[0].message, _LONGEST, placeholder=" …")
    raise OutputError(
        f"{name} cannot become PDF/A-{report.flavour}: {what} ({faults[0].where}){more}",
        remedy=_REMEDY,
    )
