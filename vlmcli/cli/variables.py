"""Environment variables that look like ours and are not: misspelt ones would pass without a word.

Knows the names of variables that no option has. Never shows a value, which may be a secret.
"""

import difflib
import os
from collections.abc import Iterable

PREFIX = "VLMCLI_"
LAYERED = ("ocr", "ask", "plan")
"""Commands whose options also come from variables, recipes and configuration files."""
OTHERS = frozenset(
    {
        # Where results are kept, and the keys of servers.
        *("VLMCLI_CACHE_DIR", "VLMCLI_API_KEY", "VLMCLI_SERVER_API_KEY"),
        # Of the tests.
        *("VLMCLI_WRITE_DOCS", "VLMCLI_EXAMPLES"),
    }
)
"""Variables that are read elsewhere than by an option of `ocr`, `ask` or `plan`."""


def variable_of(option: str) -> str:
    """The variable of an option, by its long name: `VLMCLI_MAX_MEMORY`."""
    return PREFIX + option.replace("-", "_").upper()


def set_for_options() -> list[str]:
    """Those that are set, not empty, and should be of options."""
    return sorted(
        name
        for name, value in os.environ.items()
        if name.startswith(PREFIX) and value and name not in OTHERS
    )


def warnings(options: Iterable[str]) -> list[str]:
    """A warning for each variable that is set and that nothing reads.

    Args:
        options: long names of all options that have variables; taken only where one is needed.
    """
    names = set_for_options()
    if not names:
        return []
    known = {variable_of(option) for option in options} | OTHERS
    return [_warning(name, known) for name in names if name not in known]


def _warning(name: str, known: Iterable[str]) -> str:
    # Without what they have in common, which would make all of them alike.
    ends = sorted(one.removeprefix(PREFIX) for one in known)
    near = difflib.get_close_matches(name.removeprefix(PREFIX), ends, n=1)
    more = f": did you mean {PREFIX}{near[0]}?" if near else ""
    return f"no such variable, {name} is ignored{more}"
