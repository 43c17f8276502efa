"""`vlmcli eval`: a run's texts against the truth, or two runs against each other.

The table goes to stdout, for people or as one JSON object. Loads no model.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlmcli.cli import arguments as a
from vlmcli.cli.console import printable, say, take_stdout
from vlmcli.errors import ExitCode, UsageError
from vlmcli.outputs.single import check_single, refuse_stdout, write_single

if TYPE_CHECKING:
    from vlmcli.evaluation.measures import Normalisation, PageErrors
    from vlmcli.evaluation.pages import PagePair
    from vlmcli.evaluation.statistics import Measure, Summary

_TEXT_LAYER = "text-layer"
_NOTHING_MEASURED = (
    "every page was answered from the text layer that it is compared with; "
    "read with --text-layer ignore to measure"
)


def evaluate(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PREDICTION [OTHER] TRUTH",
            help="JSON Lines of records, text files with form feeds between pages, or folders of "
            "them.",
            show_default=False,
        ),
    ],
    truth: Annotated[
        str | None,
        typer.Option(
            metavar=_TEXT_LAYER,
            help="Compare with the documents' own text layers; TRUTH is left out then. Pages that "
            "were answered from these are not counted, unless there are no others.",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Two predictions: is OTHER better than PREDICTION?")
    ] = False,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", help="Case does not count.")
    ] = False,
    ignore_punctuation: Annotated[
        bool, typer.Option("--ignore-punctuation", help="Punctuation does not count.")
    ] = False,
    worst: Annotated[int, typer.Option(min=0, help="Pages to list, worst first.")] = 10,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the worst pages beside their truth."),
    ] = None,
    overwrite: a.Overwrite = False,
    max_cer: Annotated[
        float | None,
        typer.Option(
            metavar="RATE", help="End with exit code 5 if the character error rate is above it."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of text.")
    ] = False,
) -> None:
    """Character and word error rates against a truth, page by page and together."""
    from vlmcli.evaluation.measures import Normalisation
    from vlmcli.evaluation.statistics import summarise

    if max_cer is not None and not (max_cer >= 0 and math.isfinite(max_cer)):
        raise UsageError(f"not a rate: {max_cer}", remedy="write --max-cer 0.05 for 5 %")
    if html is not None:
        refuse_stdout(str(html), "--html")
        check_single(html, "--html", inputs=_files_read(paths, truth), overwrite=overwrite)
    predictions, true_pages = _read(paths, truth, compare=compare)
    own = _own_pages(paths, truth) & true_pages.keys()
    # Where there are no others the figures are of these, and say that they say nothing.
    true_pages = {key: text for key, text in true_pages.items() if key not in own} or true_pages
    normalisation = Normalisation(ignore_case=ignore_case, ignore_punctuation=ignore_punctuation)
    runs = [_measured(prediction, true_pages, normalisation) for prediction in predictions]
    errors, pairs = runs[-1]
    order = sorted(range(len(errors)), key=lambda i: (-errors[i].cer, i))[:worst]
    summary = summarise(errors)
    data: dict[str, Any] = {"normalisation": str(normalisation)} | _summary_data(summary)
    data["worst"] = [_page_data(errors[i]) for i in order]
    lines = [f"{summary.num_pages} pages, {summary.num_missing} missing; {normalisation}"]
    if truth is not None:
        data["from_text_layer"] = len(own)
        lines += _own_lines(len(own), is_all=own == true_pages.keys())
        if own == true_pages.keys():
            say(f"vlmcli: warning: {_NOTHING_MEASURED}")
    lines += [_measure_line(name, getattr(summary, key)) for key, name in _NAMES.items()]
    if compare:
        comparison, more = _compare(runs[0][0], errors)
        data["comparison"] = comparison
        lines += more
    lines += ["worst pages:"] if order else []
    lines += [f"  CER {errors[i].cer:7.2%}  {_page_name(errors[i])}" for i in order]
    if html is not None:
        _write_html(html, [(errors[i], pairs[i]) for i in order])
    stdout = take_stdout(is_needed=True)
    stdout.write(((json.dumps(data) if as_json else "\n".join(lines)) + "\n").encode())
    if max_cer is not None and summary.cer.value > max_cer:
        say(f"vlmcli: character error rate {summary.cer.value:.4f} is above {max_cer:g}")
        raise typer.Exit(ExitCode.PARTIAL)


_NAMES = {"cer": "character error rate", "wer": "word error rate", "word_f1": "word F1, any order"}


def _read(
    paths: list[str], truth: str | None, *, compare: bool
) -> tuple[list[dict[tuple[str, int], str]], dict[tuple[str, int], str]]:
    """The predictions, and the truth."""
    from vlmcli.evaluation.pages import read_pages, read_text_layers

    if truth not in (None, _TEXT_LAYER):
        raise UsageError(f"not a truth: {truth!r}", remedy=f"give {_TEXT_LAYER}, or a third path")
    num_predictions = 2 if compare else 1
    wanted = num_predictions + (truth is None)
    if len(paths) != wanted:
        raise UsageError(
            f"{len(paths)} paths given, {wanted} needed",
            remedy="vlmcli eval PREDICTION TRUTH, or --compare PREDICTION OTHER TRUTH",
        )
    predictions = [read_pages(Path(path)) for path in paths[:num_predictions]]
    if truth is None:
        return predictions, read_pages(Path(paths[-1]))
    return predictions, read_text_layers(Path(paths[0]))


def _own_pages(paths: list[str], truth: str | None) -> set[tuple[str, int]]:
    """Pages of a prediction that were answered from the text layers that are now the truth."""
    from vlmcli.evaluation.pages import answered_by_text_layer

    if truth is None:
        return set()
    return set().union(*(answered_by_text_layer(Path(path)) for path in paths))


def _own_lines(count: int, *, is_all: bool) -> list[str]:
    """What is said of pages that were answered from the truth itself."""
    if not count:
        return []
    if is_all:
        return [f"answered from the text layer itself: all {count}, so that nothing was measured"]
    return [f"answered from the text layer itself and left out: {count} more"]


def _measured(
    prediction: dict[tuple[str, int], str],
    truth: dict[tuple[str, int], str],
    normalisation: "Normalisation",
) -> "tuple[list[PageErrors], list[PagePair]]":
    from vlmcli.evaluation.measures import page_errors
    from vlmcli.evaluation.pages import pair_up

    pairs = pair_up(prediction, truth)
    return [page_errors(pair, normalisation) for pair in pairs], pairs


def _compare(
    first: "list[PageErrors]", second: "list[PageErrors]"
) -> tuple[dict[str, Any], list[str]]:
    from vlmcli.evaluation.statistics import compare, summarise

    found = compare(first, second)
    change = found.difference
    data = {
        "first": _summary_data(summarise(first)),
        "cer_difference": change.to_dict(),
        "p_value": round(found.p_value, 5),
        "better_pages": found.better_pages,
        "worse_pages": found.worse_pages,
    }
    interval = f"{change.low:+.2%} to {change.high:+.2%}"
    text = (
        f"against the first run: CER {change.value:+.2%} ({interval}), p = {found.p_value:.3g}; "
        f"{found.better_pages} pages better, {found.worse_pages} worse"
    )
    return data, [text]


def _summary_data(summary: "Summary") -> dict[str, Any]:
    measures = {name: getattr(summary, name).to_dict() for name in _NAMES}
    return {"pages": summary.num_pages, "missing": summary.num_missing, **measures}


def _measure_line(name: str, measure: "Measure") -> str:
    return f"{name:<21} {measure.value:8.2%}  (95 % of it {measure.low:.2%} to {measure.high:.2%})"


def _page_data(page: "PageErrors") -> dict[str, Any]:
    return {
        "document": page.document,
        "page": page.page,
        "cer": round(page.cer, 5),
        "missing": page.is_missing,
    }


def _page_name(page: "PageErrors") -> str:
    return f"{printable(page.document)}, page {page.page}{' (missing)' if page.is_missing else ''}"


def _write_html(path: Path, worst: "list[tuple[PageErrors, PagePair]]") -> None:
    from vlmcli.evaluation.page import comparison_page

    text = comparison_page(worst, "Worst pages: truth on the left")
    write_single(path, "--html", text.encode(errors="replace"))


def _files_read(paths: list[str], truth: str | None) -> Iterator[Path]:
    """Every file that is read to compare, found as it is asked for."""
    from vlmcli.evaluation.pages import named_documents, text_files

    for path in paths:
        yield from text_files(Path(path))
    if truth is not None and paths:
        yield from named_documents(Path(paths[0]))
