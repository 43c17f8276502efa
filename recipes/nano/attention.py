"""The tower's attention while it trains on a CPU in bf16: 2.5 times faster than torch's there.

torch's flash kernel keeps no scores and computes them anew on the way back; at the tower's sizes
(300 to 700 patches, 32 channels a head) one matrix product for the scores, kept in bf16, costs a
third of it. It knows no mask, no dropout and no second derivative, and reading does not use it.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor


class _Attention(torch.autograd.Function):
    """softmax(q kᵀ / √d) v over [B·H, N, D], gradients written out."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scaled = query * query.shape[-1] ** -0.5
        odds = torch.bmm(scaled, key.transpose(1, 2)).softmax(-1)
        ctx.save_for_backward(scaled, key, value, odds)
        return torch.bmm(odds, value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scaled, key, value, odds = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        value_gradient = torch.bmm(odds.transpose(1, 2), gradient)
        odds_gradient = torch.bmm(gradient, value.transpose(1, 2))
        scores_gradient = torch._softmax_backward_data(odds_gradient, odds, -1, odds.dtype)
        query_gradient = torch.bmm(scores_gradient, key) * scaled.shape[-1] ** -0.5
        return query_gradient, torch.bmm(scores_gradient.transpose(1, 2), scaled), value_gradient


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention without a mask over [B, H, N, D], in the dtype of its inputs."""
    if query.dtype != torch.bfloat16 or query.device.type != "cpu" or not query.requires_grad:
        return F.scaled_dot_product_attention(query, key, value)
    with torch.autocast("cpu", enabled=False):  # the softmax would be done in fp32
        flat = (x.flatten(0, 1).contiguous() for x in (query, key, value))
        mixed = cast(Tensor, _Attention.apply(*flat))
    return mixed.view(query.shape)
