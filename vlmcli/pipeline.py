"""`run_ocr`: one job from its options to its summary.

Ties the parts together in the order that loses nothing: outputs are checked before anything is
read, the journal is open before the first page, results are published last. The loop is `job`.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from vlmcli.assemble import with_answers
from vlmcli.checkpoint import BUILT_IN, Checkpoint, LineSpec, ReadingModel, find_checkpoint
from vlmcli.cluster import open_cluster
from vlmcli.documents.prepared import PrepareSpec
from vlmcli.documents.selection import parse_ranges
from vlmcli.documents.source import RenderSpec, Source, iter_sources, kind_of
from vlmcli.errors import ExitCode, InputError, OutputError, ReaderGoneError, UsageError
from vlmcli.fitness import check_reader, require_consistent, settled
from vlmcli.job import OcrJob
from vlmcli.journal import Journal, job_fingerprint
from vlmcli.listing import Listing
from vlmcli.memory.gate import MemoryGate, NeedsModel
from vlmcli.memory.request import PlanRequest, make_planner
from vlmcli.memory.settings import Budgets
from vlmcli.memory.spread import Spread
from vlmcli.meter import Meter
from vlmcli.options import OcrOptions, TextLayerMode, draft_reader, parse_quantisations
from vlmcli.outputs.single import check_single, may_lose, refuse_stdout, write_single
from vlmcli.outputs.sink import RecordSink
from vlmcli.outputs.targets import OutputPlan, is_stream, plan_outputs
from vlmcli.reading import Reader
from vlmcli.recipe import job_recipe
from vlmcli.remote import load_remote, num_pages_at_once
from vlmcli.remote.server import Server, find_server
from vlmcli.report import JobSummary, Reporter, Tally
from vlmcli.results import PageRecord

if TYPE_CHECKING:
    from vlmcli.cluster.session import Cluster

MakeReader = Callable[[Checkpoint, OcrOptions, Budgets], Reader]
_NEEDS_MODEL: dict[TextLayerMode, NeedsModel] = {
    "auto": "perhaps",
    "ignore": "always",
    "only": "never",
    "draft": "always",
}


class Sink(Protocol):
    """Takes a job's records in order. Calls come as `begin`, `write`*, then `finish` or `abort`."""

    def begin(self) -> None:
        """The job is about to start."""

    def write(self, record: PageRecord) -> None:
        """The next record. What this raises ends the job."""

    def finish(self) -> None:
        """That was the last one."""

    def abort(self) -> None:
        """The job was broken off. Never raises."""


def run_ocr(
    options: OcrOptions,
    *,
    stdout: BinaryIO | None = None,
    sink: Sink | None = None,
    reporter: Reporter,
    make_reader: MakeReader | None = None,
) -> JobSummary:
    """Read documents as `options` say, or put questions to their pages.

    Args:
        options: the job.
        stdout: takes the results where no output file is named.
        sink: takes the records, instead of the outputs that the options name.
        reporter: is told what happens.
        make_reader: turns a checkpoint into a reader that keeps to the plan's bounds; our own
            engine if None.

    Returns:
        Counts, and the exit code: OK, or PARTIAL if pages failed; where no document could be read
        at all, the code of the first one's fault.

    Raises:
        VlmcliError: nothing could be done: see the subclasses in `errors`.
    """
    started = time.monotonic()
    options = settled(options)
    if options.pages is not None:
        parse_ranges(options.pages)
    model = find_model(options)
    sources = iter_sources(options.inputs, on_left_out=reporter.warning)
    with contextlib.closing(sources) as found:
        listing = Listing(found)
        if listing.is_exhausted:
            raise InputError("no documents there", remedy="name PDFs, images or folders with some")
        if sink is not None:
            _check_stats(options, listing, None)
            run = _run(options, listing, sink, None, model, make_reader, reporter)
        else:
            assert stdout is not None, "results go to a sink, or to outputs of which one is stdout"
            # Files are checked before any work, which takes the names of all documents.
            first = listing.peek(2 if is_stream(options) else None)
            if "pdf" in options.formats:
                _refuse_videos(first)
            if options.pdfa:
                _require_archivable(first, reporter)
            named = [(source.name, source.path) for source in first]
            plan = plan_outputs(options, named)
            _check_stats(options, listing, plan)
            with _journal(plan, options, named, model) as journal:
                outputs = RecordSink(plan, stdout)
                run = _run(options, listing, outputs, journal, model, make_reader, reporter)
        tally, stats = run
    summary = _summary(tally, time.monotonic() - started, stats)
    if options.stats is not None:
        _write_stats(Path(options.stats), summary)
    return summary


def _check_stats(options: OcrOptions, listing: Listing, plan: OutputPlan | None) -> None:
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


