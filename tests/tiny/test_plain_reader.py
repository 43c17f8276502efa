"""`--engine transformers`: the text of plain `generate`, and nothing of a checkpoint is run."""

import json
import shutil
import time
from functools import wraps
from pathlib import Path

import numpy as np
import pytest
import torch
from llava_checkpoint import IMAGE_TOKEN, write_llava
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from vlmcli.errors import ModelError
from vlmcli.readers.one_by_one import OneByOneReader
from vlmcli.readers.plain import TransformersModel
from vlmcli.reading import OutOfMemoryError, PageJob, PageReading

PROMPT = "Read this."
MAX_TOKENS = 24


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return write_llava(tmp_path_factory.mktemp("model") / "llava")


def picture(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 255, (60 + 20 * seed, 90, 3)).astype(np.uint8)


def load(path: Path, **more) -> TransformersModel:
    options = {"max_tokens": MAX_TOKENS, "retries": 0, "prompts": (PROMPT,), **more}
    return TransformersModel(path, device="cpu", dtype="float32", num_threads=1, **options)


def read(model: TransformersModel, seeds: range) -> dict[int, PageReading]:
    reader = OneByOneReader(model)
    for seed in seeds:
        reader.submit(PageJob(key=seed, picture=picture(seed)))
    readings = {}
    while reader.has_work():
        readings |= {reading.key: reading for reading in reader.step()}
    reader.close()
    return readings


@pytest.mark.parametrize("has_template", [True, False])
def test_the_text_is_that_of_plain_generate(checkpoint, tmp_path, has_template):
    path = checkpoint
    prompt = f"USER: {IMAGE_TOKEN}\n{PROMPT} ASSISTANT:"
    if not has_template:
        path = shutil.copytree(checkpoint, tmp_path / "plain")
        (path / "chat_template.jinja").unlink()
        prompt = f"{IMAGE_TOKEN}\n{PROMPT}"
    processor = AutoProcessor.from_pretrained(path)
    model = AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32).eval()
    expected = {}
    for seed in range(3):
        inputs = processor(
            text=[prompt], images=[Image.fromarray(picture(seed))], return_tensors="pt"
        )
        ids = model.generate(**inputs, do_sample=False, max_new_tokens=MAX_TOKENS)[0]
        new = ids[inputs["input_ids"].shape[1] :]
        expected[seed] = processor.decode(new, skip_special_tokens=True).strip()
    readings = read(load(path), range(3))
    assert {seed: reading.text for seed, reading in readings.items()} == expected
    assert len(set(expected.values())) == 3
    for reading in readings.values():
        assert reading.status == "ok" and reading.tokens.visual == 16
        assert 0 < reading.tokens.output <= MAX_TOKENS


def test_every_question_has_its_answer(checkpoint):
    questions = ("Who?", "When, and where?")
    model = load(checkpoint, prompts=questions, questions=questions)
    reading = read(model, range(1))[0]
    assert [answer.question for answer in reading.answers] == list(questions)
    for answer in reading.answers:
        alone = read(load(checkpoint, prompts=(answer.question,)), range(1))[0]
        assert answer.text == alone.text


@pytest.mark.parametrize("retries", [0, 1])
def test_loops_are_stopped_tried_again_and_cut(checkpoint, tmp_path, retries):
    path = shutil.copytree(checkpoint, tmp_path / "looping")
    settings = json.loads((path / "generation_config.json").read_text())
    settings["suppress_tokens"] = [token for token in range(300) if token != ord("a")]
    (path / "generation_config.json").write_text(json.dumps(settings))
    reading = read(load(path, max_tokens=400, retries=retries), range(1))[0]
    assert (reading.status, reading.attempts) == ("looped", 1 + retries)
    assert reading.tokens.output < 200 * (1 + retries), "it was stopped long before the limit"
    assert 0 < len(reading.text) < 10 and set(reading.text) == {"a"}


def test_a_page_that_is_given_up_stops_at_its_next_token(checkpoint):
    model = load(checkpoint, max_tokens=400)
    reader = OneByOneReader(model)
    forward, tries = model._model.forward, []

    @wraps(forward)
    def slow(*args, **kwargs):
        tries.append(1)
        time.sleep(0.02)
        return forward(*args, **kwargs)

    model._model.forward = slow
    reader.submit(PageJob(key=1, picture=picture(1)))
    while len(tries) < 3:
        assert reader.step() == ()
    reader.abort(1)
    reader.close()
    assert 3 <= len(tries) < 100 and not reader.has_work()


def test_a_picture_that_the_processor_refuses_costs_its_page(checkpoint):
    model = load(checkpoint)
    process = model._processor.image_processor.preprocess

    def refuse(images, *args, **kwargs):
        raise ValueError("this picture is no good")

    model._processor.image_processor.preprocess = refuse
    reading = read(model, range(1))[0]
    assert (reading.status, reading.code) == ("error", "read")
    assert "no good" in reading.message
    model._processor.image_processor.preprocess = process
    assert read(model, range(1))[0].status == "ok"


def test_a_failed_allocation_is_no_fault_of_the_page(checkpoint):
    model = load(checkpoint)
    forward, tries = model._model.forward, []

    @wraps(forward)
    def short(*args, **kwargs):
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        if len(tries) == 3:
            raise RuntimeError("shapes do not match")
        return forward(*args, **kwargs)

    model._model.forward = short
    reader = OneByOneReader(model)
    reader.submit(PageJob(key=1, picture=picture(1)))
    with pytest.raises(OutOfMemoryError):
        while reader.has_work():
            reader.step()
    # The page is still there; what is wrong with it now is its own.
    readings = []
    while reader.has_work():
        readings += reader.step()
    assert [(reading.status, reading.code) for reading in readings] == [("error", "read")]


def test_code_of_a_checkpoint_is_never_run(checkpoint, tmp_path):
    path = shutil.copytree(checkpoint, tmp_path / "hostile")
    mark = tmp_path / "was-run"
    (path / "evil.py").write_text(f"open({str(mark)!r}, 'w')\n")
    config = json.loads((path / "config.json").read_text())
    config |= {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "evil.C", "AutoModelForImageTextToText": "evil.M"},
    }
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="hostile"):
        load(path)
    assert not mark.exists()


def test_weights_that_are_pickles_are_not_loaded(checkpoint, tmp_path):
    path = shutil.copytree(checkpoint, tmp_path / "pickled")
    (path / "model.safetensors").unlink()
    torch.save({}, path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled"):
        load(path)


def test_a_missing_library_is_named(checkpoint, monkeypatch):
    def needs(*args, **kwargs):
        raise ImportError("LlavaProcessor requires the Foovision library\nbut it was not found")

    monkeypatch.setattr(AutoProcessor, "from_pretrained", needs)
    with pytest.raises(ModelError, match="Foovision") as caught:
        load(checkpoint)
    assert caught.value.remedy
