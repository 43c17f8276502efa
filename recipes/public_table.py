"""What `vlmcli ocr` does on every file of a test set, as a Markdown table, judged by its manifest.

    python recipes/public_table.py FOLDER [--only WORD] > docs/public-set.md

FOLDER holds manifest.jsonl, one object a line: `file`, `source_repo`, `source_path`, `pages` (null
where there is nothing to open), `kind`, `expected` (a sentence) and, for encrypted files,
`password`. Every file is read by a command of its own with default options; an encrypted one
without its password and then with it. Checked against the manifest: the exit code, the number of
records, that born-digital pages are answered from their text layer, and the words that `expected`
quotes, as far as a reader that misreads a letter can be held to them. Ends with status 1 if a file
deviates. Knows nothing about accuracy; that is `vlmcli eval`'s business.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FIRST_WORDS = 40
"""Characters of a page's text that the table shows."""
_LIKENESS = 0.75
"""How much of a quoted word must be found in a text that a model has read."""
_NAMES = {0: "0", 2: "2 usage", 3: "3 unreadable", 5: "5 partial", 8: "8 encrypted"}

HEAD = """\
# The public test set

What `vlmcli ocr FILE` does on every file of the public test set: pages of {num_repos} open-source
repositories, unmodified, among them broken, encrypted and odd ones. The table is the output of
`recipes/public_table.py`, which also compares each run with what the set's manifest expects: exit
code, number of records, text layer or model, and the words that the manifest quotes.

- *Exit*: the exit code; a file that needs a password has a second row with it.
- *Records*: statuses of its pages, and what answered them.
- *First words*: of the first page that has some, as read: mistakes are the model's.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One command: its exit code, its records, and its last line on stderr."""

    exit_code: int
    records: list[dict[str, Any]]
    message: str

    @property
    def text(self) -> str:
        """All pages' texts."""
        return "\n".join(record["text"] for record in self.records)


def run_ocr(file: Path, password: str | None) -> Run:
    """Read a file as a user would, in a process of its own."""
    command = [sys.executable, "-m", "vlmcli", "ocr", file.name, "-f", "jsonl"]
    if password is not None:
        command += ["--password", password]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, timeout=900, check=False)
    return Run(
        exit_code=done.returncode,
        records=[json.loads(line) for line in done.stdout.splitlines()],
        message=(done.stderr.decode("utf-8", "replace").splitlines() or [""])[-1],
    )


def expected_exit(entry: dict[str, Any], password: str | None) -> int:
    """The exit code that the manifest's entry stands for."""
    if not entry["pages"]:
        return 3
    if entry.get("password") is not None and password is None:
        return 8
    return 5 if re.search(r"page \d+ a reported error", entry["expected"]) else 0


def quoted_words(entry: dict[str, Any]) -> list[str]:
    """Words in straight quotes in the manifest's sentence that are meant to be on the pages."""
    if not entry["pages"] or entry["kind"] not in ("hostile", "template"):
        return []
    found = re.findall(r'"([^"]*)"', entry["expected"])
    return [re.sub(r" Page n\.$", "", words) for words in found if len(words) > 3]


def is_found(words: str, text: str) -> bool:
    """Whether a text has these words, or words much like them."""
    words, text = fold(words), fold(text)
    if words in text:
        return True
    matcher = difflib.SequenceMatcher(None, text, words, autojunk=False)
    for block in matcher.get_matching_blocks():
        start = max(0, block.a - block.b)
        window = text[start : start + len(words) + 2]
        if difflib.SequenceMatcher(None, window, words, autojunk=False).ratio() >= _LIKENESS:
            return True
    return False


def fold(text: str) -> str:
    """Letters and digits alone, in lower case."""
    return "".join(c for c in unicodedata.normalize("NFKD", text).lower() if c.isalnum())


def deviations(entry: dict[str, Any], run: Run, password: str | None) -> list[str]:
    """What is not as the manifest wants it."""
    wrong = []
    wanted = expected_exit(entry, password)
    if run.exit_code != wanted:
        wrong.append(f"exit {run.exit_code}, expected {wanted}")
    if wanted in (0, 5):
        if len(run.records) != entry["pages"]:
            wrong.append(f"{len(run.records)} records for {entry['pages']} pages")
        missing = [words for words in quoted_words(entry) if not is_found(words, run.text)]
        wrong += [f"not found: {words}" for words in missing]
    elif run.records:
        wrong.append("records of a file that cannot be read")
    if entry["kind"] == "digital" and not any(r["source"] == "text-layer" for r in run.records):
        wrong.append("text layer not used")
    return wrong


def row(entry: dict[str, Any], run: Run, password: str | None) -> str:
    """The file's line of the table."""
    name = f"`{Path(entry['file']).name}`"
    if password is not None:
        name += " with its password"
    upstream = f"{entry['source_repo'].removeprefix('github.com/')}: `{entry['source_path']}`"
    cells = [name, upstream, _NAMES.get(run.exit_code, str(run.exit_code)), kinds(run.records)]
    return f"| {' | '.join([*cells, first_words(run)])} |"


def kinds(records: list[dict[str, Any]]) -> str:
    """How many pages ended how, as in `2 ok (model), 1 blank`."""
    counts = Counter(kind(record) for record in records)
    return ", ".join(f"{count} {words}" for words, count in counts.items()) or "none"


def kind(record: dict[str, Any]) -> str:
    """How a page ended: its status and what is remarkable about it."""
    notes = [record["source"] or "", "downscaled" if record["downscaled"] else ""]
    notes = [note for note in (*notes, *record["suspect"]) if note]
    return record["status"] + (f" ({', '.join(notes)})" if notes else "")


def first_words(run: Run) -> str:
    """The start of the text; of a file that could not be read, what was said about it."""
    text = next((r["text"] for r in run.records if r["text"].strip()), "")
    if not text and run.exit_code:
        message = run.message.removeprefix("vlmcli: error: ")
        return f"*{escaped(message)}*"
    text = " ".join(text.split())
    if len(text) > _FIRST_WORDS:
        text = text[:_FIRST_WORDS].rsplit(" ", 1)[0] + " …"
    return escaped(text)


def escaped(text: str) -> str:
    """Text that a Markdown table shows as it is."""
    return re.sub(r"([\\`*_|<\[\]~])", r"\\\1", text)


def main() -> None:
    """Print the table and what deviates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="files whose name has this in it")
    options = parser.parse_args()
    lines = (options.folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [entry for line in lines if options.only in (entry := json.loads(line))["file"]]
    print(HEAD.format(num_repos=len({entry["source_repo"] for entry in entries})))
    print("| File | Upstream | Exit | Records | First words |")
    print("|---|---|---|---|---|")
    wrong: list[str] = []
    for entry in sorted(entries, key=lambda entry: Path(entry["file"]).name):
        for password in dict.fromkeys((None, entry.get("password"))):
            run = run_ocr(options.folder / entry["file"], password)
            print(row(entry, run, password), flush=True)
            name = Path(entry["file"]).name
            wrong += [f"`{name}`: {text}" for text in deviations(entry, run, password)]
    print(f"\n{len(entries)} files, {len(wrong)} deviations from what the manifest expects.")
    for text in wrong:
        print(f"\n- {text}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
