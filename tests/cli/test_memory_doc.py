"""docs/memory.md is true: its commands print what it shows, and its table has every term.

A change of the memory model changes the figures: `VLMCLI_WRITE_DOCS=1` with this test has the
document rewritten by what its commands print.
"""

import os
import re

from command_line import ROOT

from vlmcli.cli.plan_view import TERM_NAMES

PATH = ROOT / "docs" / "memory.md"
TEXT = PATH.read_text(encoding="utf-8")
SHOWN = re.compile(r"^```sh\n(.*?)^```\n+```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = SHOWN.findall(TEXT)


def test_the_worked_example_prints_what_is_shown(shell):
    printed = [shell(block) for block, _ in BLOCKS]
    if os.environ.get("VLMCLI_WRITE_DOCS"):
        left = iter(printed)
        PATH.write_text(
            SHOWN.sub(lambda match: f"```sh\n{match[1]}```\n\n```text\n{next(left)}```", TEXT),
            encoding="utf-8",
        )
        return
    assert len(BLOCKS) == TEXT.count("```sh\n") >= 5
    assert printed == [shown for _, shown in BLOCKS]
    refusal, pasted = BLOCKS[-2][1], BLOCKS[-1][0].splitlines()[0]
    assert f"    {pasted}\n" in refusal


def test_every_term_of_a_plan_is_explained():
    table = TEXT[TEXT.index("## The terms") : TEXT.index("## What keeps")]
    names = re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
    assert names == list(TERM_NAMES)


def test_the_table_of_jobs_is_within_the_promise():
    table = TEXT[TEXT.index("## Plans against reality") :]
    rows = re.findall(r"^\| (?:nano|tiny|windowed|mid) .*\| ([\d.]+) \|$", table, re.MULTILINE)
    assert len(rows) >= 12
    assert all(1.0 <= float(ratio) <= 1.15 for ratio in rows)
