"""The CTC draft head: it follows its definition, alone or among others, and loads strictly."""

import json

import pytest
import torch
from draft_checkpoints import (
    BLANK,
    DRAFT_END,
    HEAD,
    REACH,
    STEPS,
    VOCABULARY,
    WIDTH,
    plain_draft,
    random_head,
    write_draft_checkpoint,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny_checkpoints import load_runner

from vlmcli.engine.config import DraftHeadConfig, EngineConfig
from vlmcli.engine.layers import iter_slots
from vlmcli.engine.loader import read_model_config
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.engine.models.draft_head import CtcHead
from vlmcli.errors import ModelError

HIDDEN = 24
DRAFT_FILE = "draft/model.safetensors"


def make_head(weights, steps=STEPS, reach=REACH):
    config = DraftHeadConfig(
        steps=steps,
        width=WIDTH,
        reach=reach,
        prompt_length=0,
        pad_token_id=BLANK,
        draft_end_token_id=DRAFT_END,
    )
    head = CtcHead(HIDDEN, VOCABULARY, config)
    slots = dict(iter_slots(torch.nn.ModuleDict({"draft_head": head})))
    assert slots.keys() == weights.keys()
    for name, slot in slots.items():
        assert slot.shape == tuple(weights[name].shape)
        slot.fill(weights[name])
    return head


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 99))
def test_a_batch_says_what_each_line_says_alone(lengths, seed):
    weights = random_head(HIDDEN, seed)
    pieces = [torch.randn(length, HIDDEN) for length in lengths]
    drafts = make_head(weights).guess(torch.cat(pieces), lengths)
    assert [list(draft) for draft in drafts] == [plain_draft(weights, piece) for piece in pieces]


def scripted(*paths):
    """A head whose steps say exactly these ids, and what it makes of them, line by line.

    `fc1` looks a token's steps up, the convolution says nothing, and `fc2` tells the ids apart.
    """
    ids = sorted({token for path in paths for token in path})
    weights = {name: torch.zeros_like(value) for name, value in random_head(HIDDEN, 0).items()}
    weights["draft_head.fc2.weight"][ids, range(len(ids))] = 1.0
    tokens = [path[i : i + STEPS] for path in paths for i in range(0, len(path), STEPS)]
    assert len(tokens) <= HIDDEN and len(ids) <= WIDTH
    fc1 = weights["draft_head.fc1.weight"].view(STEPS, WIDTH, HIDDEN)
    for column, token in enumerate(tokens):
        for step, value in enumerate(token):
            fc1[step, ids.index(value), column] = 9.0
    lengths = [len(path) // STEPS for path in paths]
    return make_head(weights).guess(torch.eye(HIDDEN)[: len(tokens)], lengths)


def test_repeats_merge_blanks_part_and_special_ids_fall_out():
    b = BLANK
    assert scripted([7, 7, 7, b, 7], [b, b, b, b, b], [7, 262, 7, 0, 0]) == [(7, 7), (), (7, 7, 0)]


def test_a_letter_over_the_border_of_two_tokens_is_one_and_over_that_of_two_lines_two():
    assert scripted([1, 2, 3, 4, 5, 5, 6, 6, 6, 8]) == [(1, 2, 3, 4, 5, 6, 8)]
    assert scripted([1, 2, 3, 4, 5], [5, 6, 6, 6, 8]) == [(1, 2, 3, 4, 5), (5, 6, 8)]


@pytest.fixture
def path(tmp_path):
    return write_draft_checkpoint(tmp_path / "model")


def fails(path):
    with pytest.raises(ModelError) as caught:
        ModelRunner.from_checkpoint(path, EngineConfig())
    return str(caught.value)


def test_config_says_whether_the_draft_is_part_of_the_prompt(tmp_path):
    config = read_model_config(write_draft_checkpoint(tmp_path / "in", prompt_length=4))
    assert config.num_draft_tokens == 5
    head = config.draft_head
    assert head.in_prompt(b"ab") == [97, 98, BLANK, BLANK, DRAFT_END]
    assert head.in_prompt(b"abcdef") == [97, 98, 99, 100, DRAFT_END]
    for change in ({"prompt_length": 0}, {"in_prompt": False}):
        path = write_draft_checkpoint(tmp_path / next(iter(change)), **change)
        assert read_model_config(path).num_draft_tokens == 0
    assert load_runner(path).has_drafts


def test_without_the_promised_head(path):
    (path / DRAFT_FILE).unlink()
    assert DRAFT_FILE in fails(path)


@pytest.mark.parametrize("name", ["fc1.bias", "conv.weight", "fc2.weight"])
def test_a_head_that_does_not_fit(path, name):
    weights = load_file(path / DRAFT_FILE)
    whole = weights.pop(f"draft_head.{name}")
    save_file(weights, path / DRAFT_FILE)
    assert f"missing: draft_head.{name}" in fails(path)
    save_file({**weights, f"draft_head.{name}": whole[1:].clone()}, path / DRAFT_FILE)
    assert f"draft_head.{name} is" in fails(path)
    save_file({**weights, f"draft_head.{name}": whole, "more": whole.clone()}, path / DRAFT_FILE)
    assert "unexpected: more" in fails(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "medusa"}, "'medusa' is not supported"),
        ({"steps": 0}, "out of range"),
        ({"reach": -1}, "out of range"),
        ({"prompt_length": -1}, "out of range"),
        ({"width": "wide"}, "bad value"),
        ({"blank_token_id": 32}, "out of range"),
        ({"draft_end_token_id": None}, "bad value"),
    ],
)
def test_bad_entries_of_config_json(tmp_path, change, words):
    path = write_draft_checkpoint(tmp_path / "model", **change)
    assert words in fails(path)


@pytest.mark.parametrize("key", sorted(HEAD))
def test_missing_entries_of_config_json(path, key):
    config = json.loads((path / "config.json").read_text())
    del config["draft_head"][key]
    (path / "config.json").write_text(json.dumps(config))
    assert key in fails(path)
