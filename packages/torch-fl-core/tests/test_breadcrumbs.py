"""Owns: tests of errors that a device reports later than they were made (FLAGOS_BREADCRUMBS)."""

from __future__ import annotations

import threading

import pytest
import torch
from children import output_of_child
from pretend_device.processes import on_pretend_device

from torch_fl import _C, routing

pretend = torch.ops.pretend
FAULT = "pretend error: an index of a kernel was out of bounds"


def _ways(x: torch.Tensor, event: torch.Event):
    """The calls in which users meet such an error."""
    return {
        "a kernel": lambda: x @ x,
        "the device": torch.flagos.synchronize,
        "accelerator": torch.accelerator.synchronize,
        "a stream": torch.flagos.current_stream().synchronize,
        "an event": event.synchronize,
    }


@on_pretend_device
def test_the_last_operators_are_named() -> None:
    x = torch.ones(3, 3, device="flagos")
    event = torch.Event("flagos")
    event.record()
    _C.set_breadcrumbs(True)
    torch.relu(x + 1).sum(0)
    pretend.break_with(FAULT)
    for name, call in _ways(x, event).items():
        with pytest.raises(torch.AcceleratorError) as caught:
            call()
        text = str(caught.value)
        assert text.startswith(FAULT), name
        assert caught.value.error_code == 710
        assert "newest first" in text
        order = [text.index(f"aten::{op}") for op in ("sum", "relu", "add")]
        assert order == sorted(order), text
        assert text.count("newest first") == 1
    assert "aten::mm -> boxing" in text
    pretend.break_with("")
    assert (x @ x).sum().item() == 27  # the process goes on where the device does


@on_pretend_device
def test_off_the_error_says_how_to_have_them_named() -> None:
    x = torch.ones(3, 3, device="flagos")
    event = torch.Event("flagos")
    event.record()
    pretend.break_with(FAULT)
    for call in _ways(x, event).values():
        with pytest.raises(torch.AcceleratorError, match="FLAGOS_BREADCRUMBS=1") as caught:
            call()
        assert caught.value.error_code == 710
    assert "aten::" not in str(caught.value)


@on_pretend_device
def test_threads_are_told_apart() -> None:
    _C.set_breadcrumbs(True)
    x = torch.ones(3, device="flagos")

    def work() -> None:
        for _ in range(300):
            x.mul(2)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    x.neg()
    pretend.break_with(FAULT)
    with pytest.raises(torch.AcceleratorError) as caught:
        torch.flagos.synchronize()
    lines = str(caught.value).splitlines()
    assert lines[2].strip().startswith("aten::neg -> boxing (thread ")
    assert lines[3].strip().startswith("aten::mul")
    assert len(lines) == 2 + 16


@on_pretend_device
def test_other_errors_stay_what_they_are() -> None:
    _C.set_breadcrumbs(True)
    x = torch.ones(3, 2, device="flagos")
    with pytest.raises(RuntimeError) as caught:
        x @ x
    assert "newest first" not in str(caught.value)
    assert not isinstance(caught.value, torch.AcceleratorError)


def test_the_variable_switches_it_on() -> None:
    code = """
    import torch, torch_fl
    (torch.ones(3, device="flagos") + 1).neg()
    print(torch_fl._C.last_calls(2))
    """
    last = {value: output_of_child(code, FLAGOS_BREADCRUMBS=value).strip() for value in "10"}
    assert last == {"1": "['aten::neg -> boxing', 'aten::add.Tensor -> boxing']", "0": "[]"}


@on_pretend_device
def test_a_device_that_fails_during_a_report_fails_the_call_and_not_the_process() -> None:
    x = torch.ones(3, 3, device="flagos")
    with routing.report() as report:
        x + x
        pretend.break_with(FAULT)
        for _ in range(3):
            with pytest.raises(torch.AcceleratorError, match=FAULT):
                x @ x
        pretend.break_with("")
        x + x
    calls = {row.operator: row.calls for row in report.rows}
    assert calls["aten::add.Tensor"] == 2
