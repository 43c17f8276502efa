"""Compares vlmcli, tesseract and RapidOCR on the same page pictures: errors and CPU seconds.

    python compare.py PAGES_DIR [--model FOLDER] [--limit N] [--tools ours tesseract rapidocr]

PAGES_DIR holds manifest.jsonl, one object a line: `file`, `kind`, `language` and either `gt` (a
transcription) or `gt_kind` "pdf_text_layer" with `gt_layer_full_pages` (pages whose own text layer
is the truth once they are rasterised, here at 150 dpi). Beside these come the synthetic sets of
pages.py. Text layers are ignored by all three. Every tool runs in child processes with one thread;
CPU seconds are theirs, start-up included. The last line is JSON. Tools that are not installed are
left out of the table, not guessed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from measures import (
    as_typed,
    auroc,
    calibration_error,
    edit_distance,
    holds_line,
    normalise,
    word_counts,
)
from pages import SETS, Page, make_set
from PIL import Image

RASTER_DPI = 150
PAGES_A_DOCUMENT = 3
LEAST_TEXT = 200  # characters; a page number alone says nothing about reading
TOOLS = ("ours", "tesseract", "rapidocr")
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OMP_THREAD_LIMIT": "1",
    "OMP_WAIT_POLICY": "passive",
    "MKL_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a tool read on a page; `lines` with their confidences where the tool gives them."""

    text: str
    lines: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Micro-averaged character error, word F1 and lines read exactly in percent, CPU s a page.

    `exact` counts the truth's lines whose words occur in the text read, whatever line they are on.
    """

    cer: float
    word_f1: float
    exact: float
    cpu_s: float


def judge(pages: Sequence[Page], readings: Sequence[Reading], cpu_seconds: float) -> Result:
    """Score one tool's readings."""
    errors = length = common = wanted = given = exact = lines = 0
    for page, reading in zip(pages, readings, strict=True):
        truth = normalise(page.truth)
        read = normalise(as_typed(reading.text, page.truth))
        errors += edit_distance(truth, read)
        length += len(truth)
        shared, left, right = word_counts(truth, read)
        common, wanted, given = common + shared, wanted + left, given + right
        printed = [line for line in page.truth.splitlines() if normalise(line)]
        exact += sum(holds_line(read, line) for line in printed)
        lines += len(printed)
    return Result(
        cer=100 * errors / max(1, length),
        word_f1=100 * 2 * common / max(1, wanted + given),
        exact=100 * exact / max(1, lines),
        cpu_s=cpu_seconds / max(1, len(pages)),
    )


class Confidence:
    """Collects lines with their confidence, to say how well it tells right lines from wrong."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.wrong: list[bool] = []
        self.right: list[float] = []

    def add(self, pages: Sequence[Page], readings: Sequence[Reading]) -> None:
        """Judge every line by the stretch of its page's truth that is nearest to it."""
        for page, reading in zip(pages, readings, strict=True):
            truth = normalise(page.truth)
            for text, confidence in reading.lines:
                line = normalise(as_typed(text, page.truth))
                if line:
                    errors = edit_distance(line, truth, anywhere=True)
                    self.values.append(confidence)
                    self.wrong.append(not holds_line(truth, line))
                    self.right.append(max(0.0, 1 - errors / len(line)))

    def summary(self) -> dict[str, float | None]:
        """AUROC for "line has an error" (None where all or none have), ECE in percent, counts."""
        area = auroc(self.values, self.wrong)
        return {
            "lines": len(self.values),
            "wrong": sum(self.wrong),
            "auroc": None if math.isnan(area) else round(area, 3),
            "ece": round(100 * calibration_error(self.values, self.right), 2),
        }


