"""Which formats a job writes: those that were given, else the one that the name after -o asks for.

What a variable, a recipe or a configuration file says counts as given. Where that does not go with
the name, the job is done as it was told to, and says so.
"""

from collections.abc import Sequence

from vlmcli.cli.arguments import FORMATS, parse_format
from vlmcli.errors import UsageError
from vlmcli.options import Format, OcrOptions
from vlmcli.outputs.suffixes import belongs_to_another, format_of
from vlmcli.outputs.targets import named_file


def chosen_formats(
    given: Sequence[str] | None,
    output: str | None,
    inputs: Sequence[str],
    allowed: Sequence[Format] = FORMATS,
) -> tuple[Format, ...]:
    """The formats of a job.

    Args:
        given: as after `-f`; None or empty where nobody said.
        output: as after `-o`.
        inputs: as on the command line; several make a name without a suffix a directory.
        allowed: those that the command writes.

    Raises:
        UsageError: there is no such format, or the command does not write it.
        OutputError: no file can have the output's name.
    """
    options = OcrOptions(inputs=tuple(inputs), output=output)
    if given:
        formats = tuple(map(parse_format, given))
        what = ""
    else:
        path = named_file(options) if output else None
        formats = ((path and format_of(path)) or options.formats[0],)
        what = f"{output}: "
    for name in formats:
        if name not in allowed:
            raise UsageError(
                f"{what}answers have no {name} form",
                remedy=f"choose one of {', '.join(allowed)}" + (" with -f" if what else ""),
            )
    return formats


def odd_name(options: OcrOptions) -> str | None:
    """A warning where the output's name is that of another format; None where it is not.

    Of several formats each gets a suffix of its own, so that no name can be wrong.
    """
    path = named_file(options) if options.output else None
    if path is None or len(set(options.formats)) > 1:
        return None
    (name, *_) = options.formats
    other = belongs_to_another(path, name)
    if other is None:
        return None
    return f"{path} will hold {name}, not {other} as its name says; for that give -f {other}"
