"""`run_ocr`: one job from its options to its summary.

Ties the parts together in the order that loses nothing: outputs are checked before anything is
read, the journal is open before the first page, results are published last. The loop is `job`.
"""

import contextlib
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
from vlmcli.documents.source import RenderSpec, iter_sources
from vlmcli.errors import ExitCode, InputError
from vlmcli.finished import FinishedJob
from vlmcli.fitness import check_reader, require_consistent, settled
from vlmcli.job import OcrJob
from vlmcli.journal import Journal, job_fingerprint
from vlmcli.listing import Listing
from vlmcli.memory.address_space import TO_READ, require
from vlmcli.memory.gate import MemoryGate, NeedsModel
from vlmcli.memory.request import PlanRequest, make_planner
from vlmcli.memory.settings import Budgets
from vlmcli.memory.spread import Spread
from vlmcli.meter import Meter
from vlmcli.options import OcrOptions, TextLayerMode, draft_reader, parse_quantisations
from vlmcli.output_checks import check_stats, require_outputs, write_stats
from vlmcli.outputs.sink import RecordSink
from vlmcli.outputs.targets import OutputPlan, is_stream, resolve_outputs
from vlmcli.reading import Reader
from vlmcli.recipe import job_recipe
from vlmcli.remote import load_remote, num_pages_at_once
from vlmcli.remote.server import Server, find_server
from vlmcli.report import JobSummary, Reporter, Tally, no_text_layer_note
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

        def run_into(outputs: Sink, journal: Journal | None) -> JobSummary:
            run = _run(options, listing, outputs, journal, model, make_reader, reporter)
            summary = _summary(*run, started)
            if summary.no_text_layer:
                reporter.warning(no_text_layer_note(summary.no_text_layer))
            return summary

        if sink is not None:
            check_stats(options, listing, None)
            summary = run_into(sink, None)
        else:
            assert stdout is not None, "results go to a sink, or to outputs of which one is stdout"
            summary = _run_into_files(options, listing, stdout, model, run_into, reporter)
    if options.stats is not None:
        write_stats(Path(options.stats), summary)
    return summary


def _run_into_files(
    options: OcrOptions,
    listing: Listing,
    stdout: BinaryIO,
    model: ReadingModel | None,
    run_into: Callable[[Sink, Journal | None], JobSummary],
    reporter: Reporter,
) -> JobSummary:
    """Do the job with the outputs that its options name, unless it is to go on and is over."""
    # Files are checked before any work, which takes the names of all documents.
    first = listing.peek(2 if is_stream(options) else None)
    named = [(source.name, source.path) for source in first]
    plan = resolve_outputs(options, named)
    if plan.kind == "stream":
        require_outputs(options, listing, first, plan, reporter)
        return run_into(RecordSink(plan, stdout), None)
    mark = job_fingerprint(options, named, model=model.identity if model else None)
    finished = FinishedJob(plan, mark)
    if options.resume and not options.overwrite and (summary := finished.find()) is not None:
        check_stats(options, listing, plan)
        return summary
    require_outputs(options, listing, first, plan, reporter)
    with _journal(plan, options, mark) as journal:
        summary = run_into(RecordSink(plan, stdout), journal)
        # While the journal is there: a job is never without both.
        finished.leave(summary)
    return summary


@contextlib.contextmanager
def _journal(
    plan: OutputPlan, options: OcrOptions, fingerprint: dict[str, str]
) -> Iterator[Journal]:
    """The job's journal, removed when the job is done and kept when it is not."""
    assert plan.journal_path is not None
    journal = Journal.open(
        plan.journal_path,
        fingerprint=fingerprint,
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
    require(TO_READ, "loading a model")
    from vlmcli.readers import load_reader

    return load_reader(checkpoint, options, budgets)


def _summary(tally: Tally, figures: dict[str, float], started: float) -> JobSummary:
    """What became of a job that began at `started`, on the monotonic clock."""
    errors, num_documents = tally.document_errors, tally.num_documents
    exit_code = ExitCode.PARTIAL if tally.num_failed else ExitCode.OK
    if errors and len(errors) == num_documents:
        exit_code = errors[0].exit_code
    return JobSummary(
        pages=tally.num_pages,
        failed=tally.num_failed,
        blank=tally.num_blank,
        no_text_layer=tally.num_no_text_layer,
        resumed=tally.num_resumed,
        documents=num_documents,
        seconds=time.monotonic() - started,
        exit_code=exit_code,
        statuses=dict(tally.statuses),
        sources=dict(tally.sources),
        figures=figures,
    )
