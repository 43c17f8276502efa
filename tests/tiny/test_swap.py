"""Blocks that were copied out and back hold what they held, in every format."""

import pytest
from asking import QUESTIONS, ask, pictures, write_page_checkpoint

VISION = 24_000
BLOCK = 12_288
"""Of eight tokens in float32."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_page_checkpoint(tmp_path_factory.mktemp("model") / "tiny")


@pytest.mark.parametrize(
    "formats",
    [{}, {"vision_kv_dtype": "int8"}, {"kv_dtype": "bfloat16"}],
    ids=["plain", "image in int8", "bfloat16"],
)
def test_the_same_tokens_swapped_or_not(checkpoint, formats):
    config = {**formats, "enable_prefix_caching": False, "enable_drafts": False}
    block = BLOCK // 2 if "kv_dtype" in formats else BLOCK
    config |= {"vision_kv_bytes": VISION}
    tight = config | {"kv_cache_bytes": VISION + 34 * block}
    runs = {
        name: ask(checkpoint, QUESTIONS, pictures(2), max_tokens=24, **settings)
        for name, settings in (
            ("roomy", config | {"kv_cache_bytes": 16 << 20}),
            ("again", tight),
            ("copied", tight | {"swap_bytes": 16 << 20}),
        )
    }
    tokens = {
        name: {prompt: output.token_ids for prompt, output in run.outputs.items()}
        for name, run in runs.items()
    }
    assert len(tokens["roomy"]) == 6
    assert tokens["roomy"] == tokens["again"] == tokens["copied"]
    assert runs["again"].stats["preemptions"] > 0 == runs["again"].stats["swapped_out"]
    assert runs["copied"].stats["swapped_out"] == runs["copied"].stats["swapped_back"] > 0
    rows = {name: run.stats["decoder_rows"] for name, run in runs.items()}
    assert rows["copied"] == rows["roomy"] < rows["again"]
