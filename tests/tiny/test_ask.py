"""Several questions per page over one picture: the same tokens as one by one, and one encoding."""

import pytest
from asking import QUESTIONS, Asked, ask, pictures, write_page_checkpoint

from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.errors import UsageError
from vlmcli.readers.guard import Guard
from vlmcli.readers.pages import PageReader

BLOCK = 8
VARIANTS = {
    "together": {},
    "one seat": {"max_num_seqs": 1},
    "small steps": {"max_num_batched_tokens": 24},
    "no vision cache": {"vision_cache_bytes": 0},
    "no prefix": {"enable_prefix_caching": False},
    "no drafts": {"enable_drafts": False},
}


@pytest.fixture(scope="module", params=["merge2_patch14", "merge4_patch7"])
def checkpoint(request, tmp_path_factory):
    return write_page_checkpoint(tmp_path_factory.mktemp("model") / "tiny", request.param)


@pytest.fixture(scope="module")
def one_by_one(checkpoint) -> list[Asked]:
    """Every question in a job of its own."""
    return [ask(checkpoint, (question,), pictures(3)) for question in QUESTIONS]


@pytest.mark.parametrize("variant", VARIANTS)
def test_together_as_one_by_one(checkpoint, one_by_one, variant):
    together = ask(checkpoint, QUESTIONS, pictures(3), **VARIANTS[variant])
    alone = {prompt: output for asked in one_by_one for prompt, output in asked.outputs.items()}
    assert len(alone) == 9
    assert {p: o.token_ids for p, o in together.outputs.items()} == {
        p: o.token_ids for p, o in alone.items()
    }
    assert len({o.token_ids for o in alone.values()}) > 4, "the questions make no difference"
    for key, reading in together.readings.items():
        singles = [asked.readings[key] for asked in one_by_one]
        assert reading.answers == tuple(single.answers[0] for single in singles)
        assert [answer.question for answer in reading.answers] == list(QUESTIONS)
        assert reading.tokens.visual == singles[0].tokens.visual
        assert reading.tokens.output == sum(single.tokens.output for single in singles)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "no prefix"])
def test_a_page_is_encoded_once_and_its_tokens_are_computed_once(checkpoint, variant):
    asked = ask(checkpoint, QUESTIONS, pictures(3), **VARIANTS[variant])
    assert len(asked.encoded) == len(set(asked.encoded)) == 3
    by_page: dict[bytes, list[int]] = {}
    ends: dict[bytes, int] = {}
    for prompt, output in asked.outputs.items():
        picture, place = asked.places[prompt]
        by_page.setdefault(picture, []).append(output.num_cached_tokens)
        ends[picture] = place.end
        assert place.offset > 2 * BLOCK and place.length > BLOCK
    for picture, cached in by_page.items():
        first, *others = sorted(cached)
        assert first < ends[picture] - BLOCK, "somebody had to compute it"
        # All whole blocks up to the end of the picture; what is left over is less than one.
        assert others == [ends[picture] // BLOCK * BLOCK] * 2


def test_without_sharing_every_question_pays(checkpoint):
    asked = ask(checkpoint, QUESTIONS, pictures(2), enable_prefix_caching=False)
    assert {output.num_cached_tokens for output in asked.outputs.values()} == {0}


def test_a_mark_of_a_picture_is_no_question(checkpoint):
    engine = Engine.from_checkpoint(checkpoint, EngineConfig(num_threads=1))
    questions = ("What?", "What is in <|image_pad|>?")
    with pytest.raises(UsageError, match="mark of a picture"):
        PageReader(Guard(engine, retries=0), max_tokens=None, questions=questions)
