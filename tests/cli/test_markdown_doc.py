"""docs/markdown.md is true: its commands run, on a real table."""

from command_line import ROOT, blocks

TEXT = (ROOT / "docs" / "markdown.md").read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)


def test_every_command_runs(shell):
    (printed,) = [shell(block) for block in BLOCKS]
    assert int(printed) >= 10
    markdown = (shell.folder / "table.md").read_text()
    assert "# Exhibit B.4" in markdown
    assert "<!-- footer: Appendix B  200 -->" in markdown
