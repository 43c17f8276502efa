"""docs/stats.md is true: its commands run, and its table has fields that are there."""

import json
import re

from command_line import ROOT, blocks

TEXT = (ROOT / "docs" / "stats.md").read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)


def test_the_commands_run_and_the_fields_are_there(shell):
    (printed,) = [shell(f"exec 2> said.txt\n{block}") for block in BLOCKS]
    assert re.match(r"3 2 (render|encode|prefill|decode|write)\n", printed)
    said = (shell.folder / "said.txt").read_text()
    closing = [line for line in said.splitlines() if line.startswith("vlmcli: ")]
    assert closing[0].startswith("vlmcli: 4 pages of 2 documents, 1 blank in ")
    assert "answered by: 2 text-layer, 1 model, 1 none; drafts: " in said
    assert "pages/min: render " in said
    assert " MiB at its peak, " in said
    table = re.findall(r"^\| (`.*`) \|", TEXT, re.MULTILINE)
    fields = [field for row in table for field in re.findall(r"`([\w-]+)`", row)]
    stats = json.loads((shell.folder / "stats.json").read_text())
    assert len(fields) > 18
    assert set(fields) <= stats.keys()
