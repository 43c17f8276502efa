"""Makes the text of synthetic lines: prose cut from installed documents, and generated records.

Sources are whatever of Debian's documentation, dictionaries, fortunes and word lists is installed
(README.md lists the packages); without any of them the Python standard library's own help texts
serve. It refuses characters outside ALPHABET, because the label has to be what is drawn. A real
language model for the record generators was given up: plain templates teach digits just as well.
"""

from __future__ import annotations

import functools
import gzip
import html
import pydoc_data.topics
import random
import re
import string
from collections.abc import Iterator
from pathlib import Path

from records import Records

ACCENTED = "àâäáãåæçéèêëíìîïñóòôöõøœúùûüÿßÀÂÄÁÃÅÆÇÉÈÊËÍÌÎÏÑÓÒÔÖÕØŒÚÙÛÜ"
SIGNS = "‘’“”„«»–—…•·°§©®™€£¥±×÷½¼¾¿¡†‡µ¶²³"
FORM_SIGNS = "▶▲▼◀●○■□✓✗→←★◆"
"""Signs of forms and lists, one of each look; the text's own font seldom has them."""
ALPHABET = frozenset(map(chr, range(32, 127))) | frozenset(ACCENTED + SIGNS + FORM_SIGNS)

_MEBI = 1 << 20
# (glob, language, characters taken at most)
_SOURCES: tuple[tuple[str, str, int], ...] = (
    ("/usr/share/games/fortunes/*", "en", 4 * _MEBI),
    ("/usr/share/dictd/gcide.dict.dz", "en", 6 * _MEBI),
    ("/usr/share/dictd/devil.dict.dz", "en", _MEBI),
    ("/usr/share/dictd/jargon.dict.dz", "en", _MEBI),
    ("/usr/share/dictd/foldoc.dict.dz", "en", 2 * _MEBI),
    ("/usr/share/state/*.gz", "en", _MEBI),
    ("/usr/share/doc/debian-handbook/html/en-US/*.html", "en", 2 * _MEBI),
    ("/usr/share/doc/python3*/html/_sources/**/*.txt", "en", 3 * _MEBI),
    ("/usr/share/common-licenses/*", "en", _MEBI // 4),
    ("/usr/share/games/fortunes/de/*", "other", 2 * _MEBI),
    ("/usr/share/games/fortunes/es/*", "other", _MEBI),
    ("/usr/share/games/fortunes/it/*", "other", _MEBI),
    ("/usr/share/games/fortunes/*ital*", "other", _MEBI),
    ("/usr/share/doc/debian-handbook/html/fr-FR/*.html", "other", _MEBI),
    ("/usr/share/doc/debian-handbook/html/de-DE/*.html", "other", _MEBI),
    ("/usr/share/doc/debian-handbook/html/es-ES/*.html", "other", _MEBI),
    ("/usr/share/doc/debian-handbook/html/it-IT/*.html", "other", _MEBI // 2),
    ("/usr/share/doc/debian-handbook/html/nl-NL/*.html", "other", _MEBI // 2),
    ("/usr/share/doc/debian-handbook/html/pt-BR/*.html", "other", _MEBI // 2),
    ("/usr/share/doc/debian-handbook/html/sv-SE/*.html", "other", _MEBI // 2),
)
_WORD_LISTS = (
    ("/usr/share/dict/american-english", "en"),
    ("/usr/share/dict/british-english", "en"),
    ("/usr/share/dict/french", "other"),
    ("/usr/share/dict/ngerman", "other"),
    ("/usr/share/dict/spanish", "other"),
    ("/usr/share/dict/italian", "other"),
)
_MARKUP = "".join(("{}[]*`|", "\\"))
_INNER_MARKUP = re.compile(r"[{}\[\]\\|`]|\w\"\w|\w\*\w|::")
# Source marks that the dictionary puts behind every sense, and the separators of fortune files.
_MARKS = frozenset(("1913", "Webster", "Webster]", "[1913", "%", "::", "PJC]", "[PJC]"))


def _read(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix in (".gz", ".dz"):
        data = gzip.decompress(data)
    if b"\0" in data[:4096]:
        return ""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    if path.suffix == ".html":
        text = re.sub(r"(?s)<(script|style|pre).*?</\1>", " ", text)
        text = html.unescape(re.sub(r"<[^>]*>", " ", text))
    return text


def _words(text: str) -> Iterator[str]:
    for word in text.split():
        word = word.strip(_MARKUP)
        if word in _MARKS or _INNER_MARKUP.search(word):
            continue
        if 0 < len(word) <= 24 and ALPHABET.issuperset(word):
            yield word


@functools.cache
def load_words() -> dict[str, tuple[str, ...]]:
    """Running text as words: `en` and `other` prose, `en-list` and `other-list` from word lists."""
    found: dict[str, list[str]] = {"en": [], "other": [], "en-list": [], "other-list": []}
    for pattern, language, limit in _SOURCES:
        taken = 0
        for path in sorted(Path("/").glob(pattern.lstrip("/"))):
            # Links among the English fortunes lead to Italian ones.
            if taken >= limit or path.is_symlink() or not path.is_file():
                continue
            if path.suffix in (".dat", ".u8"):
                continue
            text = _read(path)[: limit - taken]
            taken += len(text)
            found[language].extend(_words(text))
    for name, language in _WORD_LISTS:
        path = Path(name)
        if path.is_file():
            found[f"{language}-list"].extend(_words(_read(path)))
    if len(found["en"]) < 10_000:
        found["en"].extend(_words("\n".join(pydoc_data.topics.topics.values())))
    for key in ("other", "en-list", "other-list"):
        if len(found[key]) < 1_000:
            found[key] = found["en"]
    return {key: tuple(words) for key, words in found.items()}


def _curly(text: str) -> str:
    text = re.sub(r'(^|[\s(\[—–-])"', r"\1“", text).replace('"', "”")
    text = re.sub(r"(^|[\s(\[“—–-])'", r"\1‘", text).replace("'", "’")
    return text.replace("--", "—").replace("...", "…") if text.count("--") else text


class TextSource:
    """Draws the text of one line after another, deterministically by seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._words = load_words()
        self._records = Records(self._random, self._words["en-list"])

    def draw(self, length: int, kind: str | None = None) -> str:
        """One line of at most about `length` characters; `kind` fixes its sort.

        Kinds: `prose`, `other` (Western European prose), `list` (single words), `record`
        (amounts, dates, rows, addresses), `form` (rows of forms, ranges, cells), `noise`
        (characters without language). Lines of no fixed kind also get numbers and marks put in.
        """
        choice, fixed = self._random.random(), kind is not None
        if kind is None:
            bounds = (
                *(("prose", 0.50), ("other", 0.60), ("list", 0.65)),
                *(("record", 0.86), ("form", 0.96)),
            )
            kind = next((name for name, bound in bounds if choice < bound), "noise")
        for _ in range(100):
            text = self._make(kind, length)
            if not fixed and kind in ("prose", "other") and self._random.random() < 0.12:
                text = self._with_insert(text)
            text = re.sub(r" +", " ", text).strip()
            if text and ALPHABET.issuperset(text):
                return text
        return "page"

    def _make(self, kind: str, length: int) -> str:
        rng = self._random
        if kind == "prose":
            return self._style(self._run("en", length))
        if kind == "other":
            return self._style(self._run(rng.choice(("other", "other", "other-list")), length))
        if kind == "list":
            count = max(1, length // 8)
            return " ".join(rng.choice(self._words["en-list"]) for _ in range(count))[:length]
        if kind in ("record", "form"):
            draw = self._records.draw if kind == "record" else self._records.draw_form
            text = draw()
            while len(text) < length and rng.random() < 0.45:
                text += " " + draw()
            return text[:length]
        return self._noise(min(length, 40))

    def _run(self, key: str, length: int) -> str:
        words = self._words[key]
        start = self._random.randrange(max(1, len(words) - 60))
        text = ""
        for word in words[start : start + 60]:
            if len(text) + len(word) > length and text:
                break
            text += word + " "
        return text[: max(length, 1)].strip()

    def _style(self, text: str) -> str:
        rng = self._random
        draw = rng.random()
        if draw < 0.06:
            text = text.upper()
        elif draw < 0.09:
            text = text.title()
        elif draw < 0.14 and len(text) > 4 and text[-1].isalpha():
            text += "-"
        elif draw < 0.17:
            text = (
                rng.choice(("•", "–", "-", "*", "1.", "(a)", "iv.", "§ 3", "A.", "12)"))
                + " "
                + text
            )
        elif draw < 0.20:
            text = '"' + text + rng.choice((',"', '."', '"', '?"'))
        if rng.random() < 0.55:
            text = _curly(text)
        if rng.random() < 0.03:
            words = text.split(" ")
            word = rng.randrange(len(words))
            words[word] = "«" + words[word]
            words[-1] += "»"
            text = " ".join(words)
        return text

    def _with_insert(self, text: str) -> str:
        """Put a number, a year or a dash between two words, or a mark behind one."""
        rng = self._random
        words = text.split(" ")
        place = rng.randrange(len(words))
        if rng.random() < 0.2:
            words[place] += rng.choice("®™®²§†")
        elif rng.random() < 0.2:
            words.insert(0, rng.choice("•–—●■▶"))
        else:
            words[place] += " " + rng.choice(
                (
                    *("–", "—", "&"),
                    *(f"in {rng.randint(1400, 2030)}{mark}" for mark in ("", ",", ".", ";")),
                    *(f"{rng.randint(1, 300)}{mark}" for mark in ("", ".", ",")),
                    f"{rng.randint(1600, 1999)}–{rng.randint(10, 99)}",
                    f"({rng.randint(1600, 2030)})",
                )
            )
        return " ".join(words)

    def _noise(self, length: int) -> str:
        rng = self._random
        letters = rng.choice(
            (
                string.ascii_letters + string.digits + string.punctuation,
                string.ascii_letters + "    ",
                string.digits + "     ..,,-/",
                ACCENTED + SIGNS + string.ascii_letters + "   ",
                "Il1|iljtfr.,:;'!",
                "ceoasnumhbrz  ",
                "SsOo0CcVvWwXxZzUuQG  ",
                string.ascii_uppercase + string.digits,
            )
        )
        return "".join(rng.choice(letters + "  ") for _ in range(length))