@contextlib.contextmanager
def _journal(
    plan: OutputPlan,
    options: OcrOptions,
    named: list[tuple[str, Path]],
    model: ReadingModel | None,
) -> Iterator[Journal | None]:
    """The job's journal, removed when the job is done and kept when it is not."""
    if plan.journal_path is None:
        yield None
        return
    identity = model.identity if model else None
    journal = Journal.open(
        plan.journal_path,
        fingerprint=job_fingerprint(options, named, model=identity),
        resume=options.resume,
        overwrite=options.overwrite,
    )
    with contextlib.closing(journal):
        yield journal
        journal.remove()


def _run(
    options: OcrOptions,
    listing: Listing,
    sink: Sink,
    journal: Journal | None,
    model: Checkpoint | Server | None,
    make_reader: MakeReader | None,
    reporter: Reporter,
) -> tuple[Tally, dict[str, float]]:
    meter = Meter()

    def record_done(record: PageRecord) -> None:
        meter.add(record)
        if journal is not None:
            with meter.writing():
                journal.append(with_answers(record, options.question))

    def record_next(record: PageRecord) -> None:
        with meter.writing():
            sink.write(with_answers(record, options.question))

    with _cluster(options, model, reporter) as cluster:
        load = make_reader or (_own_reader if cluster is None else cluster.load_reader)

        def load_reader(budgets: Budgets) -> Reader:
            assert model is not None, "a page asked for a model in a job without one"
            if isinstance(model, Server):
                return load_remote(model, options)
            return load(model, options, budgets)

        job = OcrJob(
            options,
            listing,
            spec=prepare_spec(options, model),
            gate=_memory_gate(options, model, cluster.spread if cluster else None),
            make_reader=load_reader,
            model=model.label if model else "",
            recipe=partial(job_recipe, options, model) if model else None,
            done=journal.done if journal is not None else {},
            on_record=record_done,
            on_next=record_next,
            reporter=reporter,
        )
        try:
            sink.begin()
            job.run()
            sink.finish()
        except BaseException:
            sink.abort()
            raise
        finally:
            engine = job.close()
    return job.tally, meter.stats | engine


def find_model(options: OcrOptions) -> Checkpoint | Server | None:
    """What reads the job's pages; None where no page can need it.

    Raises:
        UsageError: the options contradict each other, or the model's reader has no use for one.
        ModelError: there is no such model, here or on the server; or its library is missing.
        UnreachableError: there is no such server.
    """
    require_consistent(options)
    quantize = parse_quantisations(options.quantize)
    if options.text_layer == "only":
        return None
    if options.server is not None:
        return find_server(options)
    checkpoint = find_checkpoint(options.model, quantize)
    check_reader(options, checkpoint)
    return checkpoint


@contextlib.contextmanager
def _cluster(
    options: OcrOptions, model: Checkpoint | Server | None, reporter: Reporter
) -> Iterator["Cluster | None"]:
    """The cluster that reads, where one was asked for and pages may be for a model."""
    if options.ray is None or not isinstance(model, Checkpoint):
        yield None
        return
    with contextlib.closing(open_cluster(options, model, reporter.warning)) as cluster:
        yield cluster


def prepare_spec(options: OcrOptions, model: ReadingModel | None) -> PrepareSpec:
    """What the page workers are to do for this job."""
    drafts_lines = model is not None and draft_reader(options.drafts) == BUILT_IN
    reader = find_checkpoint(BUILT_IN) if drafts_lines else model
    line = reader.line if reader else LineSpec()
    return PrepareSpec(
        render=RenderSpec(dpi=options.dpi, max_pixels=options.max_pixels),
        text_layer=options.text_layer,
        reads=model.reads if model else "lines",
        line_height=line.height,
        max_line_width=line.max_width,
        drafts_lines=drafts_lines,
    )


def _memory_gate(
    options: OcrOptions, model: Checkpoint | Server | None, spread: Spread | None
) -> MemoryGate:
    planner = make_planner(
        PlanRequest.of(options),
        needs_model=isinstance(model, Checkpoint),
        spread=spread,
        remote_pages=num_pages_at_once(options),
    )
    return MemoryGate(planner, _NEEDS_MODEL[options.text_layer], spread)


def _own_reader(checkpoint: Checkpoint, options: OcrOptions, budgets: Budgets) -> Reader:
    # Imports torch: only a job with a page for the model pays for that.
    from vlmcli.readers import load_reader

    return load_reader(checkpoint, options, budgets)


def _summary(tally: Tally, seconds: float, figures: dict[str, float]) -> JobSummary:
    errors, num_documents = tally.document_errors, tally.num_documents
    exit_code = ExitCode.PARTIAL if tally.num_failed else ExitCode.OK
    if errors and len(errors) == num_documents:
        exit_code = errors[0].exit_code
    return JobSummary(
        pages=tally.num_pages,
        failed=tally.num_failed,
        blank=tally.num_blank,
        resumed=tally.num_resumed,
        documents=num_documents,
        seconds=seconds,
        exit_code=exit_code,
        statuses=dict(tally.statuses),
        sources=dict(tally.sources),
        figures=figures,
    )


def _write_stats(path: Path, summary: JobSummary) -> None:
    data = {
        "pages": summary.pages,
        "failed": summary.failed,
        "blank": summary.blank,
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
