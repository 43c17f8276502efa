"""Jobs that are over: how `--resume` knows that there is nothing left to do, and says so.

When a job's outputs are published, a mark of some 500 bytes is left: a digest of what the job was,
one of its files' sizes and times of change, and what became of its pages. It is an extended
attribute of the output (of the folder, where the output is one), so that nothing lies beside the
results; where the file system or the system has none, a file in the cache's folder. A mark that is
lost or no longer fits is no mark: resuming then refuses, as it does for files of strangers.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlmcli.errors import ExitCode
from vlmcli.outputs.base import encode
from vlmcli.outputs.targets import OutputPlan
from vlmcli.paths import cache_directory
from vlmcli.report import JobSummary

_ATTRIBUTE = "user.vlmcli.job."
_MOST_FILES = 1000
"""Marks in the cache's folder; the oldest go."""


class FinishedJob:
    """The mark of one job, there or not yet.

    Args:
        plan: its outputs, files or a folder.
        fingerprint: what decides its records; see `journal.job_fingerprint`.
    """

    def __init__(self, plan: OutputPlan, fingerprint: Mapping[str, str]) -> None:
        assert plan.path is not None and plan.kind != "stream", "streams are not resumed"
        self._plan = plan
        whole = {**fingerprint, "formats": list(plan.formats), "pdfa": plan.pdfa}
        self._job = _digest(json.dumps(whole, sort_keys=True))
        is_folder = plan.kind == "directory"
        self._anchor = plan.path if is_folder else next(iter(plan.files.values()))

    def find(self) -> JobSummary | None:
        """What the job came to, where it is over and its files are as it left them.

        Every page counts as resumed. None where a journal says that it goes on, or no mark fits.
        """
        journal = self._plan.journal_path
        if journal is None or os.path.lexists(journal):
            return None
        for data in (_attribute(self._anchor, self._name), _content(self._file)):
            summary = self._checked(data)
            if summary is not None:
                return summary
        return None

    def leave(self, summary: JobSummary) -> None:
        """Leave the mark. Never raises: without one, resuming refuses as it would for any file."""
        data = {
            "job": self._job,
            "outputs": self._outputs(),
            "exit_code": int(summary.exit_code),
            "statuses": dict(summary.statuses),
            "sources": dict(summary.sources),
            "pages": summary.pages,
            "failed": summary.failed,
            "blank": summary.blank,
            "no_text_layer": summary.no_text_layer,
            "documents": summary.documents,
        }
        mark = encode(json.dumps(data))
        if not _set_attribute(self._anchor, self._name, mark):
            with contextlib.suppress(OSError):
                _write(self._file, mark)

    @property
    def _name(self) -> str:
        # By job: a folder may hold the results of several.
        return _ATTRIBUTE + self._job[:16]

    @property
    def _file(self) -> Path:
        key = _digest(f"{os.path.realpath(self._anchor)}\n{self._job}")
        return cache_directory() / "jobs" / key

    def _checked(self, data: bytes) -> JobSummary | None:
        """A mark's summary, if it is this job's and the files are as they were."""
        try:
            mark: Any = json.loads(data)
            if mark["job"] != self._job or mark["outputs"] != self._outputs():
                return None
            return JobSummary(
                pages=mark["pages"],
                failed=mark["failed"],
                blank=mark["blank"],
                no_text_layer=mark["no_text_layer"],
                resumed=mark["pages"],
                documents=mark["documents"],
                exit_code=ExitCode(mark["exit_code"]),
                statuses=dict(mark["statuses"]),
                sources=dict(mark["sources"]),
                was_finished=True,
            )
        except (ValueError, KeyError, TypeError):
            return None

    def _outputs(self) -> str:
        """A digest of the names, sizes and times of change of all files of the job."""
        digest = hashlib.sha256()
        base = self._anchor if self._plan.kind == "directory" else self._anchor.parent
        for path in self._plan.all_files():
            if path != self._plan.journal_path:
                name = os.path.relpath(path, base)
                digest.update(encode(f"{name!r} {_state(path)}\n"))
        return digest.hexdigest()[:32]


def _digest(text: str) -> str:
    return hashlib.sha256(encode(text)).hexdigest()[:32]


def _state(path: Path) -> str:
    """Documents that could not be opened have no file in some formats."""
    try:
        info = path.stat()
    except OSError:
        return "none"
    return f"{info.st_size} {info.st_mtime_ns}"


def _attribute(path: Path, name: str) -> bytes:
    """An extended attribute; empty where there is none, or no such thing."""
    # Python has them on Linux alone.
    with contextlib.suppress(OSError, AttributeError):
        return os.getxattr(path, name)
    return b""


def _set_attribute(path: Path, name: str, data: bytes) -> bool:
    with contextlib.suppress(OSError, AttributeError):
        os.setxattr(path, name, data)
        return True
    return False


def _content(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)
    marks = sorted(path.parent.iterdir(), key=lambda one: one.stat().st_mtime_ns)
    for old in marks[:-_MOST_FILES]:
        old.unlink(missing_ok=True)
