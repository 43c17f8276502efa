"""What a server's memory is planned for: the largest pictures that it takes, of every shape.

Nobody knows what will be asked, so the plan is that of a job in which all pictures are as large as
`--max-pixels` allows. The pixels of one request's pictures are counted together: a request takes
what one page of that size would.
"""

from collections.abc import Iterator
from dataclasses import fields, replace

from vlmcli.documents.base import PageHandle, StoredImage
from vlmcli.memory.gate import MemoryGate
from vlmcli.memory.remedies import CommandLine
from vlmcli.memory.request import PlanRequest, make_planner
from vlmcli.options import OcrOptions
from vlmcli.serve.settings import ServeOptions

_TEXT_TOKENS = 1024
"""Of a request's messages, planned for beside its pictures; longer ones take from the room of
others."""
_BODY_COPIES = 4
"""A body while it is parsed: itself, its text, a picture's base64 and its bytes. One at a time."""
_SHAPES = tuple(2 ** (step / 8) for step in range(-16, 17))
"""Width over height: from 1:4 to 4:1."""
_ACCEPTS = ("max-pixels", "max-memory", "dtype", "kv-dtype", "vision-kv-dtype", "vision-cache")


def plan_server(options: ServeOptions) -> MemoryGate:
    """The plan that the server keeps to.

    Raises:
        WillNotFitError: it does not fit under the cap; the remedies are command lines.
        VlmcliError: the model is unknown, or an option makes no sense.
    """
    planner = make_planner(PlanRequest.of(options.job))
    settings = replace(
        planner.settings,
        question_tokens=_TEXT_TOKENS,
        writer_bytes=_BODY_COPIES * options.max_body,
    )
    command = CommandLine(
        words=("vlmcli", "serve", *_own_words(options)),
        options=planner.command.options,
        accepts=frozenset(f"--{name}" for name in _ACCEPTS),
    )
    gate = MemoryGate(replace(planner, settings=settings, command=command), "always")
    gate.add(_picture(number, options.job.max_pixels) for number in range(len(_SHAPES)))
    gate.open()
    return gate


def _own_words(options: ServeOptions) -> Iterator[str]:
    """Options that were given and have nothing to do with the plan; the key is left out."""
    default = ServeOptions(job=OcrOptions(inputs=()))
    own = [one.name for one in fields(options) if one.name not in ("job", "api_key")]
    known = [(name, getattr(options, name), getattr(default, name)) for name in own]
    known += [
        (name, getattr(options.job, name), getattr(default.job, name))
        for name in ("threads", "retries")
    ]
    for name, value, usual in known:
        if value != usual:
            yield from ("--" + name.replace("_", "-"), str(value))


def _picture(number: int, pixels: int) -> PageHandle:
    width = max(1.0, (pixels * _SHAPES[number]) ** 0.5)
    height = max(1.0, pixels / width)
    return PageHandle(
        document="picture",
        index=number,
        num_pages=len(_SHAPES),
        width=float(int(width)),
        height=float(int(height)),
        unit="px",
        largest_image=StoredImage(width=int(width), height=int(height), components=4, filter=""),
    )
