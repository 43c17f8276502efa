"""Families that take pictures whole: pixels and positions of transformers, names of published
files, what is refused, and both commands that users run."""

import importlib
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from asking import write_page_checkpoint
from command_line import RealCli
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file
from tiny_checkpoints import (
    FACTS,
    Chunk,
    Prompt,
    load_reference,
    load_runner,
    make_batch,
    make_prompt,
    random_picture,
    reference_logits,
    write_checkpoint,
)
from untiled import UNTILED, dots_ocr, glm_ocr

from vlmcli.engine.config import ProcessorConfig
from vlmcli.engine.loader import check_weights, read_model_config
from vlmcli.engine.model_runner import ModelRunner
from vlmcli.engine.models.registry import find_family
from vlmcli.engine.positions import mrope_positions
from vlmcli.engine.preprocess import as_channels, normalise, patchify, resize
from vlmcli.engine.request import PlaceholderRange
from vlmcli.errors import ModelError
from vlmcli.memory.checkpoint_facts import facts_from_directory

WEIGHTS = "model.safetensors"
PROCESSORS = {
    "dots_ocr": ("qwen2_vl", "Qwen2VLImageProcessorPil", (6, 60)),
    "glm_ocr": ("glm46v", "Glm46VImageProcessorPil", (40, 160)),
    "paddleocr_vl": ("paddleocr_vl", "PaddleOCRVLImageProcessorPil", (28, 84)),
}
"""Module and class of transformers' processor, and limits in squares of 28 × 28 pixels that small
pictures reach; GLM-OCR counts those of two frames."""
MROPE = ["glm_ocr", "paddleocr_vl", "merge2_patch14", "qwen2_5_vl", "qwen3_vl"]


def their_processor(kind: str, **more):
    """The image processor of transformers, without torchvision."""
    module_name, class_name, _ = PROCESSORS[kind]
    module = importlib.import_module(
        f"transformers.models.{module_name}.image_processing_pil_{module_name}"
    )
    return getattr(module, class_name)(**more)


def processor_of(kind: str, path: Path, limits: dict) -> ProcessorConfig:
    """Our settings of a checkpoint whose preprocessor_config.json says `limits`."""
    write_checkpoint(path, kind)
    (path / "preprocessor_config.json").write_text(json.dumps(limits))
    return read_model_config(path).processor


@pytest.mark.check("pixels")
@pytest.mark.parametrize("kind", PROCESSORS)
def test_pixel_values_equal_transformers(kind, tmp_path):
    least, most = PROCESSORS[kind][2]
    size, merge = FACTS[kind]["patch_size"], FACTS[kind]["spatial_merge_size"]
    limits = {"size": {"shortest_edge": least * 784, "longest_edge": most * 784}}
    limits |= {"patch_size": size, "merge_size": merge}
    theirs = their_processor(kind, **limits)
    processor = processor_of(kind, tmp_path / "model", limits)
    measure = find_family(kind).geometry

    @settings(max_examples=25)
    @given(st.integers(9, 400), st.integers(9, 400), st.booleans())
    def check(width, height, grey):
        picture = random_picture(np.random.default_rng(width), height, width, grey=grey)
        place = measure(width, height, processor)
        resized = resize(picture, place.width, place.height, processor.resample)
        out = theirs(images=[as_channels(picture, 3)], return_tensors="np")
        assert tuple(out["image_grid_thw"][0]) == place.grid_thw
        order = merge if out["pixel_values"].ndim == 2 else 1
        ours = normalise(patchify(as_channels(resized, 3), size, order), processor)
        expected = out["pixel_values"].reshape(len(ours), 3, -1, size * size)
        for frame in range(expected.shape[2]):
            assert np.array_equal(ours, expected[:, :, frame].reshape(len(ours), -1))
        assert place.num_tokens == len(ours) // merge**2

    check()


@pytest.mark.parametrize("kind", PROCESSORS)
def test_limits_that_a_checkpoint_leaves_out_are_those_of_the_processor(kind, tmp_path):
    theirs = their_processor(kind)
    ours = processor_of(kind, tmp_path / "model", {})
    edges = ours.geometry.min_pixels, ours.geometry.max_pixels
    assert edges == (theirs.size["shortest_edge"], theirs.size["longest_edge"])
    assert ours.image_mean == tuple(theirs.image_mean)
    assert ours.resample == theirs.resample


@pytest.mark.check("m-rope")
@pytest.mark.parametrize("kind", MROPE)
def test_positions_of_frames_rows_and_columns(kind, tmp_path):
    """Grids whose three sides differ, with no more frames than rows or columns."""
    path = write_checkpoint(tmp_path, kind)
    reference, config = load_reference(path), read_model_config(path)
    merge = config.vision.merge_size
    grids = [(2, 3, 5), (3, 7, 2), (1, 1, 4), (4, 5, 6)]
    ids, types, places = [1, 2, 3], [0, 0, 0], []
    for grid in grids:
        length = int(np.prod(grid))
        places.append(PlaceholderRange(offset=len(ids), length=length, grid=grid))
        ids += [config.image_token_id] * length + [4, 5]
        types += [1] * length + [0, 0]
    patches = torch.tensor([(t, h * merge, w * merge) for t, h, w in grids])
    theirs, deltas = reference.model.get_rope_index(
        torch.tensor([ids]), torch.tensor([types]), image_grid_thw=patches
    )
    ours, delta = mrope_positions(len(ids), places)
    assert np.array_equal(ours, theirs[:, 0].numpy())
    assert delta == int(deltas)


