"""docs/view.md is true: its commands run and make the reports that it speaks of."""

from command_line import ROOT, blocks

TEXT = (ROOT / "docs" / "view.md").read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)


def test_every_command_runs(shell):
    for block in BLOCKS:
        shell(block)
    reports = {path.name: path.read_text() for path in shell.folder.glob("*.html")}
    assert set(reports) == {
        *("report.html", "small.html", "texts.html", "locked.html"),
        "piped.html",
    }
    pages = {
        name: (text.count("<article"), text.count("data-type")) for name, text in reports.items()
    }
    assert pages["report.html"] == pages["small.html"] == (8, 8)
    assert pages["texts.html"] == (8, 0)
    assert pages["locked.html"] == (1, 1)
    assert pages["piped.html"] == (3, 3)
    assert "Secret!" in reports["locked.html"]
    assert len(reports["small.html"]) < len(reports["report.html"])


def test_its_picture_is_small():
    assert (ROOT / "docs" / "view.png").stat().st_size < 200_000
