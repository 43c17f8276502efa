"""Idefics2 beyond what all families are tested for: pixels, edges, positions, length of answers."""

import json
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_checkpoints import (
    Chunk,
    as_input,
    load_reference,
    load_runner,
    make_batch,
    make_prompt,
    random_picture,
    write_checkpoint,
)
from transformers import AutoConfig, AutoModelForImageTextToText
from transformers.models.idefics2.configuration_idefics2 import Idefics2VisionConfig
from transformers.models.idefics2.image_processing_pil_idefics2 import Idefics2ImageProcessorPil
from transformers.models.idefics2.modeling_idefics2 import Idefics2VisionEmbeddings
from untiled import idefics2_inputs

from vlmcli.engine.loader import read_model_config
from vlmcli.engine.models.idefics2 import geometry, parse_config
from vlmcli.engine.models.siglip import BucketPositions
from vlmcli.engine.preprocess import as_channels, fit, normalise, patchify
from vlmcli.errors import ModelError
from vlmcli.memory.checkpoint_facts import facts_from_directory
from vlmcli.memory.families import facts_from_config

PUBLISHED = {
    "model_type": "idefics2",
    "text_config": {"model_type": "mistral", "vocab_size": 32003, "rms_norm_eps": 1e-5},
    "vision_config": {
        "hidden_size": 1152,
        "image_size": 980,
        "intermediate_size": 4304,
        "num_attention_heads": 16,
        "num_hidden_layers": 27,
        "patch_size": 14,
    },
}
"""As short as the published config.json: what is left out takes the classes' defaults."""


