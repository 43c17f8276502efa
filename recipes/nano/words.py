"""Writes the list of English words that lines in doubt may be mended by, from Debian's word lists.

ASCII, three letters and more, without possessives and without acronyms; names and abbreviations
have their capital: see vlmcli/readers/spelling.py.
Where no list is installed there is none, and the model reads without. Lists of the other languages
were given up: with all of them every misread word is one letter from some word.
"""

from __future__ import annotations

import re
from pathlib import Path

SOURCES = ("/usr/share/dict/american-english", "/usr/share/dict/british-english")
COPYRIGHT = "/usr/share/doc/wamerican/copyright"
FILE = "words.txt"
_WORD = re.compile(r"[a-zA-Z][a-z']{1,22}[a-z]")


def english_words() -> list[str]:
    """All words of the installed lists, sorted; empty without any list."""
    found: set[str] = set()
    for source in filter(Path.is_file, map(Path, SOURCES)):
        lines = source.read_text(encoding="utf-8").split()
        found.update(word for word in lines if _WORD.fullmatch(word) and word[-2:] != "'s")
    return sorted(word for word in found if word.islower() or word.lower() not in found)


def write_words(folder: Path) -> bool:
    """Write FILE and the licence of the lists into `folder`; whether there was a list."""
    words = english_words()
    if words:
        (folder / FILE).write_text("\n".join(words) + "\n", encoding="ascii")
        if Path(COPYRIGHT).is_file():
            notice = Path(COPYRIGHT).read_text(encoding="utf-8")
            start = max(0, notice.find("Copyright:"))
            (folder / "words.copyright").write_text(notice[start:], encoding="utf-8")
    return bool(words)
