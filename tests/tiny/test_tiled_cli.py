"""`vlmcli ocr` and `vlmcli plan` with checkpoints whose pictures are cut into tiles."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import RealCli
from PIL import Image, ImageDraw
from tiled_checkpoints import KINDS, tiled_config, write_tiled_checkpoint

from vlmcli.engine.models.registry import find_family
from vlmcli.engine.views import View


def write_page(file: Path) -> None:
    """A small page with something on it."""
    page = Image.new("RGB", (180, 240), "white")
    draw = ImageDraw.Draw(page)
    for i in range(8):
        draw.text((12, 14 + 26 * i), f"Line {i}: {'abcdef'[: i % 6]} {i * 37}", fill="black")
    page.save(file)


def views_of(kind: str, file: Path) -> list:
    config = tiled_config(kind)
    return find_family(config.model_type).parts(np.asarray(Image.open(file)), config)


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind == "internvl3" else pytest.param(kind, marks=pytest.mark.slow)
        for kind in sorted(KINDS)
    ],
)
def test_a_page_is_planned_and_read(tmp_path, kind):
    write_tiled_checkpoint(tmp_path / "tiny", kind)
    write_page(tmp_path / "page.png")
    vlmcli, args = RealCli(tmp_path), ("page.png", "--model", "./tiny")
    done = vlmcli("plan", *args, "--json")
    assert done.returncode == 0, done.stderr.decode()
    plan = json.loads(done.stdout)
    family = find_family(tiled_config(kind).model_type)
    geometry = family.geometry(180, 240, tiled_config(kind).processor)
    assert plan["visual_tokens"]["max"] == geometry.num_tokens
    limits = ("--max-tokens", "8", "--threads", "1")
    (record,) = vlmcli.records(*args, *limits, "--stats", "stats.json")
    assert (record["status"], record["page"]) == ("ok", 1)
    assert record["tokens"]["visual"] == geometry.num_tokens
    stats = json.loads((tmp_path / "stats.json").read_text())
    views = [part for part in views_of(kind, tmp_path / "page.png") if isinstance(part, View)]
    assert stats["images_encoded"] + stats["images_reused"] == len(views) > 1
