"""Compares vlmcli, tesseract and RapidOCR on the same page pictures: errors and CPU seconds.

    python compare.py PAGES_DIR [--model FOLDER] [--limit N] [--tools ours tesseract rapidocr]

PAGES_DIR holds manifest.jsonl, one object a line: `file`, `kind`, `language` and either `gt` (a
transcription) or `gt_kind` "pdf_text_layer" with `gt_layer_full_pages` (pages whose own text layer
is the truth once they are rasterised, here at 150 dpi). Text layers are ignored by all three. Every
tool runs in child processes with one thread; CPU seconds are theirs, start-up included. The last
line is JSON. Tools that are not installed are left out of the table, not guessed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
class TestPage:
    """A page picture and its true text."""

    image: Path
    truth: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Micro-averaged character error and word F1 in percent, CPU seconds a page."""

    cer: float
    word_f1: float
    cpu_seconds: float


def normalise(text: str) -> str:
    """NFC, the end-of-line hyphen sign of some truths as a hyphen, white space collapsed."""
    return " ".join(unicodedata.normalize("NFC", text).replace("¬", "-").split())


def edit_distance(first: str, second: str) -> int:
    """Levenshtein distance with bit-parallel columns (Myers, 1999, as Hyyrö, 2003, states it)."""
    if not first:
        return len(second)
    places: dict[str, int] = {}
    for index, character in enumerate(first):
        places[character] = places.get(character, 0) | 1 << index
    full, last = (1 << len(first)) - 1, 1 << (len(first) - 1)
    plus, minus, distance = full, 0, len(first)
    for character in second:
        match = places.get(character, 0)
        diagonal = (((match & plus) + plus) ^ plus) | match | minus
        up = minus | ~(diagonal | plus) & full
        down = plus & diagonal
        distance += bool(up & last) - bool(down & last)
        up = up << 1 | 1
        plus = (down << 1 | ~(diagonal | up)) & full
        minus = up & diagonal & full
    return distance


def word_counts(truth: str, text: str) -> tuple[int, int, int]:
    """(words in common, words of the truth, words of the text), order left aside."""
    ours, theirs = Counter(truth.split()), Counter(text.split())
    return (ours & theirs).total(), ours.total(), theirs.total()


def judge(pages: Sequence[TestPage], texts: Sequence[str], cpu_seconds: float) -> Result:
    """Score one tool's texts."""
    errors = length = common = wanted = given = 0
    for page, text in zip(pages, texts, strict=True):
        truth, read = normalise(page.truth), normalise(text)
        errors += edit_distance(truth, read)
        length += len(truth)
        shared, left, right = word_counts(truth, read)
        common, wanted, given = common + shared, wanted + left, given + right
    return Result(
        cer=100 * errors / max(1, length),
        word_f1=100 * 2 * common / max(1, wanted + given),
        cpu_seconds=cpu_seconds / max(1, len(pages)),
    )


