"""Questions about made-up pages as requests to an engine, and drafts made of answers known before.

The drafts of a benchmark are as good as it wants them: an answer with every so many tokens wrong.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from vlmcli.bench.pages import page_picture
from vlmcli.engine.engine import Engine
from vlmcli.engine.request import DraftSource, Request, SamplingParams
from vlmcli.readers.pages import page_requests, prompt_ending


def page_questions(
    engine: Engine, num_pages: int, questions: Iterable[str], max_tokens: int, *, dpi: int = 72
) -> list[Request]:
    """Every question about every page, page by page."""
    endings = [prompt_ending(engine, question) for question in questions]
    requests = []
    for page in range(num_pages):
        picture = np.repeat(page_picture(page, dpi=dpi)[:, :, None], 3, axis=2)
        builds = page_requests(engine, picture, endings, max_tokens=max_tokens)
        requests += [build(f"{page}.{i}", 0.0, 0) for i, build in enumerate(builds)]
    return requests


def with_drafts(
    requests: Sequence[Request], answers: Iterable[Sequence[int]], wrong_every: int
) -> list[Request]:
    """The requests with their answers' tokens as drafts, every `wrong_every`-th of them wrong."""
    drafts = (
        tuple(token if place % wrong_every else token ^ 1 for place, token in enumerate(answer, 1))
        for answer in answers
    )
    return [
        replace(request, drafts=(DraftSource(name="answer", token_ids=token_ids),))
        for request, token_ids in zip(requests, drafts, strict=True)
    ]


def endless(request: Request, num_tokens: int) -> Request:
    """The request with an answer of exactly so many tokens: the model cannot end it."""
    sampling = SamplingParams(max_tokens=num_tokens, stop_token_ids=(-1,), logprobs=False)
    return replace(request, sampling=sampling)
