"""Layers that `kernels.kernelize` can put in place of a model's own."""

from __future__ import annotations

import torch
from torch import nn

from ._relu import relu


class ReLU(nn.Module):
    """Stands in for `torch.nn.ReLU` in inference.

    The input has to be contiguous. Where the layer it replaces says `inplace`, the input is
    overwritten.
    """

    has_backward: bool = False
    can_torch_compile: bool = False

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return relu of `input`."""
        return relu(input, out=input if getattr(self, "inplace", False) else None)
