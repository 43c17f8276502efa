"""Every kernel on the card is as good as plain torch on the card."""

import pytest

pytestmark = pytest.mark.gpu
pytest.importorskip("triton")


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_kernels_are_as_good_as_plain_torch(card, head_dim):
    from vlmcli.bench.gpu_kernels import Sizes, compare_kernels

    sizes = Sizes(num_heads=12, num_kv_heads=2, head_dim=head_dim)
    assert not [one for one in compare_kernels(card, sizes) if not one.is_met]
