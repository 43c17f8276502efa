"""What must hold of a job's outputs before any work, and the file with its figures (`--stats`).

Refuses what would lose something, what cannot be, and what no document can become. Opens documents
only where PDF/A is asked for; writes nothing but the figures.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from vlmcli.documents.source import Source, kind_of
from vlmcli.errors import OutputError, ReaderGoneError, UsageError
from vlmcli.listing import Listing
from vlmcli.options import OcrOptions
from vlmcli.outputs.single import check_single, may_lose, refuse_stdout, write_single
from vlmcli.outputs.targets import OutputPlan, check_outputs
from vlmcli.report import JobSummary, Reporter


def require_outputs(
    options: OcrOptions,
    listing: Listing,
    sources: list[Source],
    plan: OutputPlan,
    reporter: Reporter,
) -> None:
    """Refuse outputs that cannot be, before any work.

    Raises:
        UsageError: a document has no such form.
        OutputError: see `check_outputs`, `check_single` and `_require_archivable`.
        MissingExtraError: what checks PDF/A is not installed.
    """
    if "pdf" in options.formats:
        _refuse_videos(sources)
    if options.pdfa:
        _require_archivable(sources, reporter)
    check_outputs(plan, [(source.name, source.path) for source in sources])
    check_stats(options, listing, plan)


def check_stats(options: OcrOptions, listing: Listing, plan: OutputPlan | None) -> None:
    """Refuse a file for the figures that cannot be written, or that would replace what is needed.

    Raises:
        UsageError: it is stdout.
        OutputError: see `check_single`.
    """
    if options.stats is None:
        return
    path = Path(options.stats)
    refuse_stdout(options.stats, "--stats")

    def inputs() -> Iterator[Path]:
        # Takes the names of all documents, which a job that writes to a stream has not asked for.
        yield from (source.path for source in listing.peek(None))

    check_single(
        path,
        "--stats",
        inputs=inputs() if may_lose(path) else (),
        outputs=plan.all_files() if plan else (),
        new_folders=[plan.path] if plan and plan.path and plan.kind == "directory" else (),
        overwrite=options.overwrite or options.resume,
    )


def _refuse_videos(sources: list[Source]) -> None:
    """Refuse to make a PDF of a video: it would hold every frame, and grow in memory.

    Raises:
        UsageError: one of the documents is a video.
    """
    for source in sources:
        with contextlib.suppress(OSError, ValueError):
            if kind_of(source.path) == "video":
                raise UsageError(
                    f"{source.name} is a video, which has no PDF form",
                    remedy="choose another format with -f",
                )


def _require_archivable(sources: list[Source], reporter: Reporter) -> None:
    """Refuse to make PDF/A of a PDF that cannot become that, before pages are read in vain.

    Raises:
        OutputError: one of the documents cannot; notes name the others.
        MissingExtraError: what checks that is not installed.
    """
    from vlmcli.outputs.archival import require_archivable, require_extra

    require_extra()
    refused: list[OutputError] = []
    for source in sources:
        with contextlib.suppress(OSError, ValueError):
            if kind_of(source.path) != "pdf":
                continue
        try:
            for sentence in require_archivable(source):
                reporter.warning(f"{source.name}: {sentence}")
        except OutputError as error:
            refused.append(error)
    if refused:
        first, *others = refused
        for other in others:
            first.add_note(f"vlmcli: {other.message}")
        raise first


def write_stats(path: Path, summary: JobSummary) -> None:
    """Write the figures of a job.

    Raises:
        OutputError: the file cannot be written.
    """
    data = {
        "pages": summary.pages,
        "failed": summary.failed,
        "blank": summary.blank,
        "no_text_layer": summary.no_text_layer,
        "resumed": summary.resumed,
        "documents": summary.documents,
        "status": summary.statuses,
        "source": summary.sources,
        "seconds": round(summary.seconds, 3),
        "pages_per_minute": round(summary.pages_per_minute, 2),
        "bottleneck": summary.bottleneck,
        **summary.figures,
    }
    # Who reads the figures from a pipe may stop; the job's own exit code counts.
    with contextlib.suppress(ReaderGoneError):
        write_single(path, "--stats", (json.dumps(data, indent=1) + "\n").encode())
