"""One product over the patches of a cell: a convolution whose stride is its size.

The patches of a cell must lie one behind the other; bringing them together is not its business.
"""

from collections.abc import Iterator

from torch import Tensor

from vlmcli.engine.layers import Layer, WeightSlot, copy_slot, parameter
from vlmcli.kernels.linear import linear


class MergingLayer(Layer):
    """[N, merge_size² · width] to [N, out]; the checkpoint's columns go channel by channel.

    Args:
        width: numbers of a patch.
        out_size: numbers of a merged cell.
        merge_size: patches along the side of a cell.
        is_convolution: the checkpoint has a kernel with a bias, [out, width, size, size], instead
            of a matrix without one, [out, width · size²].
    """

    def __init__(
        self, width: int, out_size: int, merge_size: int, *, is_convolution: bool = False
    ) -> None:
        super().__init__()
        self.width, self.cell = width, merge_size**2
        self.weight = parameter(out_size, self.cell * width)
        self.bias = parameter(out_size) if is_convolution else None
        self.shape: tuple[int, ...] = tuple(self.weight.shape)
        if is_convolution:
            self.shape = (out_size, width, merge_size, merge_size)

    def weight_slots(self, name: str) -> Iterator[tuple[str, WeightSlot]]:
        """The weight, its columns brought into the order of patches, and the bias."""
        yield f"{name}.weight", WeightSlot(self.shape, self._fill)
        if self.bias is not None:
            yield f"{name}.bias", copy_slot(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, cell · width] to [tokens, out]."""
        return linear(x, self.weight, self.bias)

    def _fill(self, value: Tensor) -> None:
        by_patch = value.reshape(len(value), self.width, self.cell).transpose(1, 2)
        self.weight.copy_(by_patch.reshape(self.weight.shape))
