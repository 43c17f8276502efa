"""The strict loader: every spelling of a checkpoint fills the same model, every fault is named."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_checkpoints import FACTS, Chunk, load_runner, make_batch, make_prompt, write_checkpoint

from vlmcli.engine.config import EngineConfig
from vlmcli.engine.loader import read_model_config
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.errors import ExitCode, ModelError

WEIGHTS = "model.safetensors"
ONE_FORM = {"dots_ocr", "glm_ocr", "idefics2", "lighton_ocr"}
"""Families whose config.json is always flat, or never was."""


@pytest.fixture
def path(tmp_path):
    return write_checkpoint(tmp_path / "model", "merge2_patch14")


def logits_of(path):
    runner = load_runner(path)
    prompt = make_prompt(runner, [1, 2, 3])
    return runner.execute(make_batch(runner, [Chunk(prompt, 0, 3, (1,))]))


def rewrite(path, change):
    """Replace the weights by `change(weights)`."""
    save_file(change(load_file(path / WEIGHTS)), path / WEIGHTS)


def fails(path):
    with pytest.raises(ModelError) as caught:
        ModelRunner.from_checkpoint(path, EngineConfig())
    assert caught.value.exit_code == ExitCode.MODEL
    return str(caught.value)


def without(name):
    return lambda weights: {key: value for key, value in weights.items() if key != name}


def renamed(rename):
    return lambda weights: {rename(key): value for key, value in weights.items()}


def plain_name(name):
    """The name as transformers 4 wrote it, whichever way this one writes."""
    return name.replace("model.visual.", "visual.").replace("model.language_model.", "model.")


def nested_name(name):
    """The name that transformers 5 uses in memory."""
    name = plain_name(name)
    if name.startswith("visual."):
        return f"model.{name}"
    return name.replace("model.", "model.language_model.", 1)


@pytest.mark.parametrize("rename", [plain_name, nested_name])
def test_names_of_both_transformers_generations(path, rename):
    before = logits_of(path)
    rewrite(path, renamed(rename))
    assert torch.equal(logits_of(path), before)


def test_shards(tmp_path):
    whole = write_checkpoint(tmp_path / "whole", "merge2_patch14")
    shards = write_checkpoint(tmp_path / "shards", "merge2_patch14", max_shard_size="100KB")
    assert (shards / "model.safetensors.index.json").is_file()
    assert torch.equal(logits_of(shards), logits_of(whole))
    next(shards.glob("model-00002*")).unlink()
    assert "model-00002" in fails(shards)


@pytest.mark.parametrize("kind", sorted(FACTS.keys() - ONE_FORM))
def test_flat_config_of_transformers_4(tmp_path, kind):
    path = write_checkpoint(tmp_path / "model", kind)
    before = logits_of(path)
    config = json.loads((path / "config.json").read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    flat = {**text, **config, "rope_theta": rope["rope_theta"]}
    flat["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    (path / "config.json").write_text(json.dumps(flat))
    assert torch.equal(logits_of(path), before)


def test_tied_head_ignores_a_stored_copy(tmp_path):
    path = write_checkpoint(tmp_path / "model", "merge2_patch14", tied=True)
    before = logits_of(path)
    embedding = next(k for k in load_file(path / WEIGHTS) if k.endswith("embed_tokens.weight"))
    rewrite(path, lambda w: {**w, "lm_head.weight": w[embedding].clone()})
    assert torch.equal(logits_of(path), before)


def test_a_head_of_its_own_counts_more_than_a_config_that_says_tied(tmp_path):
    path = write_checkpoint(tmp_path / "model", "merge2_patch14")
    before = logits_of(path)
    config = json.loads((path / "config.json").read_text())
    config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = True
    (path / "config.json").write_text(json.dumps(config))
    assert torch.equal(logits_of(path), before)


def test_half_precision_weights_run_in_float32(path):
    rewrite(path, lambda w: {key: value.half() for key, value in w.items()})
    runner = load_runner(path)
    assert runner.dtype == torch.float32
    assert logits_of(path).isfinite().all()


def test_missing_extra_and_misshaped_are_named_together(path):
    def change(weights):
        weights = without("lm_head.weight")(weights)
        norm = next(key for key in weights if key.endswith("layers.1.input_layernorm.weight"))
        weights[norm] = torch.ones(5)
        return {**weights, "model.layers.7.mlp.gate_proj.weight": torch.ones(2, 2)}

    rewrite(path, change)
    message = fails(path)
    assert "missing: lm_head.weight" in message
    assert "unexpected: model.layers.7.mlp.gate_proj.weight" in message
    assert "layers.1.input_layernorm.weight is [5], not [128]" in message


def test_one_tensor_under_two_names(path):
    name = next(key for key in load_file(path / WEIGHTS) if plain_name(key) == "model.norm.weight")
    other = nested_name(name) if nested_name(name) != name else plain_name(name)
    rewrite(path, lambda w: {**w, other: w[name].clone()})
    assert "model.norm.weight stands twice" in fails(path)


def test_quantised_weights_are_refused(path):
    rewrite(path, lambda w: {**w, "lm_head.weight": w["lm_head.weight"].to(torch.int8)})
    assert "lm_head.weight (I8)" in fails(path)


def test_broken_weight_file(path):
    (path / WEIGHTS).write_bytes(b"\x08\0\0\0\0\0\0\0not json")
    assert WEIGHTS in fails(path)


def test_no_weights(path):
    (path / WEIGHTS).unlink()
    assert "no weights" in fails(path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "mamba"}, "mamba"),
        ({"vision_config": None}, "vision_config"),
        ({"text_config": {"use_sliding_window": True}}, "sliding"),
        ({"text_config": {"rope_parameters": {"rope_type": "yarn"}}}, "yarn"),
        ({"text_config": {"hidden_act": "relu"}}, "relu"),
        ({"text_config": {"hidden_size": 120}}, "do not agree"),
        ({"text_config": {"vocab_size": "many"}}, "many"),
    ],
)
def test_configs_that_are_not_ours(path, change, named):
    config = json.loads((path / "config.json").read_text())
    for key, value in change.items():
        if isinstance(value, dict):
            config[key] = config[key] | value
        elif value is None:
            del config[key]
        else:
            config[key] = value
    (path / "config.json").write_text(json.dumps(config))
    assert named in fails(path)


def test_processor_settings_within_the_one_file_of_transformers_5(path):
    before = read_model_config(path)
    file = path / "preprocessor_config.json"
    nested = {
        "image_processor": json.loads(file.read_text()),
        "processor_class": "Qwen2VLProcessor",
    }
    (path / "processor_config.json").write_text(json.dumps(nested))
    file.unlink()
    assert read_model_config(path) == before
    assert before.processor.geometry.max_pixels == 28 * 28 * 64


@pytest.mark.parametrize("content", ["", "[1]", "{"])
def test_broken_config(path, content):
    (path / "config.json").write_text(content)
    assert "config.json" in fails(path)


def test_draft_head_must_fit(path):
    (path / "draft").mkdir()
    assert not load_runner(path).has_drafts
    head = {"draft_head.weight": torch.randn(6 * 97, 128), "draft_head.bias": torch.zeros(6 * 97)}
    save_file(head, path / "draft" / WEIGHTS)
    runner = load_runner(path)
    assert runner.has_drafts
    drafts = runner.draft([torch.randn(3, 128), torch.randn(1, 128)])
    assert [len(draft) for draft in drafts] == [18, 6]
    assert all(0 <= guess < 97 for draft in drafts for guess in draft)
    save_file({"draft_head.weight": torch.randn(6 * 97, 64)}, path / "draft" / WEIGHTS)
    assert "draft_head.bias" in fails(path)
