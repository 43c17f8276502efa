"""Every native family has the checks that each must pass; and the pixels of those whose image
processors no other file of tests compares."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from family_checks import CELLS, FAMILY_OF, cells_of, missing, table
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_checkpoints import random_picture, write_checkpoint
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from vlmcli.engine.loader import read_model_config
from vlmcli.engine.models.registry import find_family, native_families
from vlmcli.engine.preprocess import as_channels, normalise, patchify

TESTS = Path(__file__).parents[1]
QWEN_LIMITS = {"min_pixels": 28 * 28 * 4, "max_pixels": 28 * 28 * 30, "merge_size": 2}
PROCESSORS = {
    "lighton_ocr": (PixtralImageProcessorPil, {"patch_size": 14, "size": {"longest_edge": 140}}),
    "qwen2_5_vl": (Qwen2VLImageProcessorPil, {"patch_size": 14, **QWEN_LIMITS}),
    "qwen3_vl": (Qwen2VLImageProcessorPil, {"patch_size": 14, **QWEN_LIMITS}),
}


@pytest.mark.check("pixels")
@pytest.mark.parametrize("kind", PROCESSORS)
def test_pixels_and_token_counts_equal_transformers(kind, tmp_path):
    make, limits = PROCESSORS[kind]
    path = write_checkpoint(tmp_path / "model", kind)
    mean = {"image_mean": [0.48, 0.46, 0.41], "image_std": [0.27, 0.26, 0.28]}
    theirs = make(**limits, **mean)
    (path / "preprocessor_config.json").write_text(json.dumps(limits | mean))
    config, family = read_model_config(path), find_family(kind)
    merge = config.vision.merge_size

    @settings(max_examples=12)
    @given(st.integers(30, 260), st.integers(30, 260), st.booleans())
    def check(width, height, grey):
        picture = random_picture(np.random.default_rng(width), height, width, grey=grey)
        (view,) = (part for part in family.parts(picture, config) if not isinstance(part, str))
        out = theirs(images=[as_channels(picture, 3)], return_tensors="np")
        pixels = as_channels(view.pixels, 3)
        if "image_grid_thw" in out:
            ours = normalise(patchify(pixels, 14, merge), config.processor)
            frames = out["pixel_values"].reshape(len(ours), 3, 2, -1)
            assert np.array_equal(ours, frames[:, :, 0].reshape(len(ours), -1))
        else:
            ours = normalise(patchify(pixels, 14, 1), config.processor)
            whole = np.asarray(out["pixel_values"][0]).transpose(1, 2, 0)
            assert np.array_equal(ours, patchify(whole, 14, 1))
        rows, columns = view.pixels.shape[0] // 14, view.pixels.shape[1] // 14
        assert view.num_tokens == (rows // merge) * (columns // merge)

    check()


def test_every_family_has_its_obligatory_checks(request):
    """Counted over all tests of families: of this run, or collected anew if it has not all."""
    cells = request.config.stash[CELLS]
    if missing(cells):
        done = subprocess.run(
            [sys.executable, "-c", _COLLECT, str(TESTS)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        cells = [tuple(cell) for cell in json.loads(done.stdout.splitlines()[-1])]
    assert missing(cells) == []
    assert {family for family, _ in cells} == {*native_families()}


_COLLECT = """
import json, sys, pytest
from pathlib import Path
folder = Path(sys.argv[1])
sys.path.append(str(folder))
from family_checks import cells_of
found = []
class Collector:
    def pytest_collection_finish(self, session):
        found.extend(cell for item in session.items for cell in cells_of(item))
code = pytest.main(
    ["--collect-only", "-q", "-p", "no:cacheprovider", str(folder / "tiny")],
    plugins=[Collector()],
)
print()
print(json.dumps(found))
sys.exit(code)
"""


def test_a_family_without_a_check_is_found_and_shown():
    every = [(family, check) for family in native_families() for check in ALL]
    assert missing(every) == []
    assert missing(cell for cell in every if cell != ("smolvlm", "greedy")) == [
        ("smolvlm", "greedy")
    ]
    lines = table({("smolvlm", "greedy"): 12}, {("idefics3", "pixels"): 1})
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert set(rows) == {*native_families()}
    assert rows["smolvlm"] == ["–", "12", *["–"] * 7]
    assert rows["idefics3"] == ["–", "–", "0!", *["–"] * 6]


ALL = ("logits", "greedy", "pixels", "images", "chunks", "batch", "m-rope")


class Item:
    """As much of a collected test as is looked at."""

    def __init__(self, params: dict, *marks) -> None:
        self.nodeid, self.marks = "test_it", marks
        self.callspec = type("CallSpec", (), {"params": params})

    def iter_markers(self, name: str):
        return [mark for mark in self.marks if mark.name == name]


def test_the_family_of_a_test_is_that_of_its_checkpoint():
    mark = pytest.mark.check("logits", "batch").mark
    for kind, family in {**FAMILY_OF, "glm_ocr": "glm_ocr"}.items():
        found = cells_of(Item({"sides": kind, "step": 3}, mark))
        assert found == [(family, "logits"), (family, "batch")]
    assert cells_of(Item({"kind": "glm_ocr"})) == []
    named = pytest.mark.check("pixels", family="idefics2").mark
    assert cells_of(Item({}, named)) == [("idefics2", "pixels")]
    with pytest.raises(ValueError, match="one family"):
        cells_of(Item({"step": 3}, mark))
    with pytest.raises(ValueError, match="speed"):
        cells_of(Item({"kind": "glm_ocr"}, pytest.mark.check("speed").mark))
