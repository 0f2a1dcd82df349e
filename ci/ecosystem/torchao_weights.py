"""Owns: torchao: weights quantized, the rest as before."""

from __future__ import annotations

import copy
import tempfile
from typing import Any

import torch
from torch import nn
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    PerGroup,
    quantize_,
)

from ci.ecosystem.harness import DEVICE, case, compare, main


def _model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).to(dtype).eval()


INPUTS = torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
CONFIGS: dict[str, Any] = {
    "int8 weights": Int8WeightOnlyConfig,
    "int8 weights and dynamic int8 activations": Int8DynamicActivationInt8WeightConfig,
    "int4 weights in groups": lambda: IntxWeightOnlyConfig(
        weight_dtype=torch.int4, granularity=PerGroup(32)
    ),
    "float8 weights": Float8WeightOnlyConfig,
}


def _add(name: str, config: Any) -> None:
    @case(f"{name}: quantize on the device, forward")
    def forward() -> None:
        def run(device: str) -> Any:
            model = _model(torch.bfloat16).to(device)
            quantize_(model, config())
            with torch.no_grad():
                return model(INPUTS.to(device, torch.bfloat16))

        compare(run, 1e-2, 1e-2)

    @case(f"{name}: quantize on the CPU, move, save, load")
    def move() -> None:
        quantized = _model(torch.bfloat16)
        quantize_(quantized, config())
        with tempfile.NamedTemporaryFile() as file, torch.no_grad():
            expected = quantized(INPUTS.bfloat16())
            moved = copy.deepcopy(quantized).to(DEVICE)
            found = moved(INPUTS.to(DEVICE, torch.bfloat16))
            assert found.device.type == DEVICE
            torch.testing.assert_close(found.cpu(), expected, rtol=1e-2, atol=1e-2)
            torch.save(moved.state_dict(), file.name)
            loaded = _model(torch.bfloat16).to(DEVICE)
            state = torch.load(file.name, weights_only=False)
            loaded.load_state_dict(state, assign=True)
            torch.testing.assert_close(loaded(INPUTS.to(DEVICE, torch.bfloat16)), found)


for _name, _config in CONFIGS.items():
    _add(_name, _config)

if __name__ == "__main__":
    main(["torchao"])
