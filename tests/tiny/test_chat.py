"""Chats with a page-reading checkpoint: the page reader's tokens, in pieces; refusals."""

from contextlib import nullcontext

import pytest
from asking import QUESTIONS, ask, pictures, write_page_checkpoint
from tiled_checkpoints import KINDS as TILED
from tiled_checkpoints import write_tiled_checkpoint

from vlmcli.chat import Chat, PicturePart, Sampling, Turn
from vlmcli.documents.prepared import PreparedPage
from vlmcli.engine.config import EngineConfig
from vlmcli.engine.engine import Engine
from vlmcli.engine.models.chatml import ChatML
from vlmcli.engine.models.registry import find_family, native_families
from vlmcli.engine.request import Request
from vlmcli.errors import PageError, UsageError
from vlmcli.readers.chat import ChatReader, cut_at, held_back
from vlmcli.readers.pages import page_requests, prompt_ending

TOKENS = 12


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_page_checkpoint(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def reader(checkpoint):
    config = EngineConfig(block_size=8, max_num_seqs=16, num_threads=1)
    return ChatReader(Engine.from_checkpoint(checkpoint, config))


def page(picture) -> PreparedPage:
    height, width = picture.shape[:2]
    return PreparedPage(
        number=1,
        width=width,
        height=height,
        dpi=None,
        downscaled=False,
        outcome="read",
        picture=picture,
    )


def chat(*parts, **sampling) -> Chat:
    turn = Turn(role="user", parts=parts)
    return Chat(turns=(turn,), sampling=Sampling(**{"max_tokens": TOKENS, **sampling}))


def answers(reader, *asked) -> dict[int, list]:
    """What comes back for chats with their pictures, piece by piece."""
    for key, (one, shown) in enumerate(asked):
        reader.submit(key, one, [page(picture) for picture in shown])
    found: dict[int, list] = {key: [] for key in range(len(asked))}
    while reader.has_work():
        for progress in reader.step():
            found[progress.key].append(progress)
        reader._engine.check_integrity()
    return found


def text_of(pieces) -> str:
    assert [piece.is_over for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    return "".join(piece.text for piece in pieces)


def test_a_chat_about_a_picture_is_answered_as_the_page_reader_does(checkpoint, reader):
    shown = pictures(3)
    asked = ask(checkpoint, QUESTIONS, shown, max_tokens=TOKENS)
    chats = [
        (chat(PicturePart(0), question), [picture]) for picture in shown for question in QUESTIONS
    ]
    found = answers(reader, *chats)
    for number, pieces in found.items():
        page_number, question = divmod(number, len(QUESTIONS))
        expected = asked.readings[page_number].answers[question].text
        assert text_of(pieces).strip() == expected
        assert pieces[-1].usage.prompt > 0 < pieces[-1].usage.completion <= TOKENS
    assert len({text_of(pieces) for pieces in found.values()}) > 4


@pytest.mark.parametrize("family", native_families())
def test_the_format_of_one_question_is_what_the_turns_add_up_to(family):
    found = find_family(family)
    for chat_format in (found.chat, *found.chats_by_token.values()):
        form = ChatML.find(chat_format)
        one = chat_format.before + chat_format.after.format(question="Q")
        assert (form is None) == (f"{ChatML.CLOSING}<|im_start|>assistant\n" not in one)
        if form is not None:
            parts = (form.system, form.opening("user"), *form.picture, "Q", form.CLOSING)
            assert one == "".join(parts) + form.opening("assistant")


@pytest.fixture(scope="module", params=[*TILED, "glm_ocr", "idefics2", "paddleocr_vl"])
def any_engine(request, tmp_path_factory):
    """Of families with tiles, with other marks of turns, and with both."""
    path = tmp_path_factory.mktemp("model") / request.param
    if request.param in TILED:
        write_tiled_checkpoint(path, request.param)
    else:
        write_page_checkpoint(path, request.param)
    return Engine.from_checkpoint(path, EngineConfig(block_size=8, num_threads=1))


def test_every_family_is_asked_as_the_page_reader_asks_it(any_engine, monkeypatch):
    (picture,) = pictures(1)
    (build,) = page_requests(
        any_engine, picture, [prompt_ending(any_engine, QUESTIONS[0])], max_tokens=4
    )
    page_reader = build("1", 0.0, 0)
    asked: list[Request] = []
    monkeypatch.setattr(any_engine, "add_request", asked.append)
    one = chat(PicturePart(0), QUESTIONS[0])
    ChatReader(any_engine).submit(1, one, [page(picture)])
    assert asked[0].prompt_token_ids == page_reader.prompt_token_ids
    assert asked[0].placeholders == page_reader.placeholders
    assert [i.mm_hash for i in asked[0].images] == [i.mm_hash for i in page_reader.images]


def test_without_marks_of_turns_one_question_about_one_picture_is_all(any_engine):
    reader = ChatReader(any_engine)
    question = Turn(role="user", parts=(PicturePart(0), "What?"))
    others = [
        (Turn(role="user", parts=("No picture.",)),),
        (Turn(role="user", parts=(PicturePart(0), "And", PicturePart(1))),),
        (Turn(role="system", parts=("Be brief.",)), question),
        (question, Turn(role="assistant", parts=("This.",)), question),
    ]
    is_chatml = ChatML.find(reader._format) is not None
    for turns in others:
        asked = Chat(turns=turns, sampling=Sampling(max_tokens=4))
        with nullcontext() if is_chatml else pytest.raises(UsageError, match="one picture"):
            reader.check(asked)
    reader.check(chat("What?", PicturePart(0)))


def test_alone_as_with_others(checkpoint, reader):
    one, two = pictures(2)
    turns = (
        Turn(role="system", parts=("Be brief.",)),
        Turn(role="user", parts=(PicturePart(0), "What?", PicturePart(1))),
        Turn(role="assistant", parts=("This.",)),
        Turn(role="user", parts=("And why?",)),
    )
    long = Chat(turns=turns, sampling=Sampling(max_tokens=TOKENS, temperature=0.9, seed=5))
    mixed = [(long, [one, two]), (chat("No picture at all."), []), (long, [two, one])]
    together = {key: text_of(found) for key, found in answers(reader, *mixed).items()}
    for key, single in enumerate(mixed):
        assert text_of(answers(reader, single)[0]) == together[key]
    assert together[0] != together[2], "the order of pictures makes no difference"


def test_the_seed_decides_and_the_temperature_counts(reader):
    (picture,) = pictures(1)
    texts = [
        text_of(answers(reader, (chat(PicturePart(0), temperature=1.5, **seed), [picture]))[0])
        for seed in ({"seed": 1}, {"seed": 1}, {"seed": 2})
    ]
    assert texts[0] == texts[1] != texts[2]


def test_a_stop_string_ends_the_answer_and_is_no_part_of_it(reader):
    (picture,) = pictures(1)
    pieces = answers(reader, (chat(PicturePart(0), max_tokens=40), [picture]))[0]
    whole = text_of(pieces)
    assert pieces[-1].finish == "length"
    stop = whole[4:7]
    cut = answers(reader, (chat(PicturePart(0), max_tokens=40, stop=(stop,)), [picture]))[0]
    assert text_of(cut) == whole[: whole.index(stop)]
    assert cut[-1].finish == "stop"
    assert not reader.has_work() and not reader._engine.has_unfinished()


def test_stop_strings_across_pieces():
    assert cut_at("one two three", ("three", "two")) == ("one ", True)
    assert cut_at("one", ("two",)) == ("one", False)
    assert held_back("abc#", ("###",)) == 1
    assert held_back("abc##", ("###", "c##x")) == 3
    assert held_back("abc", ("###",)) == 0


def test_control_tokens_in_a_text_are_refused(reader):
    token = reader._engine.model_config.image_token_id
    mark = reader._engine._tokenizer._rust.id_to_token(token)
    with pytest.raises(UsageError, match="control token"):
        reader.check(chat(f"look: {mark}"))
    reader.check(chat("look: <|nothing special|>"))


def test_what_can_never_fit_is_refused_and_leaves_nothing_behind(checkpoint):
    engine = Engine.from_checkpoint(
        checkpoint, EngineConfig(block_size=8, kv_cache_bytes=1 << 20, num_threads=1)
    )
    reader = ChatReader(engine)
    (picture,) = pictures(1)
    with pytest.raises((PageError, UsageError)):
        reader.submit(1, chat("word " * 4000), [])
    assert not reader.has_work() and not engine.has_unfinished()
    assert text_of(answers(reader, (chat(PicturePart(0)), [picture]))[0])


def test_an_abandoned_chat_frees_everything(reader):
    (picture,) = pictures(1)
    reader.submit(1, chat(PicturePart(0), max_tokens=500), [page(picture)])
    reader.step()
    reader.abort(1)
    reader.abort(1)
    assert not reader.has_work() and not reader._engine.has_unfinished()
    reader._engine.check_integrity()
