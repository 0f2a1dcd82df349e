"""Owns: programs that go wrong in every way, and wrong kernels on flagos, for test_programs.

Child processes import this before they run programs.
"""

from __future__ import annotations

import os
import random
import time

import torch

from torch_fl.testing.programs.registry import PROGRAMS, Program, Results, Skipped

_ON_FLAGOS = torch._C._get_privateuse1_backend_name() == "flagos"


def _values(device: str) -> torch.Tensor:
    return torch.arange(1.0, 7.0, device=device).reshape(2, 3)


def _off(device: str) -> float:
    return 1.0 if device == "flagos" else 0.0


def fine(device: str) -> Results:
    return {"values": _values(device), "text": f"on {device}"}


def ends_on_flagos(device: str) -> Results:
    if device == "flagos":
        os.write(2, b"last words\n")
        os.abort()
    return fine(device)


def ends(device: str) -> Results:
    os._exit(3)


def hangs(device: str) -> Results:
    while True:
        time.sleep(0.1)


def raises(device: str) -> Results:
    raise ValueError(f"no such thing on {device}:0")


def raises_on_flagos(device: str) -> Results:
    if device == "flagos":
        raise ValueError("not here")
    return fine(device)


def skipped(device: str) -> Results:
    raise Skipped("nobody has it")


def skipped_on_flagos(device: str) -> Results:
    if device == "flagos":
        raise Skipped("flagos does not have it")
    return fine(device)


def leaves_a_setting(device: str) -> Results:
    torch.set_default_dtype(torch.float64)
    return fine(device)


def varies(device: str) -> Results:
    return {"values": _values(device) + random.SystemRandom().random() * 1e-3}


def varies_more_on_flagos(device: str) -> Results:
    return {"values": _values(device) + random.SystemRandom().random() * 1e-3 + _off(device)}


def slightly_off(device: str) -> Results:
    return {"values": _values(device) * (1 + 1e-6 * _off(device))}


def other_names(device: str) -> Results:
    return {"values" if device == "flagos" else "numbers": _values(device)}


def other_strides(device: str) -> Results:
    values = _values(device)
    return {"values": values if device != "flagos" else values.t().contiguous().t()}


def other_dtype(device: str) -> Results:
    return {"values": _values(device).to(torch.float64 if device == "flagos" else torch.float32)}


def other_text(device: str) -> Results:
    return {"text": "one" if device == "flagos" else "two"}


def only_on_accelerators(device: str) -> Results:
    raise AssertionError("it must not be run where the native device is the CPU")


ALL = {
    function.__name__: Program(f"faulty.{function.__name__}", function)
    for function in (
        fine, ends_on_flagos, ends, hangs, raises, raises_on_flagos, skipped, skipped_on_flagos,
        leaves_a_setting, varies, varies_more_on_flagos, slightly_off, other_names,
        other_strides, other_dtype, other_text,
    )
}  # fmt: skip
ALL["only_on_accelerators"] = Program(
    "faulty.only_on_accelerators", only_on_accelerators, accelerator=True
)
ALL["of_the_future"] = Program("faulty.of_the_future", only_on_accelerators, since=(99, 1))


def register() -> None:
    """Makes these programs known to the process."""
    PROGRAMS.update({program.name: program for program in ALL.values()})


def make_kernels_wrong() -> None:
    """On flagos alone: values, a layout, a random stream."""
    if not _ON_FLAGOS:
        return
    from torch_fl import routing

    def called(name: str, *arguments: object, **options: object) -> torch.Tensor:
        with routing.use({name: "boxing"}):
            result: torch.Tensor = getattr(torch.ops.aten, name)(*arguments, **options)
        return result

    routing.set("mish.default", [lambda x: called("mish", x) * (1 + 1e-3), "boxing"])
    routing.set("silu.default", [lambda x: called("silu", x).contiguous(), "boxing"])

    def drawn_twice(x: torch.Tensor, *arguments: object, **options: object) -> torch.Tensor:
        called("exponential_", x, *arguments, **options)
        return called("exponential_", x, *arguments, **options)

    routing.set("exponential_.default", [drawn_twice, "boxing"])
