"""Owns: what tests of the compiler know of PyTorch's releases: marks for what an older one cannot
do on any device, each with the reason."""

from __future__ import annotations

import pytest
import torch

OLD = torch.torch_version.TorchVersion(torch.__version__) < "2.12"
"""2.11, the oldest that is supported."""


def not_in_old(reason: str) -> pytest.MarkDecorator:
    """Leaves a test out under an old PyTorch: `reason` says what that has not or does wrong."""
    return pytest.mark.skipif(OLD, reason=f"PyTorch {torch.__version__}: {reason}")