def load_sets(folder: Path, scratch: Path, limit: int | None) -> dict[str, list[Page]]:
    """The `scans` and `digital` sets of the folder's manifest."""
    scans: list[Page] = []
    digital: list[Page] = []
    for row in (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(row)
        if entry["kind"] == "scan_gt":
            truth = (folder / entry["gt"]).read_text(encoding="utf-8")
            scans.append(Page(image=folder / entry["file"], truth=truth))
        elif (
            entry["kind"] in ("digital", "template")
            and entry["language"] in ("en", "la")
            and entry.get("gt_kind") == "pdf_text_layer"
        ):
            wanted = _page_numbers(entry.get("gt_layer_full_pages") or "")
            digital += rasterise(folder / entry["file"], wanted, scratch)
    return {"scans": scans[:limit], "digital": digital[:limit]}


def _page_numbers(ranges: str) -> list[int]:
    numbers: list[int] = []
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def rasterise(path: Path, numbers: Sequence[int], scratch: Path) -> list[Page]:
    """Pictures of the pages with text, without doubles; truth from their text layer."""
    sys.modules.setdefault("pymupdf.layout", None)  # type: ignore[arg-type]
    import pymupdf

    pages: dict[str, Page] = {}
    with pymupdf.open(path) as document:
        for number in numbers:
            page = document[number - 1]
            truth = page.get_text()
            if len(truth) < LEAST_TEXT or len(pages) == PAGES_A_DOCUMENT:
                continue
            image = scratch / f"{path.stem}-{number}.png"
            page.get_pixmap(dpi=RASTER_DPI, colorspace=pymupdf.csGRAY).save(image)
            pages.setdefault(truth, Page(image=image, truth=truth))
    return list(pages.values())


def _child(command: Sequence[str]) -> str:
    environment = {**os.environ, **_ONE_THREAD}
    answer = subprocess.run(command, capture_output=True, env=environment, text=True)
    if answer.returncode != 0:
        raise SystemExit(f"{command[0]} failed ({answer.returncode}): {answer.stderr[-2000:]}")
    return answer.stdout


def read_ours(images: Sequence[Path], model: str | None) -> list[Reading]:
    """`vlmcli ocr` on all pictures in one run."""
    command = [sys.executable, "-m", "vlmcli", "ocr", *map(str, images)]
    command += ["--text-layer", "ignore", "--format", "jsonl", "--no-cache", "--progress", "none"]
    command += ["--jobs", "1", "--threads", "1", "--reuse", "off"]
    command += ["--model", model] if model else []
    read: dict[str, Reading] = {}
    for row in _child(command).splitlines():
        record = json.loads(row)
        lines = tuple((line["text"], line["confidence"]) for line in record["lines"])
        read[record["document"]] = Reading(text=record["text"], lines=lines)
    return [read[str(image)] for image in images]


def read_tesseract(images: Sequence[Path], model: str | None) -> list[Reading]:
    """tesseract, one process a page, as its command line works."""
    texts = [_child(["tesseract", str(image), "-", "-l", "eng"]) for image in images]
    return [Reading(text=text) for text in texts]


def read_rapidocr(images: Sequence[Path], model: str | None) -> list[Reading]:
    """RapidOCR without its angle classifier (which loses lines), all pictures in one process."""
    code = (
        "import json, sys, numpy as np\n"
        "from PIL import Image\n"
        "from rapidocr import RapidOCR\n"
        "engine = RapidOCR(params={'EngineConfig.onnxruntime.intra_op_num_threads': 1,"
        " 'EngineConfig.onnxruntime.inter_op_num_threads': 1, 'Global.log_level': 'error'})\n"
        "for path in sys.argv[1:]:\n"
        "    pixels = np.asarray(Image.open(path).convert('RGB'))[:, :, ::-1]\n"
        "    found = engine(np.ascontiguousarray(pixels), use_cls=False)\n"
        "    print('RESULT ' + json.dumps(list(found.txts or ())), flush=True)\n"
    )
    answer = _child([sys.executable, "-c", code, *map(str, images)])
    rows = [row for row in answer.split("\n") if row.startswith("RESULT ")]
    return [Reading(text="\n".join(json.loads(row.removeprefix("RESULT ")))) for row in rows]


Reader = Callable[[Sequence[Path], str | None], list[Reading]]
READERS: dict[str, Reader] = {
    "ours": read_ours,
    "tesseract": read_tesseract,
    "rapidocr": read_rapidocr,
}


def installed(tool: str) -> bool:
    """Whether the tool can be run here."""
    if tool == "tesseract":
        return shutil.which("tesseract") is not None
    return importlib.util.find_spec("vlmcli" if tool == "ours" else "rapidocr") is not None


def run_tool(tool: str, pages: Sequence[Page], model: str | None) -> tuple[Result, list[Reading]]:
    """Read all pages with one tool; CPU seconds of its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    readings = READERS[tool]([page.image for page in pages], model)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return judge(pages, readings, spent), readings


def flatten(pages: Sequence[Page], scratch: Path, name: str) -> list[Page]:
    """The same pictures as grey PNG files, so that every tool decodes the same pixels."""
    flat = []
    for index, page in enumerate(pages):
        path = scratch / f"{name}-{index:03}-{page.image.stem}.png"
        with Image.open(page.image) as image:
            image.convert("L").save(path)
        flat.append(Page(image=path, truth=page.truth))
    return flat


def compare(
    name: str, pages: Sequence[Page], args: argparse.Namespace, confidence: Confidence
) -> dict[str, float]:
    """Read one set with every tool; prints its rows of the table and returns its figures."""
    row: dict[str, float] = {"pages": len(pages)}
    for tool in filter(installed, args.tools):
        result, readings = run_tool(tool, pages, args.model)
        row |= {f"{tool}_{key}": round(value, 3) for key, value in asdict(result).items()}
        print(
            f"{name:9} {len(pages):3} pages  {tool:10} CER {result.cer:6.2f} %  word F1 "
            f"{result.word_f1:5.1f} %  lines exact {result.exact:5.1f} %  "
            f"{result.cpu_s:5.2f} CPU s/page",
            flush=True,
        )
        for page, reading in zip(pages, readings, strict=True) if args.each else ():
            one = judge([page], [reading], 0.0)
            print(f"    {page.image.stem:44} {one.cer:6.2f} {one.word_f1:6.1f} {one.exact:6.1f}")
        if tool == "ours":
            confidence.add(pages, readings)
    return row


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path)
    parser.add_argument("--model", help="model folder for vlmcli; its default otherwise")
    parser.add_argument("--limit", type=int, help="pages a set at most")
    parser.add_argument("--synthetic", type=int, default=3, help="pages a synthetic set")
    parser.add_argument("--sets", nargs="*", help="only these: scans, digital, held-out, …")
    parser.add_argument("--tools", nargs="*", default=TOOLS, choices=TOOLS)
    parser.add_argument("--each", action="store_true", help="also print every page")
    args = parser.parse_args()
    sets: dict[str, dict[str, float]] = {}
    confidence = Confidence()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        found = load_sets(args.pages, scratch, args.limit)
        found |= {name: make_set(name, scratch, args.synthetic) for name in SETS}
        for name in args.sets or found:
            flat = flatten(found[name], scratch, name)
            sets[name] = compare(name, flat, args, confidence)
    told = confidence.summary()
    if told["lines"]:
        print(
            f"confidence of ours: {told['lines']} lines, {told['wrong']} with an error, "
            f"AUROC {told['auroc']}, ECE {told['ece']} %"
        )
    print(json.dumps({"sets": sets, "confidence": told}))


if __name__ == "__main__":
    main()