def published_paddle(name: str) -> str:
    """A name of transformers 5 as the published file has it."""
    for new, old in (
        ("model.projector.", "mlp_AR."),
        ("model.visual.", "visual."),
        ("model.language_model.", "model."),
    ):
        if name.startswith(new):
            return old + name.removeprefix(new)
    return name


UNREAD = {
    "glm_ocr": (
        str,
        (
            "model.language_model.layers.3.eh_proj.weight",
            "model.language_model.layers.3.self_attn.q_proj.weight",
        ),
    ),
    "paddleocr_vl": (
        published_paddle,
        (
            "visual.vision_model.embeddings.packing_position_embedding.weight",
            "visual.vision_model.head.probe",
        ),
    ),
}
"""Names as published, and tensors there that the model does not use."""


def ask(runner: ModelRunner) -> tuple[Prompt, torch.Tensor]:
    """A prompt with a picture in it, and our logits."""
    picture = random_picture(np.random.default_rng(0), 28, 56, grey=False)
    prompt = make_prompt(runner, [1, picture, 3])
    chunk = Chunk(prompt, 0, len(prompt.ids), tuple(range(1, 9)))
    return prompt, runner.execute(make_batch(runner, [chunk]))


def logits_of(path: Path) -> torch.Tensor:
    return ask(load_runner(path))[1]


@pytest.mark.parametrize("kind", UNREAD)
def test_published_files_load(kind, tmp_path):
    path = write_checkpoint(tmp_path, kind)
    before = logits_of(path)
    rename, more = UNREAD[kind]
    weights = {rename(name): value for name, value in load_file(path / WEIGHTS).items()}
    save_file(weights | {name: torch.ones(2) for name in more}, path / WEIGHTS)
    assert torch.equal(logits_of(path), before)
    save_file(weights | {"visual.other.weight": torch.ones(2)}, path / WEIGHTS)
    with pytest.raises(ModelError, match=r"unexpected: visual\.other\.weight"):
        load_runner(path)


def test_heads_of_glm_ocr_that_turn_whole(tmp_path, monkeypatch):
    """The tiny checkpoint of the other tests turns three quarters of a head."""
    monkeypatch.setitem(UNTILED, "glm_ocr", partial(glm_ocr, partial=1.0))
    path = write_checkpoint(tmp_path, "glm_ocr")
    runner = load_runner(path)
    assert runner.model_config.text.rotary_dim == runner.model_config.text.head_dim
    prompt, ours = ask(runner)
    theirs = reference_logits(load_reference(path), runner, prompt)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


PUBLISHED_DOTS = (
    "lm_head.weight",
    "model.embed_tokens.weight",
    "model.norm.weight",
    "model.layers.{}.input_layernorm.weight",
    "model.layers.{}.post_attention_layernorm.weight",
    *(f"model.layers.{{}}.mlp.{part}_proj.weight" for part in ("down", "gate", "up")),
    *(f"model.layers.{{}}.self_attn.{part}_proj.weight" for part in "koqv"),
    *(f"model.layers.{{}}.self_attn.{part}_proj.bias" for part in "kqv"),
    "vision_tower.patch_embed.patchifier.proj.weight",
    "vision_tower.patch_embed.patchifier.proj.bias",
    "vision_tower.patch_embed.patchifier.norm.weight",
    *(f"vision_tower.blocks.{{}}.norm{i}.weight" for i in (1, 2)),
    *(f"vision_tower.blocks.{{}}.attn.{part}.weight" for part in ("qkv", "proj")),
    *(f"vision_tower.blocks.{{}}.mlp.fc{i}.weight" for i in (1, 2, 3)),
    "vision_tower.post_trunk_norm.weight",
    *(f"vision_tower.merger.ln_q.{part}" for part in ("weight", "bias")),
    *(f"vision_tower.merger.mlp.{i}.{part}" for i in (0, 2) for part in ("weight", "bias")),
)
"""Names in the published files, as vLLM's loader takes them."""


def test_names_of_the_published_dots_ocr(tmp_path):
    """The tiny checkpoint has them all and no others; vLLM also knows older ones of attention."""
    path = write_checkpoint(tmp_path, "dots_ocr")
    weights, before = load_file(path / WEIGHTS), logits_of(path)
    layers = {"model.": 3, "vision": 2}
    expected = {
        name.format(i)
        for name in PUBLISHED_DOTS
        for i in range(layers[name[:6]] if "{" in name else 1)
    }
    assert set(weights) == expected
    old = {".attn.qkv.": ".attn.qkv_proj.", ".attn.proj.": ".attn.out_proj."}
    renamed = {}
    for name, value in weights.items():
        for ours, theirs in old.items():
            name = name.replace(ours, theirs)
        renamed[name] = value
    save_file(renamed, path / WEIGHTS)
    assert torch.equal(logits_of(path), before)


