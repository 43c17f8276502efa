"""Bucketed batches of pictures: the same tokens as without buckets, whatever padding holds."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pictures_kit import inputs_of, poison
from tiled_checkpoints import KINDS, write_tiled_checkpoint
from tiny_checkpoints import load_runner, write_checkpoint

from vlmcli.checkpoint import built_in_path
from vlmcli.engine.buckets import ENCODER_TOKENS, encoder_buckets, segments_for
from vlmcli.engine.capture import EagerCapturer
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.encoder_graph import EncoderGraphs
from vlmcli.engine.models.tower_inputs import StaticTower
from vlmcli.engine.preprocess import pack
from vlmcli.memory import graphs
from vlmcli.memory.checkpoint_facts import facts_from_directory
from vlmcli.memory.demand import measure_pages
from vlmcli.memory.graphs import encoder_graph_tokens, graph_pool
from vlmcli.memory.presets import require_preset
from vlmcli.memory.settings import PlanSettings

CROPS = ("merge2_patch14", "qwen2_5_vl", "qwen3_vl", "glm_ocr", "paddleocr_vl", "dots_ocr")
"""Families whose pictures have any size; LightOnOCR beside them drops odd rows and columns."""
SIZES = [(28, 56), (84, 28), (56, 112), (28, 196), (56, 56)]


def load(path, **config):
    settings = {"encoder_graph_tokens": 32, "encoder_graph_step": 8, "enable_graphs": True}
    return load_runner(path, **settings | config)


def watched(runner, monkeypatch):
    """Patches of the batches that went through a bucket, and those that did not."""
    taken, eager = [], []
    run, encode = runner.encoder_graphs.run, runner.model.encode

    def through_bucket(patches, grids):
        tokens = run(patches, grids)
        if tokens is not None:
            taken.append(len(patches))
        return tokens

    def plainly(patches, grids):
        eager.append(len(patches))
        return encode(patches, grids)

    monkeypatch.setattr(runner.encoder_graphs, "run", through_bucket)
    monkeypatch.setattr(runner.model, "encode", plainly)
    return taken, eager


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [*CROPS, "lighton_ocr"])
def test_buckets_change_nothing_whatever_padding_holds(kind, tmp_path, monkeypatch):
    path = write_checkpoint(tmp_path, kind)
    plain, bucketed = load_runner(path), load(path)
    assert plain.encoder_graphs is None
    sizes = [*SIZES, (42, 70)] if kind == "lighton_ocr" else SIZES
    images = inputs_of(sizes)
    expected = plain.encode(images)
    taken, eager = watched(bucketed, monkeypatch)
    for i in (len(images), 1, 3, 2):
        poison(bucketed.encoder_graphs)
        assert_same(bucketed.encode(images[:i]), expected[:i])
    assert len(taken) == 4 and not eager


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_tiles_in_buckets_change_nothing(kind, tmp_path, monkeypatch):
    path = write_tiled_checkpoint(tmp_path, kind)
    plain, bucketed = load_runner(path), load(path, encoder_graph_tokens=64)
    vision = plain.model_config.vision
    side = vision.tile_side * vision.patch_size
    tokens = int(np.prod(vision.token_grid((1, vision.tile_side, vision.tile_side))))
    buckets = bucketed.encoder_graphs.buckets
    assert buckets and all(bucket.num_tokens % tokens == 0 for bucket in buckets)
    largest = buckets[-1].num_tokens // tokens
    images = inputs_of([(side, side)] * (largest + 1))
    expected = plain.encode(images)
    taken, eager = watched(bucketed, monkeypatch)
    poison(bucketed.encoder_graphs)
    assert_same(bucketed.encode(images[:largest]), expected[:largest])
    assert_same(bucketed.encode(images[:1]), expected[:1])
    assert len(taken) == 2 and not eager
    assert_same(bucketed.encode(images), expected)
    assert len(taken) == 2 and eager == [(largest + 1) * vision.tile_side**2]


def test_only_small_batches_of_the_expected_kind_take_buckets(tmp_path, monkeypatch):
    path = write_checkpoint(tmp_path, "merge2_patch14")
    colour, grey = load(path), load(path, grey_pictures=True)
    for runner, is_grey in ((colour, False), (grey, True)):
        taken, eager = watched(runner, monkeypatch)
        runner.encode(inputs_of([(28, 56)], grey=is_grey))
        assert (taken, eager) == ([8], [])
        runner.encode(inputs_of([(28, 56)], grey=not is_grey))
        runner.encode(inputs_of([(28, 28 * 33)], grey=is_grey))
        runner.encode(inputs_of([(28, 28)] * 14, grey=is_grey))
        assert (taken, eager) == ([8, 56], [8, 132]), "another kind, then one too large"


def test_more_pictures_than_there_is_room_for_run_eagerly(tmp_path, monkeypatch):
    runner = load(write_checkpoint(tmp_path, "merge2_patch14"), encoder_graph_step=None)
    taken, eager = watched(runner, monkeypatch)
    many = segments_for(32) + 1
    images = inputs_of([(28, 28)] * many)
    plain = [runner.encode([image])[0] for image in images]
    assert len(taken) == many
    assert_same(runner.encode(images), plain)
    assert eager == [4 * many]


def test_what_was_returned_stays_when_the_graph_runs_again(tmp_path):
    runner = load(write_checkpoint(tmp_path, "merge2_patch14"))
    (first,) = runner.encode(inputs_of([(28, 56)]))
    kept = first.clone()
    runner.encode(inputs_of([(28, 56)], seed=4))
    assert torch.equal(first, kept)


@pytest.mark.parametrize("through_buckets", [True, False])
def test_on_a_cpu_images_that_were_begun_are_there(through_buckets, tmp_path):
    """The way is that of a GPU, where a stream of its own may still be computing them."""
    path = write_checkpoint(tmp_path, "merge2_patch14")
    runner = load(path, enable_graphs=through_buckets)
    images = inputs_of(SIZES)
    pending = runner.encode_ahead(images)
    assert pending.is_done() and not runner.encodes_beside
    assert_same(pending.wait(), runner.encode(images))


def test_a_family_whose_work_is_no_function_of_shapes_runs_as_before(tmp_path):
    runner = load(write_checkpoint(tmp_path, "idefics2"))
    assert not isinstance(runner.model.visual, StaticTower)
    assert runner.encoder_graphs is None and runner.graphs is not None


class Scarce(EagerCapturer):
    """Every graph takes 100 bytes a visual token that it is the largest of; 24 are too many."""

    def __init__(self):
        self.tokens, self.refused = [], []

    def capture(self, step, *, warm_up):
        assert warm_up
        (bucket,) = step.args
        if bucket.num_tokens == 24:
            self.refused.append(bucket.num_tokens)
            raise torch.OutOfMemoryError("none left")
        self.tokens.append(bucket.num_tokens)
        return super().capture(step, warm_up=warm_up)

    def num_bytes(self):
        return 100 * self.tokens[-1]


@torch.inference_mode()
def test_graphs_are_captured_largest_first_and_dropped_where_they_do_not_fit(tmp_path, caplog):
    runner = load_runner(write_checkpoint(tmp_path, "merge2_patch14"))
    capturer = Scarce()
    found = EncoderGraphs(
        runner.model.visual,
        runner.model_config.vision,
        runner.ops,
        capturer,
        (8, 16, 24, 32),
        3 * 14 * 14,
    )
    with caplog.at_level(logging.WARNING):
        found.capture(1700)
    assert capturer.tokens == [32, 16, 8] and capturer.refused == [24]
    assert [bucket.num_tokens for bucket in found.buckets] == [8, 16]
    assert [str(record.args[0]) for record in caplog.records] == [
        "32 visual tokens",
        "24 visual tokens",
    ]
    (image,) = inputs_of([(28, 56)])
    tokens = found.run(*pack([image.pixels], runner.model_config.processor))
    assert_same([tokens], runner.encode([image]))


def graphs_planned(facts):
    """A job on a GPU, whatever its pages."""
    return measure_pages([], facts, PlanSettings(device="cuda"))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_plan_has_the_buckets_of_the_engine(kind, tmp_path):
    path = write_tiled_checkpoint(tmp_path, kind)
    job = graphs_planned(facts_from_directory(path, "tiny"))
    most = encoder_graph_tokens(job)
    buckets = load(path, encoder_graph_tokens=most, encoder_graph_step=None).encoder_graphs.buckets
    unit_tokens, unit_patches = graphs._unit(job)
    planned = encoder_buckets(most, None, unit_tokens)
    assert [bucket.num_tokens for bucket in buckets] == list(planned)
    assert [b.num_patches for b in buckets] == [n * unit_patches // unit_tokens for n in planned]


def test_who_has_graphs_of_pictures_in_a_plan(monkeypatch):
    """Readers of lines and of tiles; their plan has room for what the graphs of decoding lack."""
    lines = graphs_planned(facts_from_directory(built_in_path(), "nano"))
    pages = graphs_planned(require_preset("qwen2.5-vl-7b"))
    tiles = graphs_planned(require_preset("internvl3-8b"))
    assert [encoder_graph_tokens(job) for job in (lines, pages, tiles)] == [512, 0, 512]
    cpu = replace(lines, settings=PlanSettings(device="cpu"))
    assert encoder_graph_tokens(cpu) == graph_pool(cpu, 8) == 0
    with_pictures = [graph_pool(job, 8) for job in (lines, tiles)]
    monkeypatch.setattr(graphs, "encoder_graph_tokens", lambda job: 0)
    for job, pool in zip((lines, tiles), with_pictures, strict=True):
        layers = sum(tower.num_layers for tower in job.model.towers)
        assert pool > graph_pool(job, 8) + layers * job.weigh.graph_layer_bytes


@given(st.integers(0, 5000), st.one_of(st.none(), st.integers(1, 600)), st.integers(1, 1000))
def test_buckets_are_whole_tiles_and_reach_what_was_asked_for(most, step, unit):
    buckets = encoder_buckets(most, step, unit)
    assert list(buckets) == sorted(set(buckets))
    assert all(size % unit == 0 for size in buckets)
    assert bool(buckets) == (most > 0)
    if most:
        assert buckets[-1] == max(1, most // unit) * unit


def test_buckets_by_steps_of_256():
    assert encoder_buckets(1024, 256) == (256, 512, 768, 1024)
    assert encoder_buckets(ENCODER_TOKENS, None) == (64, 128, 256, 512)
    with pytest.raises(ValueError, match="too small"):
        EngineConfig(encoder_graph_step=0)
