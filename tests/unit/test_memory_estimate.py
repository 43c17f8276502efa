"""The terms of the memory model: known figures, units, and that more never takes less."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_cases import FACTS, facts

from vlmcli import repeats
from vlmcli.engine.geometry import SmartResizeConfig, qwen2_vl
from vlmcli.memory import estimate
from vlmcli.memory.estimate import MIB, Coefficients
from vlmcli.reuse import difference, recent

PLAIN = Coefficients()
QWEN = FACTS["qwen2.5-vl-7b"]


def test_kv_of_one_large_picture_is_126_mib_not_20_gb() -> None:
    """1344 x 1344 pixels: 9,216 patches, 2,304 merged tokens, 28 layers of 4 kv heads of 128."""
    geometry = qwen2_vl(1344, 1344, SmartResizeConfig(max_pixels=12_845_056))
    assert (geometry.num_patches, geometry.num_tokens) == (9216, 2304)
    assert estimate.kv_bytes_per_token(QWEN.decoder, "bfloat16") == 56 * 1024
    kv = estimate.kv_bytes(
        QWEN.decoder,
        vision_tokens=geometry.num_tokens,
        text_tokens=0,
        kv_dtype="bfloat16",
        vision_kv_dtype="bfloat16",
        block_size=16,
    )
    assert kv == 126 * MIB


def test_int8_kv_is_a_byte_and_a_scale_per_head() -> None:
    sixteen = estimate.kv_bytes_per_token(QWEN.decoder, "bfloat16")
    eight = estimate.kv_bytes_per_token(QWEN.decoder, "int8")
    assert eight == sixteen // 2 + 2 * 28 * 4 * 4
    assert sixteen / eight == pytest.approx(2 / (1 + 4 / 128))


@given(
    facts,
    st.integers(0, 5000),
    st.integers(1, 5000),
    st.sampled_from([1, 16, 32]),
    st.sampled_from(["float32", "bfloat16", "int8"]),
)
def test_blocks_cover_all_tokens_and_waste_less_than_three(
    model, vision: int, text: int, block: int, vision_dtype: str
) -> None:
    def kv(vision: int, text: int, size: int) -> int:
        return estimate.kv_bytes(
            model.decoder,
            vision_tokens=vision,
            text_tokens=text,
            kv_dtype="float32",
            vision_kv_dtype=vision_dtype,
            block_size=size,
        )

    exact = kv(vision, text, 1)
    widest = estimate.kv_bytes_per_token(model.decoder, "float32")
    assert exact <= kv(vision, text, block) <= exact + 3 * block * widest
    assert kv(vision, text, block) <= kv(vision, text + 1, block)
    if vision_dtype == "float32":  # else a block that fills up with vision tokens becomes cheaper
        assert kv(vision, text, block) <= kv(vision + 1, text, block)


@given(facts, st.integers(1, 60_000), st.integers(0, 1000))
def test_more_patches_never_take_less(model, patches: int, more: int) -> None:
    few = estimate.encoder_peak(model.towers, patches, "bfloat16", PLAIN)
    many = estimate.encoder_peak(model.towers, patches + more, "bfloat16", PLAIN)
    assert 0 < few <= many
    assert few < estimate.encoder_peak(model.towers, patches, "float32", PLAIN)


def test_encoder_peak_of_a_full_page_is_of_the_known_size() -> None:
    """44,500 patches at A4 and 300 dpi: 1.0 to 1.4 GB by the rule of 20 to 30 KB a patch."""
    peak = estimate.encoder_peak(QWEN.towers, 44_500, "bfloat16", PLAIN)
    assert 20_000 < peak / 44_500 < 30_000


@given(facts, st.integers(1, 4096), st.integers(1, 20_000), st.integers(1, 64))
def test_a_larger_step_never_takes_less(model, chunk: int, context: int, rows: int) -> None:
    def peak(chunk: int, context: int, rows: int) -> int:
        return estimate.prefill_peak(
            model.decoder,
            chunk_tokens=chunk,
            context_tokens=context,
            longest_context=context,
            logit_rows=rows,
            dtype="bfloat16",
            device="cuda",
            coefficients=PLAIN,
        )

    least = peak(chunk, context, rows)
    assert least <= min(peak(chunk + 9, context, rows), peak(chunk, context + 9, rows))
    assert peak(chunk, context, rows + 1) - least == pytest.approx(
        model.decoder.vocab_size * 4 * estimate.LOGIT_COPIES, abs=1
    )


def test_factors_of_a_calibration_scale_their_terms() -> None:
    twice = replace(PLAIN, encoder_factor=2.0)
    once = estimate.encoder_peak(QWEN.towers, 1000, "float32", PLAIN)
    assert estimate.encoder_peak(QWEN.towers, 1000, "float32", twice) == 2 * once
    probes = ((100, 250), (300, 650))
    assert estimate.fit_two_points(*probes) == estimate.fit_two_points(*probes[::-1]) == (2.0, 50)
    assert estimate.calibrated(PLAIN, encoder=probes).encoder_factor == 2.0
    assert estimate.calibrated(PLAIN, prefill=probes, main_bytes=7).main_bytes == 7
    with pytest.raises(ValueError, match="two probes"):
        estimate.fit_two_points((5, 1), (5, 2))


def test_weights_of_seven_billion_parameters() -> None:
    assert estimate.weights(QWEN.num_parameters, "bfloat16") / 2**30 == pytest.approx(
        15.45, abs=0.01
    )


@given(
    st.lists(st.integers(1, 30_000_000), max_size=600),
    st.integers(0, 1 << 34),
    st.booleans(),
    st.booleans(),
)
def test_reuse_takes_no_more_than_is_left_and_no_more_than_it_keeps(
    pages, spare: int, compares: bool, keeps: bool
) -> None:
    room = estimate.reuse_room(pages, spare, compares=compares, keeps=keeps)
    assert 0 <= room <= spare
    assert estimate.reuse_room(pages, 0, compares=compares, keeps=keeps) == 0
    assert estimate.reuse_room(pages, spare, compares=False, keeps=False) == 0
    most = estimate.MOST_SKETCHES + estimate.COMPARE_BYTES + estimate.STORE_BYTES
    assert room <= most
    more = estimate.reuse_room([*pages, 10**6], spare, compares=compares, keeps=keeps)
    assert room <= more <= most


def test_the_bounds_of_reuse_are_those_that_it_keeps_to() -> None:
    assert estimate.MOST_SKETCHES == recent.DEFAULT_MAX_BYTES
    assert difference.compare_bytes(0) == estimate.COMPARE_BYTES
    assert estimate.STORE_ROOM == repeats._STORE_ROOM
