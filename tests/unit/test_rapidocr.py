"""RapidOCR from outside: what it looks at is bounded, and where it is missing one is told how."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli import rapidocr
from vlmcli.checkpoint import find_checkpoint
from vlmcli.errors import ExitCode, ModelError, UsageError
from vlmcli.fitness import check_reader
from vlmcli.memory.request import PlanRequest, make_planner
from vlmcli.options import OcrOptions

SIDES = st.integers(1, 30_000)


class Page:
    """A page shape for the planner."""

    document, number = "page", 1

    def __init__(self, width: int, height: int) -> None:
        self.size = (width, height)

    def pixel_size(self, dpi, max_pixels):
        from vlmcli.documents.base import PixelSize

        return PixelSize(width=self.size[0], height=self.size[1], dpi=None, downscaled=False)

    def drawing_bytes(self, size, *, grey):
        return 0

    def is_refused(self, max_pixels):
        return False

    def writing_bytes(self, max_pixels):
        return 0


@given(SIDES, SIDES)
def test_the_detector_sees_no_more_than_four_megapixels(width, height):
    across, down = rapidocr.detector_size(width, height)
    assert across * down <= 2016 * 2016
    assert min(across, down) >= 704
    assert across % rapidocr.CELL == down % rapidocr.CELL == 0


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_a_plan_is_bounded_whatever_the_page(width, height):
    planner = make_planner(PlanRequest(model="rapidocr", device="cpu"))
    plan = planner.plan([Page(width, height)])
    pixels = np.prod(rapidocr.detector_size(width, height))
    assert plan.terms["activations"] == 40 * 2**20 + 150 * pixels
    assert plan.terms["activations"] < 630 * 2**20
    assert plan.foreign and plan.visual_tokens.total == 0


def test_without_the_extra_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(rapidocr.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError) as caught:
        find_checkpoint("rapidocr")
    # What is missing is a model, not an option's library.
    assert caught.value.exit_code is ExitCode.MODEL
    assert caught.value.remedy == "pip install 'vlmcli[rapidocr]'"
    # Planning needs none of it.
    assert make_planner(PlanRequest(model="rapidocr")).facts is not None


def test_a_wheel_without_models_is_not_waited_for_on_the_network(monkeypatch):
    pytest.importorskip("rapidocr")
    monkeypatch.setattr(rapidocr.metadata, "files", lambda name: [])
    with pytest.raises(ModelError, match="no models"):
        find_checkpoint("rapidocr")


@pytest.mark.parametrize(
    ("name", "value"), [("dtype", "bfloat16"), ("max_tokens", 5), ("device", "cuda:1")]
)
def test_options_that_it_cannot_follow_are_refused(name, value):
    pytest.importorskip("rapidocr")
    checkpoint = find_checkpoint("rapidocr")
    check_reader(OcrOptions(inputs=("x",), model="rapidocr"), checkpoint)
    with pytest.raises(UsageError, match=name.replace("_", "-")):
        check_reader(OcrOptions(inputs=("x",), model="rapidocr", **{name: value}), checkpoint)


def test_another_version_or_model_is_another_recipe(monkeypatch, tmp_path):
    pytest.importorskip("rapidocr")
    first = find_checkpoint("rapidocr")
    assert find_checkpoint("rapidocr") == first
    true_version = rapidocr.metadata.version
    for changed in ("rapidocr", "onnxruntime"):
        monkeypatch.setattr(
            rapidocr.metadata,
            "version",
            lambda name, changed=changed: true_version(name) + ("+1" if name == changed else ""),
        )
        assert find_checkpoint("rapidocr").revision != first.revision
    monkeypatch.undo()
    found = rapidocr.find_rapidocr()
    copies = []
    for path in (found.detector, found.recogniser):
        copies.append(tmp_path / path.name)
        copies[-1].write_bytes(path.read_bytes())
    files = [type("File", (), {"locate": lambda self, p=path: p})() for path in copies]
    monkeypatch.setattr(rapidocr.metadata, "files", lambda name: files)
    assert find_checkpoint("rapidocr").revision == first.revision
    with copies[1].open("r+b") as stream:
        stream.seek(1000)
        stream.write(b"\xff\x00")
    assert find_checkpoint("rapidocr").revision != first.revision


def test_what_is_planned_is_what_the_detector_is_given(monkeypatch):
    """The pixels that RapidOCR's own preprocessing makes of our picture."""
    pytest.importorskip("rapidocr")
    from rapidocr.ch_ppocr_det.utils import DetPreProcess

    from vlmcli.readers.rapid import _for_detector

    prepare = DetPreProcess(736, "min", [0.5] * 3, [0.5] * 3)
    for height, width in [(48, 700), (900, 90), (1500, 1100), (2600, 2400), (30, 2500), (3, 3)]:
        picture, scale = _for_detector(np.full((height, width, 3), 250, np.uint8))
        given = prepare(picture)
        assert given is not None and 0 < scale <= 1
        across, down = rapidocr.detector_size(width, height)
        assert abs(given.shape[2] - down) <= 64 and abs(given.shape[3] - across) <= 64
