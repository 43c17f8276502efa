"""The loop guard on text that comes in pieces: a server's tokens are not ours to see.

Text is cut into words, runs of spaces and single signs, which a tokenizer would do much alike, and
these are what `loops.LoopSearch` looks at. Letters beyond the Latin ones count one by one, since
such scripts may have no spaces.
"""

import re
from collections.abc import Sequence

from vlmcli.loops import Loop, LoopSearch

_UNIT = re.compile(r"[0-9A-Za-z\u00c0-\u024f]{1,6}|\s{1,6}|.", re.DOTALL)


class LoopWatch:
    """Takes a text piece by piece and says when it begins to repeat itself."""

    def __init__(self) -> None:
        self._units: list[int] = []
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._rest = ""
        """The last unit, which may grow."""
        self._search = LoopSearch(self._decode)

    @property
    def text(self) -> str:
        """Everything that has come in."""
        return self._decode(self._units) + self._rest

    def push(self, text: str) -> Loop | None:
        """Take more text; the loop in which it is, if it is in one."""
        *whole, self._rest = _UNIT.findall(self._rest + text) or [""]
        for unit in whole:
            self._units.append(self._number(unit))
        return self._search.look(self._units, is_cut=False)

    def end(self) -> Loop | None:
        """The text was cut off here; the loop in which it was."""
        return self._search.look(self._units, is_cut=True)

    def before(self, loop: Loop) -> str:
        """The text up to the loop and its first round."""
        return self._decode(self._units[: loop.keep])

    def _number(self, unit: str) -> int:
        if unit not in self._numbers:
            self._numbers[unit] = len(self._names)
            self._names.append(unit)
        return self._numbers[unit]

    def _decode(self, units: Sequence[int]) -> str:
        return "".join(self._names[unit] for unit in units)