def load_sets(folder: Path, scratch: Path, limit: int | None) -> dict[str, list[TestPage]]:
    """The `scans` and `digital` sets of the folder's manifest."""
    scans: list[TestPage] = []
    digital: list[TestPage] = []
    for row in (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(row)
        if entry["kind"] == "scan_gt":
            truth = (folder / entry["gt"]).read_text(encoding="utf-8")
            scans.append(TestPage(image=folder / entry["file"], truth=truth))
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


def rasterise(path: Path, numbers: Sequence[int], scratch: Path) -> list[TestPage]:
    """Pictures of the pages with text, without doubles; truth from their text layer."""
    sys.modules.setdefault("pymupdf.layout", None)  # type: ignore[arg-type]
    import pymupdf

    pages: dict[str, TestPage] = {}
    with pymupdf.open(path) as document:
        for number in numbers:
            page = document[number - 1]
            truth = page.get_text()
            if len(truth) < LEAST_TEXT or len(pages) == PAGES_A_DOCUMENT:
                continue
            image = scratch / f"{path.stem}-{number}.png"
            page.get_pixmap(dpi=RASTER_DPI, colorspace=pymupdf.csGRAY).save(image)
            pages.setdefault(truth, TestPage(image=image, truth=truth))
    return list(pages.values())


def _child(command: Sequence[str]) -> str:
    environment = {**os.environ, **_ONE_THREAD}
    answer = subprocess.run(command, capture_output=True, env=environment, text=True)
    if answer.returncode != 0:
        raise SystemExit(f"{command[0]} failed ({answer.returncode}): {answer.stderr[-2000:]}")
    return answer.stdout


def read_ours(images: Sequence[Path], scratch: Path, model: str | None) -> list[str]:
    """`vlmcli ocr` on all pictures in one run."""
    command = [sys.executable, "-m", "vlmcli", "ocr", *map(str, images)]
    command += ["--text-layer", "ignore", "--format", "jsonl", "--no-cache", "--progress", "none"]
    command += ["--jobs", "1", "--threads", "1", "--reuse", "off"]
    command += ["--model", model] if model else []
    texts: dict[str, str] = {}
    for row in _child(command).splitlines():
        record = json.loads(row)
        texts[record["document"]] = record["text"]
    return [texts.get(str(image), "") for image in images]


def read_tesseract(images: Sequence[Path], scratch: Path, model: str | None) -> list[str]:
    """tesseract, one process a page, as its command line works."""
    return [_child(["tesseract", str(image), "-", "-l", "eng"]) for image in images]


def read_rapidocr(images: Sequence[Path], scratch: Path, model: str | None) -> list[str]:
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
        "    print('\\x1e' + json.dumps(list(found.txts or ())), flush=True)\n"
    )
    answer = _child([sys.executable, "-c", code, *map(str, images)])
    rows = [row[1:] for row in answer.splitlines() if row.startswith("\x1e")]
    return ["\n".join(json.loads(row)) for row in rows]


Reader = Callable[[Sequence[Path], Path, str | None], list[str]]
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


def run_tool(
    tool: str, pages: Sequence[TestPage], scratch: Path, model: str | None
) -> tuple[Result, list[str]]:
    """Read all pages with one tool; CPU seconds of its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    texts = READERS[tool]([page.image for page in pages], scratch, model)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return judge(pages, texts, spent), texts


def flatten(pages: Sequence[TestPage], scratch: Path, name: str) -> list[TestPage]:
    """The same pictures as grey PNG files, so that every tool decodes the same pixels."""
    flat = []
    for index, page in enumerate(pages):
        path = scratch / f"{name}-{index:03}-{page.image.stem}.png"
        with Image.open(page.image) as image:
            image.convert("L").save(path)
        flat.append(TestPage(image=path, truth=page.truth))
    return flat


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path)
    parser.add_argument("--model", help="model folder for vlmcli; its default otherwise")
    parser.add_argument("--limit", type=int, help="pages a set at most")
    parser.add_argument("--tools", nargs="*", default=TOOLS, choices=TOOLS)
    parser.add_argument("--each", action="store_true", help="also print every page")
    args = parser.parse_args()
    sets: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for name, found in load_sets(args.pages, scratch, args.limit).items():
            pages = flatten(found, scratch, name)
            row: dict[str, Any] = {"pages": len(pages)}
            for tool in filter(installed, args.tools):
                result, texts = run_tool(tool, pages, scratch, args.model)
                row |= {f"{tool}_cer": result.cer, f"{tool}_word_f1": result.word_f1}
                row[f"{tool}_cpu_s"] = result.cpu_seconds
                print(
                    f"{name:8} {len(pages):3} pages  {tool:10} CER {result.cer:6.2f} %  "
                    f"word F1 {result.word_f1:5.1f} %  {result.cpu_seconds:5.2f} CPU s/page",
                    flush=True,
                )
                for page, text in zip(pages, texts, strict=True) if args.each else ():
                    one = judge([page], [text], 0.0)
                    print(f"    {page.image.stem:44} {one.cer:6.2f} {one.word_f1:6.1f}")
            sets[name] = {key: round(value, 3) for key, value in row.items()}
    print(json.dumps({"sets": sets}))


if __name__ == "__main__":
    main()
