"""`vlmcli view`: a run's records as one HTML file, each page's picture beside its text.

Reads records, finds and draws their documents one page at a time, and writes as it goes: memory
does not grow with pages. Loads no model. A document that is missing or broken costs its pictures.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from vlmcli.cli import arguments as a
from vlmcli.cli.console import printable, say, take_stdout
from vlmcli.cli.ocr import read_password
from vlmcli.errors import InputError, OutputError, PageError, UsageError
from vlmcli.outputs.files import OutputFile, StreamFile
from vlmcli.outputs.single import check_single, is_same, open_single
from vlmcli.outputs.targets import STDOUT_NAMES
from vlmcli.paths import is_folder

if TYPE_CHECKING:
    from vlmcli.documents.base import Source
    from vlmcli.documents.gallery import Gallery
    from vlmcli.documents.thumbnails import Thumbnail
    from vlmcli.outputs.html import PagePicture
    from vlmcli.results import PageRecord

_STDIN = "-"
_OTHER_SHAPE = 0.03
"""Of a page's width over its height: a larger change is another page, not rounding."""


def view(
    results: Annotated[
        str,
        typer.Argument(
            metavar="RESULTS.jsonl",
            help="Records, as `vlmcli ocr -f jsonl` writes them, or - for stdin.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The HTML file, or - for stdout.",
            show_default=False,
        ),
    ],
    root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the documents. Default: where the records say, or beside them.",
            show_default=False,
        ),
    ] = None,
    pictures: Annotated[
        bool, typer.Option("--pictures/--no-pictures", help="Draw the pages, or show texts alone.")
    ] = True,
    width: Annotated[
        int, typer.Option(min=100, max=4000, metavar="PIXELS", help="Width of the pictures.")
    ] = 900,
    password: a.Password = None,
    password_file: a.PasswordFile = None,
    overwrite: a.Overwrite = False,
    quiet: a.Quiet = False,
) -> None:
    """Write one HTML file with every page's picture beside its text; any browser opens it."""
    path = None if output in STDOUT_NAMES else Path(output)
    if path is not None:
        inputs = [] if results == _STDIN else [Path(results)]
        check_single(path, "-o", inputs=inputs, overwrite=overwrite)
    _check_root(root)
    secret = read_password(password, password_file)
    with contextlib.ExitStack() as stack:
        lines = stack.enter_context(_open_results(results))
        file = _open_output(path)
        stack.callback(file.discard)
        draw = None
        if pictures:
            beside = Path() if results == _STDIN else Path(results).parent
            gallery = _gallery(beside, root, secret, width, path)
            stack.callback(gallery.close)
            draw = _Drawing(gallery, warn=_silent if quiet else _warn)
        _write(file, lines, printable(results), draw)


def _write(
    file: OutputFile,
    lines: BinaryIO,
    name: str,
    draw: "Callable[[PageRecord], PagePicture] | None",
) -> None:
    """The report of the records that `lines` hold, page by page.

    Raises:
        InputError: a line is no record, or there is none.
    """
    from vlmcli.outputs.html import HtmlReport
    from vlmcli.outputs.jsonl import read_records

    title = "vlmcli" if name == _STDIN else Path(name).name
    report = HtmlReport(title, has_pictures=draw is not None)
    num_pages = 0
    for record in read_records(lines, name):
        if num_pages == 0:
            file.write(report.head())
        num_pages += 1
        file.write(report.page(record, draw(record) if draw and record.page else None))
    if num_pages == 0:
        raise InputError(f"no records in {name}", code="empty")
    file.write(report.tail())
    file.publish()


class _Drawing:
    """Pictures of records; what is wrong with a document is said once, what with a page on it."""

    def __init__(self, gallery: "Gallery", warn: Callable[[str], None]) -> None:
        self._gallery, self._warn = gallery, warn
        self._warned = ""

    def __call__(self, record: "PageRecord") -> "PagePicture":
        from vlmcli.outputs.html import PagePicture

        try:
            found = self._gallery.draw(record.document, record.page, record.time)
        except InputError as error:
            if record.document != self._warned:
                self._warned = record.document
                self._warn(f"no pictures of {record.document}: {error}")
            return PagePicture(note=error.message)
        except PageError as error:
            return PagePicture(note=error.message)
        note = ""
        if found.faults:
            note = f"Parts of the page could not be drawn: {found.faults[0]}"
        if _has_other_shape(record, found):
            note = "The page has another shape than when it was read: boxes are off."
        return PagePicture(data=found.data, note=note)


def _has_other_shape(record: "PageRecord", found: "Thumbnail") -> bool:
    if not record.width or not record.height:
        return False
    change = found.width / found.height * record.height / record.width
    rounding = 1 / min(found.width, found.height)
    return abs(change - 1) > _OTHER_SHAPE + rounding


def _gallery(
    beside: Path, root: Path | None, password: str | None, width: int, output: Path | None
) -> "Gallery":
    from vlmcli.documents.gallery import Gallery
    from vlmcli.documents.lookup import find_document

    def find(name: str) -> "Source":
        source = find_document(name, beside=beside, root=root)
        if output is not None and is_same(output, source.path):
            raise OutputError(
                f"the output {output} is also a document", remedy="choose another with -o"
            )
        return source

    return Gallery(find, password=password, width=width)


@contextlib.contextmanager
def _open_results(results: str) -> Iterator[BinaryIO]:
    """The lines of the records.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    if results == _STDIN:
        if sys.stdin is None:
            raise InputError("stdin (-) is closed", code="missing")
        yield sys.stdin.buffer
        return
    name = printable(results)
    try:
        stream = Path(results).open("rb")  # noqa: SIM115
    except FileNotFoundError as error:
        raise InputError(f"no such file: {name}", code="missing") from error
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {name}: {error}", code="unreadable") from error
    with stream:
        yield stream


def _check_root(root: Path | None) -> None:
    if root is not None and not is_folder(root):
        raise UsageError(
            f"not a directory: {root}", remedy="give the documents' folder with --root"
        )


def _open_output(path: Path | None) -> OutputFile:
    if path is None:
        return StreamFile(take_stdout(is_needed=True), "stdout")
    return open_single(path, "-o")


def _warn(text: str) -> None:
    say(f"vlmcli: warning: {text}")


def _silent(text: str) -> None:
    """Nothing is said."""
