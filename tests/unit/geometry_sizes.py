"""Random picture sizes for the geometry tests."""

import random


def random_sizes(count: int, seed: int = 7, max_side: float = 2**13.5) -> list[tuple[int, int]]:
    """(height, width): pages, crops, strips and stamps, sides spread evenly in log space."""
    rng = random.Random(seed)
    sides = [max(1, round(max_side ** rng.random())) for _ in range(2 * count)]
    return list(zip(sides[::2], sides[1::2], strict=True))


def is_strip(height: int, width: int) -> bool:
    return max(height, width) / min(height, width) > 200
