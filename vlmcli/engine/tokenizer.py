"""Token ids and text, and text that grows token by token without ever showing half a character.

A thin layer over the `tokenizers` library and a checkpoint's tokenizer.json. No chat templates:
special tokens are given in the text itself. They never appear in decoded text, but for those that
are the page's markup: tags of tables, places and blocks.
"""

import codecs
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders

from vlmcli.engine.config import read_json
from vlmcli.errors import ModelError

_MARKUP = re.compile(
    r"</?(?:doctags?|text|title|section_header_level_\d|list_item|(?:un)?ordered_list|caption"
    r"|footnote|page_header|page_footer|page_break|formula|code|otsl|picture|chart|inline)>"
    r"|<(?:[eflux]cel|ched|rhed|srow|nl)>|<loc_?\d{1,4}>|<_[\w+#.-]+_>"
    r"|<\|/?(?:ref|det)\|>|<\|box_(?:start|end)\|>"
)
"""DocTags, Florence's and PaliGemma's places, DeepSeek's and Qwen's boxes."""


def is_markup(token: str) -> bool:
    """Whether a special token is a tag of the answer, and not one of the conversation."""
    return _MARKUP.fullmatch(token) is not None


class Detokenizer(Protocol):
    """Text of one sequence, piece by piece; the pieces add up to the text of all its tokens."""

    def push(self, token_ids: Iterable[int]) -> str:
        """Take more tokens; return the characters that are complete now."""

    def finish(self) -> str:
        """End of the sequence: return what is left, broken characters as U+FFFD."""


def load_tokenizer(path: Path) -> "Tokenizer":
    """Read `tokenizer.json` of a checkpoint directory.

    Raises:
        ModelError: it is missing or broken.
    """
    file = path / "tokenizer.json"
    # The library raises bare `Exception`s, so that what users break (no file, a cut one, another
    # kind of JSON) is found out before it is asked.
    if "model" not in read_json(file):
        raise ModelError(f"cannot read {file}: it describes no tokenizer")
    return Tokenizer(RustTokenizer.from_file(str(file)))


class Tokenizer:
    """A checkpoint's tokenizer. Make one with `load_tokenizer`."""

    def __init__(self, rust: RustTokenizer) -> None:
        self._rust = rust
        added = rust.get_added_tokens_decoder()
        self.special_ids = frozenset(
            i for i, token in added.items() if token.special and not is_markup(token.content)
        )
        self._is_byte_level = isinstance(rust.decoder, decoders.ByteLevel)
        self._bytes: dict[int, bytes] = {}

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones counted."""
        return int(self._rust.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> list[int]:
        """Token ids; special tokens are recognised in the text, none are added."""
        return list(self._rust.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens; bytes that are no UTF-8 become U+FFFD."""
        shown = [token for token in token_ids if token not in self.special_ids]
        return str(self._rust.decode(shown, skip_special_tokens=False))

    def token_id(self, token: str) -> int | None:
        """Id of a token given as text, None where it is not in the vocabulary."""
        found = self._rust.token_to_id(token)
        return None if found is None else int(found)

    def stream(self) -> Detokenizer:
        """A fresh incremental detokeniser for one sequence."""
        return _ByteDetokenizer(self) if self._is_byte_level else _WindowDetokenizer(self)

    def token_bytes(self, token_id: int) -> bytes:
        """What one token of a byte-level vocabulary adds to the text; nothing for special ones."""
        found = self._bytes.get(token_id)
        if found is None:
            found = self._bytes[token_id] = self._read_bytes(token_id)
        return found

    def _read_bytes(self, token_id: int) -> bytes:
        token = None if token_id in self.special_ids else self._rust.id_to_token(token_id)
        if token is None:
            return b""
        values = [_BYTE_OF.get(character) for character in token]
        known = bytes(value for value in values if value is not None)
        return known if len(known) == len(values) else token.encode()


class _ByteDetokenizer:
    """For byte-level vocabularies: every token is bytes, and UTF-8 says where characters end."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_ids: Iterable[int]) -> str:
        return self._decoder.decode(b"".join(map(self._tokenizer.token_bytes, token_ids)))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class _WindowDetokenizer:
    """For other vocabularies: decode a short window and show what further tokens cannot change.

    The window begins with what was shown last, because decoders treat a first token differently
    (leading spaces), and never inside a character, which would break those behind it.
    """

    _MAX_PENDING = 8
    """Tokens held back for an unfinished character; longer than any character is in bytes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._start = 0
        self._shown = 0

    def push(self, token_ids: Iterable[int]) -> str:
        return "".join(self._push_one(token_id) for token_id in token_ids)

    def finish(self) -> str:
        return self._advance()

    def _push_one(self, token_id: int) -> str:
        if token_id in self._tokenizer.special_ids:
            return ""
        self._ids.append(token_id)
        window = self._tokenizer.decode(self._ids[self._start :])
        is_pending = window.endswith("\ufffd") and len(self._ids) - self._shown < self._MAX_PENDING
        return "" if is_pending else self._advance()

    def _advance(self) -> str:
        before = self._tokenizer.decode(self._ids[self._start : self._shown])
        now = self._tokenizer.decode(self._ids[self._start :])
        self._start, self._shown = self._shown, len(self._ids)
        return now[len(before) :]


def _byte_alphabet() -> dict[str, int]:
    """The printable characters by which byte-level vocabularies write bytes (GPT-2's table).

    Printable Latin-1 characters stand for themselves; the other bytes, in order, take the code
    points from 256 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }


_BYTE_OF = _byte_alphabet()
