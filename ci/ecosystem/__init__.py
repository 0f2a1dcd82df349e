"""Owns: the ecosystem smoke tests: other people's libraries, unchanged but for the device string.

One script for each library, run as `python -m ci.ecosystem.NAME` in an environment of their own
that `./dev test --ecosystem` makes. What holds for all of them, before any library is imported, is
here; what they share is in harness.py.
"""

from __future__ import annotations

import importlib.util
import os

# Nothing is downloaded: models are made from their configurations, data from a generator.
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", WANDB_DISABLED="true")
os.environ.update(HF_HUB_DISABLE_TELEMETRY="1", MPLBACKEND="Agg")

import torch

if torch.version.cuda is None and importlib.util.find_spec("torchvision"):
    # PyPI's torchvision is built for CUDA. Beside a torch for the CPU its operators are not there,
    # and its Python part, which is all that is used here, asks for the schemas of these.
    for _name in ("nms", "qnms"):
        _schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        torch.library.define(f"torchvision::{_name}", _schema)
