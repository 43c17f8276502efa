"""On the card: a job takes what was planned for it, and graphs and transformers agree with it."""

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def test_a_plan_is_within_five_percent(tmp_path):
    from vlmcli.bench.checkpoints import REUSE, write_checkpoint
    from vlmcli.bench.gpu import measure

    path = write_checkpoint(tmp_path, REUSE, lively=True, dtype=torch.bfloat16)
    found = measure(path, num_pages=4, max_tokens=64, device="cuda", say=lambda line: None)
    assert 1.0 <= found["plan_ratio"] <= 1.05
    assert found["graphs_agree"] > 0.5 and found["graphs_ratio"] > 1
