"""Rotary positions of a prompt from its token count and image grids alone, never from pixels.

M-RoPE as published with Qwen2-VL (arXiv 2409.12191, section 2.1): a text token has three equal
positions; the token of an image that starts at position p0 has (p0 + frame, p0 + row, p0 + column)
on the merged grid; the text behind it goes on at the largest position so far plus one.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vlmcli.engine.request import PlaceholderRange


def rope_positions(num_tokens: int) -> tuple[npt.NDArray[np.int64], int]:
    """Positions for plain 1-D rotary embedding, in the three-row layout of `mrope_positions`.

    Returns:
        int64 [3, num_tokens] with three equal rows, and the decode delta, which is 0.
    """
    return np.tile(np.arange(num_tokens, dtype=np.int64), (3, 1)), 0


def mrope_positions(
    num_tokens: int, placeholders: Sequence[PlaceholderRange]
) -> tuple[npt.NDArray[np.int64], int]:
    """Positions for sectioned or interleaved M-RoPE.

    Args:
        num_tokens: length of the prompt.
        placeholders: its images in order, each with a grid.

    Returns:
        int64 [3, num_tokens] (time, row, column), and the delta: a token generated at index `i` has
        position `i + delta` in all three rows.
    """
    positions = np.empty((3, num_tokens), dtype=np.int64)
    start, index = 0, 0
    for placeholder in placeholders:
        assert placeholder.grid is not None, "M-RoPE needs the merged grid of every image"
        num_text = placeholder.offset - index
        positions[:, index : placeholder.offset] = np.arange(start, start + num_text)
        start += num_text
        cells = np.indices(placeholder.grid).reshape(3, placeholder.length)
        positions[:, placeholder.offset : placeholder.end] = start + cells
        start += max(placeholder.grid)
        index = placeholder.end
    positions[:, index:] = np.arange(start, start + num_tokens - index)
    return positions, start - index