@pytest.mark.parametrize("change", [{"post_norm": False}, {"use_bias": True}])
def test_switches_of_the_dots_ocr_tower(change, tmp_path, monkeypatch):
    """Published checkpoints have neither, the format knows both."""

    def switched(text, ids):
        make_model, config = dots_ocr(text, ids)
        config.vision_config |= change
        return make_model, config

    monkeypatch.setitem(UNTILED, "dots_ocr", switched)
    path = write_checkpoint(tmp_path, "dots_ocr")
    runner = load_runner(path)
    prompt, ours = ask(runner)
    theirs = reference_logits(load_reference(path), runner, prompt)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("kind", "part", "change", "named"),
    [
        ("dots_ocr", None, {"attention_bias": False}, "attention_bias"),
        ("dots_ocr", None, {"use_sliding_window": True}, "sliding"),
        ("dots_ocr", None, {"hidden_act": "gelu"}, "gelu"),
        ("dots_ocr", None, {"rope_scaling": {"type": "yarn"}, "rope_parameters": None}, "yarn"),
        ("dots_ocr", "vision_config", {"is_causal": True}, "is_causal"),
        ("dots_ocr", "vision_config", {"temporal_patch_size": 2}, "temporal_patch_size"),
        ("dots_ocr", "vision_config", {"embed_dim": "wide"}, "wide"),
        ("glm_ocr", "text_config", {"hidden_act": "gelu"}, "silu"),
        ("glm_ocr", "text_config", {"head_dim": 64}, "do not agree"),
        ("glm_ocr", "vision_config", {"hidden_act": "gelu"}, "gelu"),
        ("glm_ocr", "vision_config", {"out_hidden_size": None}, "bad value"),
        ("idefics2", "text_config", {"model_type": "qwen2"}, "qwen2"),
        ("idefics2", "text_config", {"hidden_act": "gelu"}, "gelu"),
        ("idefics2", "vision_config", {"hidden_act": "relu"}, "relu"),
        ("idefics2", "perceiver_config", {"resampler_depth": "deep"}, "deep"),
        ("paddleocr_vl", "text_config", {"use_bias": True}, "biases"),
        ("paddleocr_vl", "text_config", {"layer_types": ["sliding_attention"]}, "sliding"),
        ("paddleocr_vl", "text_config", {"hidden_act": "gelu"}, "gelu"),
        ("paddleocr_vl", "text_config", {"hidden_size": "wide"}, "wide"),
        ("paddleocr_vl", "vision_config", {"hidden_act": "relu"}, "relu"),
    ],
)
def test_configs_that_are_not_ours(kind, part, change, named, tmp_path):
    file = write_checkpoint(tmp_path, kind) / "config.json"
    config = json.loads(file.read_text())
    (config[part] if part else config).update(change)
    file.write_text(json.dumps(config))
    with pytest.raises(ModelError, match=named):
        read_model_config(tmp_path)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", sorted(UNTILED))
def test_a_plan_knows_the_shapes(kind, tied, tmp_path):
    """Parameters worked out from config.json are those in the file, all of which have a place."""
    path = write_checkpoint(tmp_path, kind, tied=tied)
    facts, config = facts_from_directory(path, "tiny"), read_model_config(path)
    assert facts.shape_parameters == facts.stored_parameters
    assert config.text.tie_word_embeddings == facts.decoder.tie_word_embeddings == tied
    assert check_weights(path) == len(load_file(path / WEIGHTS))
    assert facts.embedding_width == config.vision.embedding_size
    family = find_family(kind)
    for width, height in [(300, 200), (61, 400), (840, 1188)]:
        assert facts.measure(width, height) == family.geometry(width, height, config.processor)


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind == "idefics2" else pytest.param(kind, marks=pytest.mark.slow)
        for kind in sorted(UNTILED)
    ],
)
def test_read_and_planned_from_the_command_line(kind, tmp_path):
    path = write_page_checkpoint(tmp_path / "model", kind)
    pixels = random_picture(np.random.default_rng(0), 130, 170, grey=False)
    Image.fromarray(pixels).save(tmp_path / "page.png", dpi=(72, 72))
    vlmcli, args = RealCli(tmp_path), ("page.png", "--model", str(path))
    (record,) = vlmcli.records(*args, "--max-tokens", "6", "--threads", "1")
    assert (record["status"], record["tokens"]["output"]) in [("ok", 6), ("looped", 6)]
    place = find_family(kind).geometry(170, 130, read_model_config(path).processor)
    assert record["tokens"]["visual"] == place.num_tokens
    done = vlmcli("plan", *args, "--json")
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["visual_tokens"]["max"] >= place.num_tokens
