"""Streaming text: pieces add up to the whole and never end within a character."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders, models, pre_tokenizers

import vlmcli
from vlmcli.engine.tokenizer import Tokenizer, load_tokenizer
from vlmcli.errors import ModelError

NANO = load_tokenizer(Path(vlmcli.__file__).parent / "nano")


def fallback_tokenizer():
    """Words with a space mark, and bytes for whatever is no word (the SentencePiece way)."""
    words = ["▁the", "▁king", "s", "▁", "a", "é", ","]
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocab |= {word: 256 + i for i, word in enumerate(words)}
    rust = RustTokenizer(models.BPE(vocab, [], byte_fallback=True))
    rust.pre_tokenizer = pre_tokenizers.Metaspace()
    rust.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return Tokenizer(rust)


FALLBACK = fallback_tokenizer()


def pieces_of(tokenizer, ids, sizes):
    stream, pieces = tokenizer.stream(), []
    rest = list(ids)
    for size in sizes:
        pieces.append(stream.push(rest[:size]))
        rest = rest[size:]
    return [*pieces, stream.push(rest), stream.finish()]


@given(st.text(), st.lists(st.integers(1, 5), max_size=20))
def test_text_survives_and_no_piece_is_broken(text, sizes):
    ids = NANO.encode(text)
    assert NANO.decode(ids) == text
    pieces = pieces_of(NANO, ids, sizes)
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


@given(st.lists(st.integers(0, 263)), st.lists(st.integers(1, 5), max_size=20))
def test_any_bytes_stream_to_what_decode_says(ids, sizes):
    assert "".join(pieces_of(NANO, ids, sizes)) == NANO.decode(ids)


@given(st.lists(st.integers(0, 262), max_size=30), st.lists(st.integers(1, 5), max_size=20))
def test_byte_fallback_vocabularies(ids, sizes):
    pieces = pieces_of(FALLBACK, ids, sizes)
    assert pieces[-1] == "" or pieces[-1].endswith("\ufffd")
    whole = FALLBACK.decode(ids)
    if "\ufffd" not in whole:
        assert "".join(pieces) == whole


def test_characters_of_several_bytes_wait():
    stream = FALLBACK.stream()
    euro = "€".encode()
    assert [stream.push([byte]) for byte in euro] == ["", "", "€"]
    assert stream.push([257]) == " king"


def test_a_byte_behind_a_character_of_several_bytes():
    # The window once began inside the first character: the second one came out broken.
    ids = [*"\u1000".encode(), 0]
    assert "".join(pieces_of(FALLBACK, ids, [])) == FALLBACK.decode(ids) == "\u1000\0"


def test_special_tokens_are_read_and_never_shown():
    ids = NANO.encode("<|vision_start|>a<|im_end|>")
    assert len(ids) == 3
    assert ids[0] == NANO.token_id("<|vision_start|>")
    assert "".join(pieces_of(NANO, ids, [])) == "a"


@pytest.mark.parametrize("content", [None, "", "{}"])
def test_missing_or_broken_file(tmp_path, content):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
