"""Tasks: every family has words for each, they reach the model, and its tags reach the text."""

import json
import shutil
from pathlib import Path
from typing import get_args

import pytest
from asking import pictures, write_page_checkpoint

from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.models.prompts import _OF_FAMILIES, Task, prompt_for
from vlmcli.engine.models.registry import native_families
from vlmcli.engine.tokenizer import load_tokenizer
from vlmcli.readers.guard import Guard
from vlmcli.readers.pages import PageReader
from vlmcli.reading import PageJob

TASKS: tuple[Task, ...] = get_args(Task)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return write_page_checkpoint(tmp_path_factory.mktemp("model") / "tiny")


def prompts(checkpoint: Path, task: Task, questions=()) -> list[list[int]]:
    """The prompts that a reader asks a page with."""
    engine = Engine.from_checkpoint(checkpoint, EngineConfig(num_threads=1))
    asked: list[list[int]] = []
    add = engine.add_request

    def watched(request):
        asked.append(list(request.prompt_token_ids))
        add(request)

    engine.add_request = watched
    guard = Guard(engine, retries=0)
    reader = PageReader(guard, max_tokens=4, questions=questions, task=task)
    reader.submit(PageJob(key=1, picture=pictures(1)[0]))
    return asked


def test_every_family_has_a_prompt_for_every_task():
    for family in (*native_families(), *_OF_FAMILIES, "never heard of"):
        for task in TASKS:
            assert isinstance(prompt_for(family, task), str)
    general = [prompt_for("never heard of", task) for task in TASKS]
    assert len(set(general)) == len(TASKS) and all(general)


def test_the_task_is_what_the_model_is_asked(checkpoint):
    tokenizer = load_tokenizer(checkpoint)
    texts = {task: tokenizer.decode(prompts(checkpoint, task)[0]) for task in TASKS}
    for task, text in texts.items():
        assert prompt_for("qwen2_vl", task) in text
    assert len(set(texts.values())) == len(TASKS)


def test_a_question_beats_the_task(checkpoint):
    alone = prompts(checkpoint, "text", ("What?",))
    assert prompts(checkpoint, "table", ("What?",)) == alone


MARKUP = ("<doctag>", "</text>", "<loc_7>", "<fcel>", "<|det|>", "<section_header_level_2>")


def test_tags_of_the_page_are_text_and_those_of_the_conversation_are_not(checkpoint, tmp_path):
    path = shutil.copytree(checkpoint, tmp_path / "tags")
    data = json.loads((path / "tokenizer.json").read_text())
    first = max(token["id"] for token in data["added_tokens"]) + 1
    old = data["added_tokens"][0]
    for i, tag in enumerate((*MARKUP, "<|im_stop|>")):
        data["added_tokens"].append(old | {"id": first + i, "content": tag, "special": True})
    (path / "tokenizer.json").write_text(json.dumps(data))
    tokenizer = load_tokenizer(path)
    text = "<doctag>a</text><loc_7><fcel>b<|det|>c<section_header_level_2>"
    ids = [*tokenizer.encode(text), first + len(MARKUP)]
    assert len(ids) == len(MARKUP) + 4
    assert tokenizer.decode(ids) == text
    stream = tokenizer.stream()
    assert stream.push(ids) + stream.finish() == text
