"""Checkpoints of families with tiles: strict names, shapes for plans, settings that are refused."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiled_checkpoints import KINDS, tiled_prompt, write_tiled_checkpoint
from tiny_checkpoints import Chunk, load_runner, make_batch

from vlmcli.engine.config import EngineConfig
from vlmcli.engine.loader import check_weights, read_model_config
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.errors import ModelError
from vlmcli.memory.checkpoint_facts import facts_from_directory

WEIGHTS = "model.safetensors"
kinds = pytest.mark.parametrize("kind", sorted(KINDS))


def logits_of(path):
    runner = load_runner(path)
    prompt = tiled_prompt(runner, [1, 2, 3])
    return runner.execute(make_batch(runner, [Chunk(prompt, 0, 3, (1,))]))


def rewrite(path, change):
    save_file(change(load_file(path / WEIGHTS)), path / WEIGHTS)


def change_config(path, *keys, **values):
    config = json.loads((path / "config.json").read_text())
    place = config
    for key in keys:
        place = place[key]
    place.update(values)
    (path / "config.json").write_text(json.dumps(config))


def fails(path):
    with pytest.raises(ModelError) as caught:
        ModelRunner.from_checkpoint(path, EngineConfig())
    return str(caught.value)


@kinds
def test_missing_and_unexpected_weights_are_named(tmp_path, kind):
    path = write_tiled_checkpoint(tmp_path, kind)
    name = next(key for key in load_file(path / WEIGHTS) if key.endswith(".1.mlp.fc1.bias"))
    extra = name.replace("fc1", "fc9")
    rewrite(path, lambda w: {(extra if key == name else key): v for key, v in w.items()})
    message = fails(path)
    assert "missing: visual.blocks.1.mlp.fc1.bias" in message
    assert "unexpected: visual.blocks.1.mlp.fc9.bias" in message


@kinds
def test_names_as_in_memory(tmp_path, kind):
    """transformers 5 names weights otherwise in memory than in the files that it writes."""
    path = write_tiled_checkpoint(tmp_path, kind)
    before = logits_of(path)
    model = KINDS[kind].make_model.from_pretrained(path)
    save_file({k: v.clone() for k, v in model.state_dict().items()}, path / WEIGHTS)
    assert torch.equal(logits_of(path), before)


def test_names_of_published_llava_onevision_weights(tmp_path):
    """transformers 4 had one level more in the tower, and kept the head behind it."""
    path = write_tiled_checkpoint(tmp_path, "llava_onevision")
    before = logits_of(path)
    head = {"vision_tower.head.probe": torch.ones(1, 1, 48)}
    rewrite(
        path,
        lambda w: {
            key.replace("vision_tower.", "vision_tower.vision_model."): value
            for key, value in (w | head).items()
        },
    )
    assert torch.equal(logits_of(path), before)


@kinds
def test_tied_head(tmp_path, kind):
    path = write_tiled_checkpoint(tmp_path, kind, tied=True)
    assert not any(key.endswith("lm_head.weight") for key in load_file(path / WEIGHTS))
    assert read_model_config(path).text.tie_word_embeddings
    assert logits_of(path).isfinite().all()


@kinds
@pytest.mark.parametrize("tied", [False, True])
def test_a_plan_counts_the_weights_that_there_are(tmp_path, kind, tied):
    path = write_tiled_checkpoint(tmp_path, kind, tied=tied)
    assert check_weights(path) > 40
    facts = facts_from_directory(path, "tiny")
    assert facts.shape_parameters == facts.stored_parameters


@pytest.mark.parametrize(
    ("kind", "keys", "values", "named"),
    [
        ("idefics3", ("vision_config",), {"hidden_act": "relu"}, "relu"),
        ("idefics3", ("text_config",), {"mlp_bias": True}, "biases"),
        ("llava_onevision", (), {"vision_feature_layer": -2}, "vision_feature_layer -2"),
        ("llava_onevision", ("vision_config",), {"image_size": 84}, "tower of 84"),
        ("llava_onevision", ("vision_config",), {"model_type": "clip_vision_model"}, "clip"),
        ("smolvlm", (), {"scale_factor": 4}, "cannot be merged by 4"),
        ("smolvlm", ("text_config",), {"rope_parameters": {"rope_type": "llama3"}}, "llama3"),
        ("internvl3", (), {"vision_feature_layer": -2}, "vision_feature_layer -2"),
        ("internvl3", (), {"projector_hidden_act": "relu"}, "relu"),
        ("internvl3", ("vision_config",), {"norm_type": "batch_norm"}, "batch_norm"),
        ("internvl3", ("vision_config",), {"image_size": [56, 84]}, "oblong"),
        ("internvl3", ("vision_config",), {"image_size": 84}, "tiles of 56 pixels"),
        ("internvl3", ("text_config",), {"model_type": "internlm2"}, "internlm2"),
        ("internvl3", ("text_config",), {"use_sliding_window": True}, "sliding"),
        ("internvl3", ("text_config",), {"rope_parameters": {"rope_type": "yarn"}}, "yarn"),
        ("internvl3", ("text_config",), {"vocab_size": "many"}, "many"),
    ],
)
def test_settings_that_are_not_covered(tmp_path, kind, keys, values, named):
    path = write_tiled_checkpoint(tmp_path, kind)
    change_config(path, *keys, **values)
    assert named in fails(path)
