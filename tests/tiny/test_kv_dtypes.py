"""KV in other number formats: every way of running gives the same tokens, and bytes are what they
are said to be."""

import pytest
import torch
from asking import QUESTIONS, ask, pictures, write_page_checkpoint
from tiny_checkpoints import load_runner

from vlmcli.engine.config import EngineConfig
from vlmcli.engine.kv_cache import KVCache
from vlmcli.engine.pool import size_pool
from vlmcli.errors import WillNotFitError
from vlmcli.kernels.kv_store import dequantise, quantise

INT8 = {"vision_kv_dtype": "int8"}
WAYS = {
    "one seat": {"max_num_seqs": 1},
    "small steps": {"max_num_batched_tokens": 24},
    "no prefix": {"enable_prefix_caching": False},
    "no drafts": {"enable_drafts": False},
    "graphs": {"enable_graphs": True},
    "tight": {"kv_cache_bytes": 318_912, "vision_kv_bytes": 24_000},
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_page_checkpoint(tmp_path_factory.mktemp("model") / "tiny")


def tokens(checkpoint, **config):
    asked = ask(checkpoint, QUESTIONS, pictures(3), max_tokens=10, **config)
    return {prompt: output.token_ids for prompt, output in asked.outputs.items()}, asked.stats


@pytest.fixture(scope="module")
def expected(checkpoint):
    return tokens(checkpoint, **INT8)[0]


@pytest.mark.parametrize("way", WAYS)
def test_the_same_tokens_every_way(checkpoint, expected, way):
    found, stats = tokens(checkpoint, **INT8, **WAYS[way])
    assert found == expected
    assert (stats["preemptions"] > 0) == (way == "tight")


def test_rounding_is_all_that_int8_changes(checkpoint, monkeypatch):
    """All KV in int8 is what float32 KV is when every key and value is rounded before."""
    from vlmcli.kernels import reference

    rounded, _ = tokens(checkpoint, kv_dtype="int8")
    store = reference.store_kv

    def rounding(key, value, *rest):
        parts = [dequantise(*quantise(part), part.dtype) for part in (key, value)]
        store(*parts, *rest)

    monkeypatch.setattr(reference, "store_kv", rounding)
    assert tokens(checkpoint)[0] == rounded


def test_a_format_that_is_the_models_own_changes_nothing(checkpoint):
    plain, _ = tokens(checkpoint)
    assert tokens(checkpoint, kv_dtype="float32", vision_kv_dtype="float32")[0] == plain


@pytest.mark.parametrize("text", ["auto", "bfloat16", "int8"])
@pytest.mark.parametrize("vision", ["auto", "int8"])
def test_the_pool_is_as_large_as_its_blocks(checkpoint, text, vision):
    config = EngineConfig(block_size=8, kv_dtype=text, vision_kv_dtype=vision, num_threads=1)
    runner = load_runner(checkpoint, block_size=8, kv_dtype=text, vision_kv_dtype=vision)
    pool = size_pool(runner, config)
    runner.allocate_kv(pool.num_blocks, pool.num_vision_blocks)
    cache = runner.cache
    assert isinstance(cache, KVCache)
    assert cache.num_blocks == pool.num_blocks
    num_text = pool.num_blocks - pool.num_vision_blocks
    extra = 1 if pool.num_vision_blocks else 0
    assert (
        cache.nbytes
        == num_text * pool.block_bytes["text"]
        + (pool.num_vision_blocks + extra) * pool.block_bytes["vision"]
    )
    assert cache.nbytes <= config.kv_cache_bytes
    assert config.kv_cache_bytes - cache.nbytes < 2 * max(pool.block_bytes.values())
    assert (pool.num_vision_blocks > 0) == (vision == "int8" and text != "int8")


def test_int8_holds_more_than_three_times_the_image_in_the_same_bytes(checkpoint):
    runner = load_runner(checkpoint, block_size=8, **INT8)
    text = runner.model_config.text
    wide, narrow = runner.bytes_per_block("text"), runner.bytes_per_block("vision")
    per_head = text.head_dim
    assert narrow * (4 * per_head) == wide * (per_head + 4)
    assert wide > 3 * narrow


def test_pixels_of_text_blocks_are_untouched(checkpoint):
    """Blocks with a token that is not of an image stay in the model's own format."""
    runner = load_runner(checkpoint, block_size=8, num_blocks=4, **INT8)
    runner.allocate_kv(9, 4)
    assert runner.cache.keys.dtype == torch.float32 and runner.cache.key_scales is None
    assert runner.cache.vision.keys.dtype == torch.int8
    assert runner.cache.num_blocks == 9


def test_a_pool_without_room_for_images_is_refused(checkpoint):
    runner = load_runner(checkpoint, block_size=8, **INT8)
    with pytest.raises(WillNotFitError):
        size_pool(runner, EngineConfig(block_size=8, vision_kv_bytes=100, **INT8))
