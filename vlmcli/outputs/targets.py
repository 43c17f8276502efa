"""Which file gets which page: resolves `-o` and `-f` for a list of documents, before any work.

Everything that can be known to go wrong with the outputs is found here: they exist, cannot be made,
would replace an input or one another. Opens and creates nothing. Gives up where only trying tells
(quota, space): that is reported when it happens.
"""

import functools
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from vlmcli.errors import OutputError, UsageError
from vlmcli.options import DEFAULT_MAX_PIXELS, Format, OcrOptions
from vlmcli.outputs import alto, dolma, hocr, jsonl, lock, markdown, text
from vlmcli.outputs.files import translated
from vlmcli.outputs.names import fitting, longest_name
from vlmcli.paths import is_folder

EXTENSIONS: Mapping[Format, str] = {
    "text": text.EXTENSION,
    "markdown": markdown.EXTENSION,
    "jsonl": jsonl.EXTENSION,
    "hocr": hocr.EXTENSION,
    "alto": alto.EXTENSION,
    "pdf": ".pdf",
    "dolma": dolma.EXTENSION,
}
_LONGEST_EXTENSION = max(map(len, EXTENSIONS.values()))
JOURNAL_SUFFIX = ".vlmcli-journal"

_LAST_LEVEL = 2
STDOUT_NAMES = (None, "-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_WHOLE = "it is not what a finished job of the same kind left; add --overwrite to read again"
_START_AGAIN = "add --overwrite to replace it, or choose another place with -o"

Kind = Literal["stream", "file", "directory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlan:
    """Where the records of a job go. Made by `plan_outputs`, which has checked that they can, or by
    `resolve_outputs`, which has not."""

    kind: Kind
    """A stream (stdout, pipe, device) cannot be resumed; a file takes all documents, a directory
    one file per document and format."""
    formats: tuple[Format, ...]
    path: Path | None
    """What `-o` named; None for stdout."""
    files: Mapping[Format, Path] = field(default_factory=dict)
    """The job's files: for the kinds `file` and (by format) a named stream."""
    stems: Mapping[str, Path] = field(default_factory=dict)
    """Directory outputs: from a document's name to its path without the format's extension."""
    num_documents: int = 1
    """At least two where there are more."""
    resume: bool = False
    overwrite: bool = False
    sources: Mapping[str, Path] = field(default_factory=dict)
    """Where the documents lie, by name, for formats that are made from them."""
    password: str | None = field(default=None, repr=False)
    pdfa: bool = False
    """Whether PDFs are to be PDF/A."""
    max_pixels: int = DEFAULT_MAX_PIXELS
    """As for reading: it says what pictures are decoded at all."""

    @property
    def journal_path(self) -> Path | None:
        """Where the journal lives: beside the file, inside the directory; None for streams."""
        return None if self.kind == "stream" else _journal_path(self.kind, self.path)

    def files_of(self, document: str) -> dict[Format, Path]:
        """The files that a document's records go to, by format. Empty for stdout."""
        if self.kind != "directory":
            return dict(self.files)
        stem = self.stems[document]
        return {format_: _extended(stem, format_) for format_ in self.formats}

    def all_files(self) -> Iterator[Path]:
        """Every file that the job writes, its journal too; stdout is none."""
        yield from self.files.values()
        for document in self.stems:
            yield from self.files_of(document).values()
        if self.journal_path is not None:
            yield self.journal_path


def is_stream(options: OcrOptions) -> bool:
    """Whether the results go to a stream, which needs no document's name before its turn.

    Raises:
        UsageError: the output's name is empty.
        OutputError: no file can have it, or the system does not let us look.
    """
    return _kind_of(options)[0] == "stream"


def named_file(options: OcrOptions) -> Path | None:
    """The file, pipe or device that `-o` names for all documents; None for stdout and directories.

    Raises:
        UsageError: the output's name is empty.
        OutputError: no file can have it, or the system does not let us look.
    """
    kind, path = _kind_of(options)
    return None if kind == "directory" else path


def plan_outputs(options: OcrOptions, sources: Sequence[tuple[str, Path]]) -> OutputPlan:
    """Resolve and check the outputs of a job: see `resolve_outputs` and `check_outputs`."""
    plan = resolve_outputs(options, sources)
    check_outputs(plan, sources)
    return plan


def resolve_outputs(options: OcrOptions, sources: Sequence[tuple[str, Path]]) -> OutputPlan:
    """The outputs of a job, whatever is there already.

    Args:
        options: `inputs`, `output`, `formats`, `resume` and `overwrite` are looked at.
        sources: name (as in records) and path of every document, in the job's order; for a stream
            the first two will do.

    Raises:
        UsageError: the options contradict each other.
        OutputError: no file can have the name, or the system does not let us look.
    """
    formats = tuple(dict.fromkeys(options.formats))
    kind, path = _kind_of(options)
    if "pdf" in formats and kind != "directory" and len(sources) > 1:
        raise UsageError(
            "a searchable PDF holds one document", remedy="name a directory with -o, as in -o out/"
        )
    if kind == "stream":
        return _stream_plan(options, formats, path, sources)
    assert path is not None
    return OutputPlan(
        kind=kind,
        formats=formats,
        path=path,
        files=_file_names(path, formats) if kind == "file" else {},
        stems=assign_stems(path, options.inputs, sources) if kind == "directory" else {},
        num_documents=len(sources),
        resume=options.resume,
        overwrite=options.overwrite,
        sources=dict(sources),
        password=options.password,
        pdfa=options.pdfa,
        max_pixels=options.max_pixels,
    )


def assign_stems(
    directory: Path, inputs: Sequence[str], sources: Sequence[tuple[str, Path]]
) -> dict[str, Path]:
    """An output path, without extension, of its own for every document.

    The plain stem where that is unique (`out/sub/x`), with the input's suffix where it is not
    (`out/sub/x.pdf`, `out/sub/x.png`), below the inputs' differing directories where even that is
    not. Case does not make a difference, since some file systems see none. Names that are too long
    for an output, whatever its format, are cut.

    Raises:
        UsageError: a document is given twice.
    """
    names = [name for name, _ in sources]
    roots = [Path(item).resolve() for item in inputs if is_folder(Path(item))]
    paths = [
        Path("stdin") if name == "-" else Path(os.path.normpath(path.absolute()))
        for name, path in sources
    ]
    below = functools.cache(lambda parent: _below_root(parent, roots))
    relative = [below(path.parent) / path.name for path in paths]
    parents = [str(path.parent) for path in paths if path.is_absolute()]
    common = Path(os.path.commonpath(parents)) if parents else Path("/")
    levels = [0] * len(paths)
    most = longest_name(directory)
    while True:
        chosen = [
            fitting(_candidate(level, rel, path, common), most, _LONGEST_EXTENSION)
            for level, rel, path in zip(levels, relative, paths, strict=True)
        ]
        groups: dict[str, list[int]] = {}
        for index, candidate in enumerate(chosen):
            groups.setdefault(str(candidate).casefold(), []).append(index)
        clashes = [group for group in groups.values() if len(group) > 1]
        if not clashes:
            return {name: directory / stem for name, stem in zip(names, chosen, strict=True)}
        for group in clashes:
            if all(levels[index] == _LAST_LEVEL for index in group):
                raise UsageError(
                    f"given twice: {names[group[0]]}",
                    remedy="name every document once, or write to a single file",
                )
            for index in group:
                levels[index] = min(levels[index] + 1, _LAST_LEVEL)


def _candidate(level: int, relative: Path, path: Path, common: Path) -> Path:
    if level == 0:
        return relative.with_suffix("") if relative.suffix else relative
    if level == 1 or not path.is_absolute():
        return relative
    return path.relative_to(common)


def _below_root(parent: Path, roots: Sequence[Path]) -> Path:
    """The path below the directory that was given as input; `.` for files given by name."""
    resolved = parent.resolve()
    for root in roots:
        if resolved.is_relative_to(root):
            return resolved.relative_to(root)
    return Path()


def _kind_of(options: OcrOptions) -> tuple[Kind, Path | None]:
    output = options.output
    if output in STDOUT_NAMES:
        return "stream", None
    if not output:
        raise UsageError("the name after -o is empty", remedy="name a file or a directory")
    path = Path(output)
    with translated(path):
        if path.is_dir() or output.endswith("/"):
            return "directory", path
        if path.exists():
            return ("file" if path.is_file() else "stream"), path
    many = len(options.inputs) > 1 or any(is_folder(Path(item)) for item in options.inputs)
    return ("directory" if many and not path.suffix else "file"), path


def _stream_plan(
    options: OcrOptions,
    formats: tuple[Format, ...],
    path: Path | None,
    sources: Sequence[tuple[str, Path]],
) -> OutputPlan:
    name = "stdout" if path is None else str(path)
    if len(formats) > 1:
        raise UsageError(
            f"{name} takes one format, not {len(formats)}",
            remedy="choose one -f, or a file or directory with -o",
        )
    if options.resume:
        raise UsageError(
            f"--resume cannot go on with {name}", remedy="choose a file or directory with -o"
        )
    return OutputPlan(
        kind="stream",
        formats=formats,
        path=path,
        files={} if path is None else {formats[0]: path},
        num_documents=len(sources),
        sources=dict(sources),
        password=options.password,
        pdfa=options.pdfa,
        max_pixels=options.max_pixels,
    )


def _file_names(path: Path, formats: tuple[Format, ...]) -> dict[Format, Path]:
    """One format: the path as it is. Several: its known extension replaced, else one appended."""
    if len(formats) == 1:
        return {formats[0]: path}
    known = path.suffix in EXTENSIONS.values()
    stem = path.with_suffix("") if known else path
    return {format_: _extended(stem, format_) for format_ in formats}


def _extended(stem: Path, format_: Format) -> Path:
    return stem.with_name(stem.name + EXTENSIONS[format_])


def _journal_path(kind: Kind, path: Path | None) -> Path:
    assert path is not None
    return (
        path / JOURNAL_SUFFIX if kind == "directory" else path.with_name(path.name + JOURNAL_SUFFIX)
    )


def check_outputs(plan: OutputPlan, sources: Sequence[tuple[str, Path]]) -> None:
    """Refuse outputs that would lose something, or cannot be; those of a stream are never refused.

    Raises:
        OutputError: an output exists, cannot be written, or is also an input.
    """
    if plan.kind == "stream":
        return
    outputs = list(plan.files.values())
    for name in plan.stems:
        outputs += plan.files_of(name).values()
    _check_places(plan, outputs)
    _check_inputs(outputs, sources)
    journal = plan.journal_path
    assert journal is not None
    with translated(journal):
        has_journal = journal.exists()
    if has_journal and lock.is_taken(journal):
        raise lock.busy(journal)
    if plan.overwrite or (plan.resume and has_journal):
        return
    existing = [file for file in outputs if os.path.lexists(file)]
    if has_journal:
        raise OutputError(
            f"the journal of an unfinished job is there: {journal}",
            remedy="add --resume to go on with that job, or --overwrite to start over",
        )
    if existing:
        more = f" (and {len(existing) - 1} more)" if len(existing) > 1 else ""
        why = ", and no journal of an unfinished job" if plan.resume else ""
        remedy = _WHOLE if plan.resume else _START_AGAIN
        raise OutputError(f"output exists: {existing[0]}{more}{why}", remedy=remedy)


def _check_places(plan: OutputPlan, outputs: Sequence[Path]) -> None:
    """Every file can be created where it is wanted, as far as permissions tell."""
    assert plan.path is not None
    if plan.kind == "file" and not is_folder(plan.path.parent):
        raise OutputError(
            f"no such directory: {plan.path.parent}", remedy="create it, or choose another with -o"
        )
    for parent in dict.fromkeys(file.parent for file in outputs):
        place = parent
        while not os.path.lexists(place):
            place = place.parent
        if not is_folder(place):
            raise OutputError(f"not a directory: {place}", remedy="choose another place with -o")
        if not os.access(place, os.W_OK | os.X_OK):
            raise OutputError(
                f"no permission to write into {place}",
                remedy="choose another place with -o, or change the permissions",
            )
    for file in outputs:
        with translated(file):
            is_other = file.exists() and not file.is_file()
        if is_other:
            raise OutputError(f"not a regular file: {file}", remedy="choose another place with -o")


def _check_inputs(outputs: Sequence[Path], sources: Sequence[tuple[str, Path]]) -> None:
    """No output is an input, under whatever name."""
    identities: dict[tuple[int, int], str] = {}
    for name, path in sources:
        info = _stat(path)
        if info is not None:
            identities[info.st_dev, info.st_ino] = name
    for file in outputs:
        info = _stat(file)
        if info is not None and stat.S_ISREG(info.st_mode):
            name = identities.get((info.st_dev, info.st_ino), "")
            if name:
                raise OutputError(
                    f"the output {file} is also an input", remedy="choose another place with -o"
                )


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
