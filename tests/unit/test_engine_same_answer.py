"""The same tokens every way: alone or batched, cached, chunked, preempted, drafted, sampled."""

from engine_fakes import expected_tokens, fake_engine, make_request, picture
from hypothesis import given, settings
from hypothesis import strategies as st

from vlmcli.engine.request import DraftSource, Request

IMAGES = st.builds(picture, st.integers(0, 3), st.integers(1, 3), st.integers(1, 7))
PARTS = st.lists(st.one_of(st.integers(0, 3), IMAGES), min_size=1, max_size=10)


@st.composite
def request_lists(draw: st.DrawFn) -> list[Request]:
    prompts = draw(st.lists(PARTS, min_size=1, max_size=8))
    return [
        make_request(
            f"r{i}",
            parts,
            max_tokens=draw(st.integers(1, 20)),
            temperature=draw(st.sampled_from([0.0, 0.0, 0.7])),
            top_p=draw(st.sampled_from([1.0, 0.8])),
            seed=draw(st.integers(0, 3)),
            drafts=draw(DRAFTS),
        )
        for i, parts in enumerate(prompts)
    ]


DRAFTS = st.lists(
    st.builds(
        DraftSource,
        name=st.sampled_from(["text-layer", "near-duplicate"]),
        token_ids=st.lists(st.integers(0, 21), max_size=20).map(tuple),
        weight=st.floats(0, 1),
    ),
    max_size=2,
).map(tuple)

CONFIGS = st.fixed_dictionaries(
    {
        "pool_tokens": st.sampled_from([280, 400, 2000]),
        "block_size": st.sampled_from([1, 3, 4, 16]),
        "max_num_seqs": st.sampled_from([1, 3, 8]),
        "max_num_batched_tokens": st.sampled_from([8, 17, 200]),
        "max_encoder_tokens": st.sampled_from([1, 30, 200]),
        "encoder_cache_bytes": st.sampled_from([0, 100, 5000]),
        "vision_cache_bytes": st.sampled_from([0, 700, 5000]),
        "max_draft_tokens": st.sampled_from([0, 3, 16]),
        "enable_prefix_caching": st.booleans(),
        "enable_drafts": st.booleans(),
    }
)


@settings(max_examples=150, deadline=None)
@given(request_lists(), CONFIGS)
def test_every_configuration_gives_the_tokens_of_the_plain_model(
    requests: list[Request], config: dict[str, object]
) -> None:
    engine = fake_engine(**config)  # type: ignore[arg-type]
    outputs = engine.generate(requests)
    for request, output in zip(requests, outputs, strict=True):
        want = expected_tokens(request, seed=request.sampling.seed or 0)
        assert list(output.token_ids) == want
        assert len(output.logprobs) == len(want)
    engine.check_integrity()
    assert engine.stats()["blocks_used"] == 0
