"""`bench gpu` refuses where there is no card; all of it that a CPU can run gives what it must."""

import pytest
import torch

from vlmcli.bench import gpu
from vlmcli.bench.checkpoints import SMALL, TINY, write_checkpoint
from vlmcli.errors import ExitCode, UsageError


def refuse(line):
    raise AssertionError(f"said {line!r} before it refused")


def test_without_a_card_it_refuses_and_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="needs a CUDA device") as refusal:
        gpu.run(SMALL, num_pages=1, max_tokens=16, device="cuda", say=refuse)
    assert refusal.value.exit_code == ExitCode.USAGE and "nvidia-smi" in refusal.value.remedy


@pytest.mark.parametrize("device", ["cpu", "cuda:7"])
def test_a_device_that_is_no_card_is_refused(monkeypatch, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UsageError, match=f"cannot run on {device}"):
        gpu.run(SMALL, num_pages=1, max_tokens=16, device=device, say=refuse)


def test_engine_graphs_and_transformers_say_the_same(tmp_path):
    """On a CPU in float32 the stand-in of graphs is exact, and so is the other runtime."""
    said = []
    found = gpu.measure(
        write_checkpoint(tmp_path, TINY, lively=True),
        num_pages=2,
        max_tokens=6,
        device="cpu",
        dtype="float32",
        dpi=36,
        say=said.append,
    )
    assert found["graphs_agree"] == found["transformers_agree"] == 1.0
    assert found["pages"] == 2 and found["tokens"] == 6 and found["visual_tokens"] > 50
    assert found["decode_tokens_per_s"] > 0 and found["pages_ratio"] > 0
    assert found["planned_bytes"] > 0 and found["plan_ratio"] is None
    assert len(said) == len(found)


def test_agreement_counts_tokens():
    assert gpu._agreement([(1, 2), (3, 4)], [(1, 2), (3, 5)]) == 0.75
