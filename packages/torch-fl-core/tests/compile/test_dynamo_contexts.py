"""Owns: tests that contexts which choose a device are part of the compiled code."""

from __future__ import annotations

import pytest
import torch
from against_cpu import FLAGOS, same
from children import output_of_child


def _chosen(x: torch.Tensor, device: torch.device | int | str | None) -> torch.Tensor:
    with torch.flagos.device(device):  # type: ignore[attr-defined]
        y = torch.ones(3, device=FLAGOS) + x
    return y * 2


@pytest.mark.parametrize("device", [0, "flagos", "flagos:0", torch.device(FLAGOS, 0), None, -1])
def test_a_chosen_device_is_no_break(device: torch.device | int | str | None) -> None:
    torch._dynamo.reset()
    counted = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(_chosen, backend=counted, fullgraph=True)
    x = torch.randn(3)
    same(compiled(x.to(FLAGOS), device), (x + 1) * 2)
    assert counted.frame_count == 1
    assert torch.flagos.current_device() == 0  # type: ignore[attr-defined]


def test_what_names_no_device_means_the_current_one() -> None:
    output_of_child(
        """
        import torch, torch_fl
        flagos = torch.flagos

        def made(x, device):
            with flagos.device(device):
                return torch.ones(2, device="flagos")

        compiled = torch.compile(made, backend="eager")
        for device in (None, "flagos", torch.device("flagos"), -1):
            for index in (0, 1):
                flagos.set_device(index)
                assert compiled(torch.ones(1), device).device.index == index, device
        """,
        FLAGOS_HOST_DEVICES="2",
    )


@pytest.mark.parametrize("then", ["", "break", "raise"])
def test_no_context_leaves_another_device_behind(then: str) -> None:
    """Nor does compiling one, however it ends."""
    output_of_child(
        f"""
        import torch, torch_fl
        flagos = torch.flagos

        class Chosen(flagos.device):
            pass

        before = flagos.device(1)
        contexts = (
            lambda x: flagos.device(1),
            lambda x: flagos.device(device=1),
            lambda x: flagos.device_of(x),
            lambda x: Chosen(1),
            lambda x: before,
        )

        def made(x, context):
            y = x + 1
            with context(x):
                inside = torch.ones(2, device="flagos")
                if {then!r} == "break":
                    torch._dynamo.graph_break()
                elif {then!r} == "raise":
                    raise ValueError
            return inside, torch.ones(2, device="flagos"), y

        compiled = torch.compile(made, backend="eager")
        x = torch.ones(3, device="flagos:1")
        for context in (*contexts, *contexts):
            try:
                inside, after, _y = compiled(x, context)
                assert (inside.device.index, after.device.index) == (1, 0)
            except ValueError:
                pass
            assert flagos.current_device() == 0
        """,
        FLAGOS_HOST_DEVICES="2",
    )


def test_a_device_that_is_chosen_inside_is_left_again() -> None:
    """Also where there is no such device."""
    torch._dynamo.reset()
    with pytest.raises(Exception, match="device"):
        torch.compile(_chosen, backend="eager")(torch.ones(3, device=FLAGOS), 99)
    assert torch.flagos.current_device() == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("arguments", [(), (False,), (True, torch.float16)])
def test_autocast_is_no_break(arguments: tuple[object, ...]) -> None:
    def product(x: torch.Tensor) -> torch.Tensor:
        with torch.flagos.amp.autocast(*arguments):  # type: ignore[attr-defined]
            return x @ x

    torch._dynamo.reset()
    x = torch.ones(3, 3, device=FLAGOS)
    found = torch.compile(product, backend="eager", fullgraph=True)(x)
    assert found.dtype == product(x).dtype
    assert not torch.is_autocast_enabled(FLAGOS)
