"""A running job as the command line that started it, so that a remedy is a line to paste whole.

Covers the options that have nothing to do with memory; those that have are the planner's. Leaves
out the password, which nobody wants in a log: the line asks for it again, or takes it from the
environment.
"""

from collections.abc import Container, Iterator
from dataclasses import fields

from vlmcli.options import OcrOptions

_NOT_WRITTEN = frozenset({"inputs", "password"})
_NOT_OF_ASK = frozenset({"text_layer", "reuse"})
"""What `ask` decides itself."""


def other_words(options: OcrOptions, known: Container[str]) -> tuple[str, ...]:
    """Options that were given and are not in `known`, as words of the command line.

    Args:
        options: of the job.
        known: names of fields that are written by somebody else.
    """
    default = OcrOptions(inputs=())
    left_out = _NOT_WRITTEN | (_NOT_OF_ASK if options.question else frozenset())
    words: list[str] = []
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name in left_out or field.name in known:
            continue
        if value != getattr(default, field.name):
            words += _words(field.name, value)
    return tuple(words)


def input_words(inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Inputs as arguments; a name that looks like an option is led by its folder."""
    return tuple(f"./{name}" if name.startswith("-") and name != "-" else name for name in inputs)


def _words(name: str, value: object) -> Iterator[str]:
    if name == "formats" and isinstance(value, tuple):
        for one in value:
            yield from ("--format", str(one))
        return
    option = "--" + name.replace("_", "-")
    if name == "verbose" and isinstance(value, int):
        yield from [option] * value
    elif isinstance(value, bool):
        yield option if value else option.replace("--", "--no-", 1)
    else:
        yield from (option, str(value))
