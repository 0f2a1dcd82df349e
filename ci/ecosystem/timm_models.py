"""Owns: timm: ten families of image models train and evaluate as on the CPU."""

from __future__ import annotations

from typing import Any

import timm
import torch
from torch.nn import functional as F

from ci.ecosystem.harness import case, compare, main, train

FAMILIES: dict[str, dict[str, Any]] = {
    "resnet10t": {},
    "vit_tiny_patch16_224": {"depth": 2, "img_size": 64},
    "convnext_atto": {},
    "efficientnet_lite0": {},
    "mobilenetv3_small_050": {},
    "regnetx_002": {},
    "mixer_s32_224": {"img_size": 64},
    "swin_tiny_patch4_window7_224": {"img_size": 56, "depths": (1, 1, 1, 1), "embed_dim": 24},
    "ghostnet_050": {},
    "densenet121": {"growth_rate": 8, "block_config": (2, 2, 2, 2)},
}


def _images() -> torch.Tensor:
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(2))


def _add(name: str, options: dict[str, Any]) -> None:
    size = 56 if "swin" in name else 64

    def model(device: str) -> Any:
        torch.manual_seed(0)
        return timm.create_model(name, num_classes=5, **options).to(device)

    @case(f"{name}: train and evaluate")
    def run_it() -> None:
        def run(device: str) -> Any:
            images = _images()[:, :, :size, :size].contiguous().to(device)
            labels = torch.tensor([1, 4], device=device)
            made = model(device)
            results = train(made, lambda: F.cross_entropy(made(images), labels), steps=1)
            evaluated = model(device).eval()
            with torch.no_grad():
                return [*results, evaluated(images)]

        compare(run, 2e-3, 2e-4)


for _name, _options in FAMILIES.items():
    _add(_name, _options)

if __name__ == "__main__":
    main(["timm"])
