"""Pages and answers of the benchmark of page-reading models, and what one side makes of them.

Plain data that goes to child processes and back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vlmcli.bench.pages import page_picture

Pixels = npt.NDArray[np.uint8]
_WIDTHS, _HEIGHTS = (200, 460), (180, 620)
"""Pixels: notes, receipts and small pages, 50 to 360 visual tokens with patches of 28 pixels. As
many as their answers have, by and large, which is what pages of print have."""
_LINE_HEIGHT = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTask:
    """A picture, uint8 (H, W, 3) RGB, and how many tokens are to be answered about it."""

    picture: Pixels
    num_tokens: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.picture.shape[1], self.picture.shape[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What one process has done.

    Attributes:
        prompts: token ids of each page's prompt.
        answers: token ids of each page's answer.
        cpu_seconds: of all its threads, from pictures to answers.
        clock_seconds: the same on the clock.
        peak_bytes: highest resident memory of the process, from its start to its end.
        num_parameters: of the model; 0 where nobody counted.
    """

    prompts: tuple[tuple[int, ...], ...]
    answers: tuple[tuple[int, ...], ...]
    cpu_seconds: float
    clock_seconds: float
    peak_bytes: int
    num_parameters: int = 0

    @property
    def tokens_per_cpu_second(self) -> float:
        """Tokens that were asked for, over processor seconds."""
        return sum(map(len, self.answers)) / self.cpu_seconds


def page_work(num_pages: int, shortest: int, longest: int) -> list[PageTask]:
    """Pages of unlike sizes with answers of `shortest` to `longest` tokens, the same every time."""
    rng = np.random.default_rng(16)
    tasks = []
    for seed in range(num_pages):
        width, height = int(rng.integers(*_WIDTHS)), int(rng.integers(*_HEIGHTS))
        lines = max(1, height // _LINE_HEIGHT - 4)
        grey = page_picture(seed, width=width, height=height, lines=lines, dpi=72)
        picture = np.repeat(grey[:, :, None], 3, axis=2)
        num_tokens = int(rng.integers(shortest, longest + 1))
        tasks.append(PageTask(picture=picture, num_tokens=num_tokens))
    return tasks


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Index of the first token in which two answers differ; None for equal ones."""
    if tuple(one) == tuple(other):
        return None
    pairs = enumerate(zip(one, other, strict=False))
    shorter = min(len(one), len(other))
    return next((i for i, (left, right) in pairs if left != right), shorter)
