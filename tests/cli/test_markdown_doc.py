"""docs/markdown.md is true: its commands run, on a real table."""

import re

from command_line import ROOT, Shell

TEXT = (ROOT / "docs" / "markdown.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def test_every_command_runs(tmp_path):
    shell = Shell(tmp_path)
    (printed,) = [shell(block) for block in BLOCKS]
    assert int(printed) >= 10
    markdown = (tmp_path / "table.md").read_text()
    assert "# Exhibit B.4" in markdown
    assert "<!-- footer: Appendix B  200 -->" in markdown
