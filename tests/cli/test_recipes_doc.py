"""docs/recipes.md is true: its commands run beside the samples, and its table is of our recipes."""

import re
import tomllib

import numpy as np
import pytest
from command_line import ROOT, blocks
from typer.testing import CliRunner
from video_kit import write_video

from vlmcli.cli.app import app
from vlmcli.recipes.named import FOLDER, recipe_names

TEXT = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)


@pytest.fixture(scope="module")
def shell(shell):
    """With the recipes and a short video, in the root of a repository."""
    (shell.folder / "recipes").symlink_to(ROOT / "recipes")
    (shell.folder / ".git").mkdir()
    write_video(shell.folder / "talk.mp4", [np.full((64, 96, 3), 255, np.uint8)] * 10, code="mp4v")
    return shell


def test_every_command_runs(shell):
    printed = [shell(block) for block in BLOCKS]
    assert len(printed) == 6
    files = {path.name for path in (shell.folder / "shelf").iterdir()}
    assert files == {"scan.pdf", "scan.hocr"}
    assert (shell.folder / "talk.md").read_text().startswith("<!-- page 1, 0:00:00 -->")
    assert " MiB  peak" in printed[0]
    assert tomllib.loads((shell.folder / "mine.toml").read_text())["ocr"]["dpi"] == 300
    assert printed[1].startswith("<!-- page 1 -->")
    assert printed[2] == "exit code 7\n"
    assert "character error rate" in printed[3]
    *pages, last = printed[4].split("<!-- page 1 -->")
    assert len(pages) == 1, "the second time without configuration"
    assert 'format = ["markdown"]  # vlmcli.toml' in last
    assert "max-memory = 4294967296  # vlmcli.toml" in last
    assert printed[5].startswith('{"schema": 1')


def test_the_table_has_every_recipe_and_whom_it_is_for():
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| `(\w+)` \|", TEXT, re.MULTILINE))
    assert sorted(rows) == recipe_names()
    for name, command in rows.items():
        table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
        assert set(table) == {"description", command}


def test_the_example_is_a_recipe(tmp_path):
    (example,) = blocks(TEXT, "toml")
    path = tmp_path / "example.toml"
    path.write_text(example)
    done = CliRunner().invoke(app, ["ocr", "--recipe", str(path), "--print-recipe"])
    assert done.exit_code == 0, done.output
    assert tomllib.loads(done.stdout)["ocr"]["max-memory"] == 4 << 30