@pytest.mark.check("pixels", family="idefics2")
@given(st.integers(9, 400), st.integers(9, 400), st.booleans())
def test_pixels_and_patches_equal_transformers(width, height, grey):
    settings = {"size": {"shortest_edge": 60, "longest_edge": 300}}
    config = parse_config(PUBLISHED, settings)
    picture = random_picture(np.random.default_rng(width), height, width, grey=grey)
    place = geometry(width, height, config.processor)
    ours = normalise(
        patchify(as_channels(fit(picture, place, config.processor), 3), 14, 1), config.processor
    )
    theirs = Idefics2ImageProcessorPil(**settings)
    out = theirs(images=[as_channels(picture, 3)], return_tensors="np")
    pixels, mask = out["pixel_values"][0, 0], out["pixel_attention_mask"][0, 0]
    assert pixels.shape[1:] == (place.height, place.width)
    _, rows, columns = place.grid_thw
    whole = pixels[:, : rows * 14, : columns * 14].reshape(3, rows, 14, columns, 14)
    assert np.array_equal(ours, whole.transpose(1, 3, 0, 2, 4).reshape(len(ours), -1))
    assert place.num_patches == (mask.shape[0] // 14) * (mask.shape[1] // 14) == len(ours)
    assert place.num_tokens == 64


def test_limits_that_a_checkpoint_leaves_out_are_those_of_the_processor():
    ours, theirs = parse_config(PUBLISHED, {}).processor, Idefics2ImageProcessorPil()
    edges = {
        "shortest_edge": ours.geometry.shortest_edge,
        "longest_edge": ours.geometry.longest_edge,
    }
    assert edges == dict(theirs.size)
    assert (ours.image_mean, ours.image_std) == (theirs.image_mean, theirs.image_std)
    assert ours.resample == theirs.resample


@given(st.integers(1, 80), st.integers(1, 80), st.sampled_from([1, 2, 7, 10, 16, 27, 64, 70]))
def test_positions_fall_into_the_same_buckets(rows, columns, side):
    """Corners on borders are where float32 decides; every count of patches has some."""
    theirs = Idefics2VisionEmbeddings(
        Idefics2VisionConfig(hidden_size=1, image_size=2 * side, patch_size=2)
    )
    ours = BucketPositions(side, 1)
    for weight in (theirs.position_embedding.weight, ours.weight):
        weight.data.copy_(torch.arange(side * side).view(-1, 1))
    theirs.patch_embedding.requires_grad_(False)
    theirs.patch_embedding.weight.zero_()
    theirs.patch_embedding.bias.zero_()
    with torch.no_grad():
        expected = theirs(
            torch.zeros(1, 3, 2 * rows, 2 * columns), torch.ones(1, rows, columns, dtype=torch.bool)
        )
    assert torch.equal(ours([(1, rows, columns)]), expected[0])


def test_every_picture_leaves_the_same_number_of_tokens(tmp_path):
    runner = load_runner(write_checkpoint(tmp_path, "idefics2"))
    rng = np.random.default_rng(0)
    sizes = [(14, 14), (98, 42), (14, 280), (98, 42)]
    images = [as_input(random_picture(rng, *size, grey=False)) for size in sizes]
    tokens = runner.encode(images)
    assert [len(piece) for piece in tokens] == [5] * 4
    assert not torch.allclose(tokens[1], tokens[3]), "equal sizes, unlike pictures"


def test_pixels_that_fill_no_patch_are_not_seen(tmp_path):
    path = write_checkpoint(tmp_path, "idefics2")
    reference, runner = load_reference(path), load_runner(path)
    rng = np.random.default_rng(4)
    whole = [random_picture(rng, *size, grey=False) for size in [(45, 70), (29, 100), (70, 43)]]
    cut = [p[: len(p) // 14 * 14, : p.shape[1] // 14 * 14] for p in whole]
    prompt = make_prompt(runner, [3, cut[0], 4, 5, cut[1], cut[2], 6])
    chunk = Chunk(prompt, 0, len(prompt.ids), tuple(range(1, 9)))
    ids = torch.tensor([prompt.ids])
    with torch.no_grad():
        theirs = reference(input_ids=ids, **idefics2_inputs(runner.model_config, ids, whole))
    ours = runner.execute(make_batch(runner, [chunk]))
    torch.testing.assert_close(ours, theirs.logits[0], atol=1e-5, rtol=0)


def test_splitting_is_refused_where_it_is_read_and_where_it_is_planned(tmp_path):
    path = write_checkpoint(tmp_path, "idefics2")
    (path / "preprocessor_config.json").write_text(json.dumps({"do_image_splitting": True}))
    for read in (read_model_config, lambda path: facts_from_directory(path, "tiny")):
        with pytest.raises(ModelError, match="do_image_splitting") as caught:
            read(path)
        assert "set it to false" in caught.value.remedy


@pytest.mark.parametrize(("window", "longest"), [(None, 512), (200, 200), (9000, 512)])
def test_answers_end_before_a_window_would_slide(window, longest, tmp_path):
    file = write_checkpoint(tmp_path, "idefics2") / "config.json"
    config = json.loads(file.read_text())
    config["text_config"]["sliding_window"] = window
    file.write_text(json.dumps(config))
    assert read_model_config(tmp_path).text.max_position_embeddings == longest


def test_what_a_published_file_leaves_out(tmp_path):
    """Defaults of both readers of config.json are those of the classes."""
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        theirs = AutoModelForImageTextToText.from_config(AutoConfig.for_model(**PUBLISHED))
    facts, config = facts_from_config("x", PUBLISHED, {}), parse_config(PUBLISHED, {})
    assert facts.num_parameters == sum(p.numel() for p in theirs.parameters())
    text, perceiver = theirs.config.text_config, theirs.config.perceiver_config
    assert config.text.num_kv_heads == facts.decoder.num_kv_heads == text.num_key_value_heads
    assert config.text.max_position_embeddings == text.sliding_window
    assert config.vision.resampler.num_kv_heads == perceiver.num_key_value_heads
    assert config.vision.resampler.norm_eps == perceiver.rms_norm_eps
    assert facts.measure(1240, 1754) == geometry(1240, 1754, config.processor)
