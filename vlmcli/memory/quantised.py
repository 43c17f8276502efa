"""Bytes of a model's weights where matrices are held in fewer bits than the rest.

Exact, as the engine allocates: the shapes decide which numbers are in which format.
"""

from collections.abc import Iterable

from vlmcli.engine.weight_formats import WeightFormat, decoder_format, matrix_bytes, tower_format
from vlmcli.memory import estimate
from vlmcli.memory.facts import ModelFacts

Matrices = tuple[tuple[int, int], ...]


def held_bytes(facts: ModelFacts, modes: Iterable[str], dtype: str) -> int:
    """Bytes of all weights.

    Args:
        facts: the model.
        modes: of `--quantize`.
        dtype: of what is not quantised.
    """
    modes = frozenset(modes)
    total = estimate.weights(facts.num_parameters, dtype)
    total -= _saved(facts.decoder.matrices, facts.stored or decoder_format(modes), dtype)
    return total - sum(_saved(one.matrices, tower_format(modes), dtype) for one in facts.towers)


def _saved(matrices: Matrices, stored: WeightFormat | None, dtype: str) -> int:
    if stored is None:
        return 0
    return sum(
        estimate.weights(outputs * inputs, dtype) - matrix_bytes(stored, outputs, inputs)
        for outputs, inputs in matrices
    )
