"""Window attention of a vision tower: an order that makes the patches of a window neighbours.

A cell is the square of patches that the merger turns into one token. Integers alone; the tower
applies the order.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def window_order(
    grids: Sequence[tuple[int, int, int]], merge_size: int, window_cells: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Cut each frame into windows of `window_cells`² cells, smaller at the right and lower edges.

    Images stay one behind the other. Within an image, windows of equal size are neighbours, so that
    attention takes them together. Bai et al. 2025, "Qwen2.5-VL", arXiv 2502.13923, section 2.1.1.

    Args:
        grids: frames, rows and columns of each image, in patches.
        merge_size: patches along the side of a cell.
        window_cells: cells along the side of a window.

    Returns:
        The cells in the order of their windows, [cells]; cumulative patches of the windows,
        [windows + 1].
    """
    orders, lens, first = [], [], 0
    for frames, height, width in grids:
        rows, columns = height // merge_size, width // merge_size
        row, column = np.indices((rows, columns)) // window_cells
        across = -(-columns // window_cells)
        frame = np.arange(frames).reshape(-1, 1, 1)
        windows = ((frame * -(-rows // window_cells) + row) * across + column).ravel()
        sizes = np.bincount(windows)
        orders.append(first + np.lexsort((windows, -sizes[windows])))
        lens.append(np.sort(sizes)[::-1] * merge_size**2)
        first += len(windows)
    ends = np.cumsum(np.concatenate([[0], *lens]), dtype=np.int32)
    return np.concatenate(orders), ends
