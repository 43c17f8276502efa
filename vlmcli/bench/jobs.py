"""`vlmcli ocr` for benchmarks: run in a process of its own, with its records, figures and time."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlmcli.bench.rss import run_measured

WITHOUT_REUSE = ("--reuse", "off", "--no-cache")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A finished `vlmcli ocr`: its records, its figures, and the processor seconds it took."""

    records: list[dict[str, Any]]
    stats: dict[str, Any]
    cpu_seconds: float

    @property
    def texts(self) -> list[str]:
        """The pages' texts, in order."""
        return [record["text"] for record in self.records]

    @property
    def num_reused(self) -> int:
        """Pages that took over a result."""
        return sum(record["source"] == "reuse" for record in self.records)

    @property
    def tokens_per_step(self) -> float:
        """Output tokens of a sequence in one forward pass, on average."""
        return float(self.stats["output_tokens"]) / float(self.stats["sequence_steps"])

    @property
    def model_seconds(self) -> float:
        """Wall-clock seconds that the model computed."""
        return sum(float(self.stats[f"seconds_{name}"]) for name in ("encode", "prefill", "decode"))


def read(document: Path, store: Path, *options: str) -> Job:
    """Read a document, every page of it with the model, results kept in `store`.

    Raises:
        RuntimeError: the job did not come to its end.
    """
    out, stats = document.with_suffix(".jsonl"), document.with_suffix(".json")
    row = run_measured(
        [
            *(sys.executable, "-m", "vlmcli", "ocr", str(document), "-f", "jsonl"),
            *("-o", str(out), "--overwrite", "--progress", "none", "--stats", str(stats)),
            *(() if "--text-layer" in options else ("--text-layer", "ignore")),
            *options,
        ],
        env={**os.environ, "VLMCLI_CACHE_DIR": str(store)},
    )
    if row.returncode not in (0, 5):
        raise RuntimeError(f"vlmcli ocr {document.name} ended with {row.returncode}")
    return Job(
        records=[json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()],
        stats=json.loads(stats.read_text()),
        cpu_seconds=row.cpu_seconds,
    )
