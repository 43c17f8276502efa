"""How the command line's tests start it: as users do, in a process of its own."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FAKE_SCRIPT = Path(__file__).parent / "with_fake_pipeline.py"


_numbers = itertools.count()


class Cli:
    """Starts `vlmcli` in `folder`; with `fake`, over the fake pipeline.

    Every run has an empty store of results, unless the environment that it is given names one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *args: str, fake: bool = True) -> list[str]:
        start = [str(FAKE_SCRIPT)] if fake else ["-m", "vlmcli"]
        return [sys.executable, *start, *args]

    def environment(self, fake: dict | None = None, **more: str) -> dict[str, str]:
        dropped = ("VLMCLI_", "_VLMCLI_", "NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        paths = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")]))
        store = self.folder.with_name(f"{self.folder.name}.stores") / str(next(_numbers))
        own = {
            "PYTHONPATH": paths,
            "FAKE": json.dumps(fake or {}),
            "VLMCLI_CACHE_DIR": str(store),
            "XDG_CONFIG_HOME": str(store.parent / "no-configuration"),
        }
        return kept | own | more

    def __call__(self, *args: str, fake: dict | None = None, env=None, **more):
        """Run to the end; `fake={}` is the fake pipeline in good order, None the real one."""
        return subprocess.run(
            self.command(*args, fake=fake is not None),
            cwd=self.folder,
            env=self.environment(fake, **(env or {})),
            **{"capture_output": True, "timeout": 60, "check": False, **more},
        )

    def start(self, *args: str, fake: dict | None = None, **more) -> subprocess.Popen:
        """Start over the fake pipeline and come back at once."""
        return subprocess.Popen(
            self.command(*args),
            cwd=self.folder,
            env=self.environment(fake),
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
        )


class Shell:
    """Runs commands as a document shows them: in a folder with the samples and a `vlmcli`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "samples", folder / "samples")
        command = folder / "bin" / "vlmcli"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vlmcli "$@"\n')
        command.chmod(0o755)
        env = Cli(folder).environment(XDG_CACHE_HOME=str(folder / "cache"))
        paths = [str(command.parent), str(Path(sys.executable).parent), env["PATH"]]
        self.environment = env | {"PATH": os.pathsep.join(paths)}

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess:
        """Run a command to its end, however that is."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def __call__(self, block: str) -> str:
        """Run some lines, the first failure of which ends them, and give what they print."""
        done = self.run("bash", "-euo", "pipefail", "-c", block)
        assert done.returncode == 0, (block, done.stderr)
        return done.stdout


def blocks(page: str, language: str = "sh") -> list[str]:
    """The blocks of a Markdown page that are in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


class RealCli(Cli):
    """Starts the real command line over the real pipeline, with patience for a busy machine."""

    def __call__(self, *args: str, env=None, **more):
        """Run to the end."""
        return super().__call__(*args, env=env, **{"timeout": 300, **more})

    def records(self, *args: str, code: int = 0, **more) -> list[dict]:
        """The records that `vlmcli ocr ... -f jsonl` writes to stdout, having ended with `code`."""
        done = self("ocr", *args, "-f", "jsonl", **more)
        assert done.returncode == code, done.stderr.decode()
        return read_records(done.stdout)

    def start(self, *args: str, **more) -> subprocess.Popen:
        """Start and come back at once."""
        return subprocess.Popen(
            self.command(*args, fake=False),
            cwd=self.folder,
            env=self.environment(),
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more},
        )


def wait_for(
    condition: Callable[[], Any], job: subprocess.Popen | None = None, seconds: float = 300
) -> Any:
    """Wait until the condition gives something, and give that; None if the job ended before."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if job is not None and job.poll() is not None:
            return None
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)
    return found


def journaled(output: Path) -> int:
    """How many finished pages are in the journal beside an output."""
    path = output.with_name(f"{output.name}.vlmcli-journal")
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def read_records(data: bytes) -> list[dict]:
    """Records of a JSONL file, which has whole lines only."""
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def without_seconds(records: list[dict]) -> list[dict]:
    """What two runs of the same job must agree on where every page is read."""
    return [{key: value for key, value in r.items() if key != "seconds"} for r in records]


HISTORY = {"seconds", "source", "reuse", "tokens", "attempts"}
"""Fields that say how a page came to its text, which depends on what was at hand by then."""


def without_history(records: list[dict]) -> list[dict]:
    """What any two runs of the same job must agree on."""
    return [{key: value for key, value in r.items() if key not in HISTORY} for r in records]
