"""Owns: tests of training with two devices: side by side, one after the other, one through both."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import torch_fl  # noqa: F401  (makes the devices)

ZERO, ONE, CPU = torch.device("flagos:0"), torch.device("flagos:1"), torch.device("cpu")
STEPS = 20


def _model(*devices: torch.device) -> nn.Sequential:
    """Three layers, each on its own of `devices`."""
    torch.manual_seed(7)
    layers = [nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 3)]
    return nn.Sequential(*[layer.to(place) for layer, place in zip(layers, devices, strict=True)])


def _forward(model: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    for layer in model:
        x = torch.tanh(layer(x.to(layer.weight.device)))
    return x


def _data(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(64, 8, generator=generator)
    return x, (x[:, 0] * 3).long() % 3


def _train(*devices: torch.device, optimizer: str = "AdamW", seed: int = 1) -> list[float]:
    model = _model(*devices)
    step = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01)
    x, y = _data(seed)
    losses = []
    for _ in range(STEPS):
        step.zero_grad()
        loss = nn.functional.cross_entropy(_forward(model, x), y.to(devices[-1]))
        loss.backward()
        for layer, device in zip(model, devices, strict=True):
            assert {parameter.grad.device for parameter in layer.parameters()} == {device}
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step.step()
        losses.append(loss.item())
    for state in step.state.values():
        assert {s.device for s in state.values() if s.dim()} <= set(devices)
    return losses


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD", "Adagrad"])
@pytest.mark.parametrize(
    "devices",
    [(ONE, ONE, ONE), (ZERO, ONE, ONE), (ONE, ZERO, ONE), (ZERO, ONE, CPU), (CPU, ONE, ZERO)],
    ids=lambda devices: "-".join(map(str, devices)),
)
def test_a_model_through_several_devices_learns_what_it_learns_on_the_cpu(
    devices: tuple[torch.device, ...], optimizer: str
) -> None:
    expected = _train(CPU, CPU, CPU, optimizer=optimizer)
    assert expected[-1] < expected[0]
    assert _train(*devices, optimizer=optimizer) == pytest.approx(expected, rel=1e-4)


def test_backward_on_one_while_the_other_holds_another_model() -> None:
    other = _model(ZERO, ZERO, ZERO)
    x, y = _data(3)
    pending = nn.functional.cross_entropy(_forward(other, x), y.to(ZERO))
    before = [parameter.detach().clone() for parameter in other.parameters()]
    allocated = torch.flagos.memory_allocated(0)

    losses = _train(ONE, ONE, ONE)
    assert losses == pytest.approx(_train(CPU, CPU, CPU), rel=1e-4)
    assert torch.flagos.memory_allocated(0) == allocated, "training on one took nothing of zero"
    for parameter, was in zip(other.parameters(), before, strict=True):
        assert torch.equal(parameter, was)
        assert parameter.grad is None

    pending.backward()
    reference = _model(CPU, CPU, CPU)
    nn.functional.cross_entropy(_forward(reference, x), y).backward()
    for ours, theirs in zip(other.parameters(), reference.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert ours.grad.device == ZERO
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


def test_two_threads_train_two_models_on_two_devices() -> None:
    expected = {seed: _train(CPU, CPU, CPU, seed=seed) for seed in (1, 2)}
    lock = threading.Lock()  # around making the model: the seed is the process's
    results: dict[int, list[float]] = {}

    def work(seed: int, device: torch.device) -> None:
        with lock:
            model = _model(device, device, device)
        step = torch.optim.AdamW(model.parameters(), lr=0.01)
        x, y = _data(seed)
        x, y = x.to(device), y.to(device)
        results[seed] = []
        for _ in range(STEPS):
            step.zero_grad()
            loss = nn.functional.cross_entropy(_forward(model, x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            step.step()
            results[seed].append(loss.item())

    threads = [threading.Thread(target=work, args=pair) for pair in ((1, ZERO), (2, ONE))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in (1, 2):
        assert results[seed] == pytest.approx(expected[seed], rel=1e-4)


def test_one_graph_with_roots_on_both_devices() -> None:
    w = torch.ones(3, requires_grad=True)
    a, b = (w.to(ZERO) * 2).sum(), (w.to(ONE) * 3).sum()
    torch.autograd.backward([a, b])
    assert w.grad is not None
    assert w.grad.tolist() == [5.0] * 3
    grads = torch.autograd.grad([(w.to(ONE) * 4).sum(), (w.to(ZERO) * 5).sum()], w)
    assert grads[0].tolist() == [9.0] * 3


def test_current_device_in_backward_is_the_nodes() -> None:
    seen: list[int] = []

    class Watch(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            return x.clone()

        @staticmethod
        def backward(ctx, grad):  # type: ignore[no-untyped-def]
            seen.append(torch.flagos.current_device())
            assert torch.ones(1, device="flagos").device == grad.device
            return grad

    x = torch.ones(2, device=ZERO, requires_grad=True)
    Watch.apply(Watch.apply(x).to(ONE)).sum().backward()
    assert seen == [1, 0]
    assert torch.flagos.current_device() == 0


def test_checkpointing_keeps_the_random_numbers_of_both_devices() -> None:
    def block(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = nn.functional.dropout(x, 0.5)
        return nn.functional.dropout(x.to(ONE), 0.5) * y

    grads = []
    for wrapped in (False, True):
        torch.manual_seed(5)
        x = torch.ones(100, device=ZERO, requires_grad=True)
        y = torch.ones(100, device=ONE, requires_grad=True)
        out = checkpoint(block, x, y, use_reentrant=False) if wrapped else block(x, y)
        out.sum().backward()
        assert x.grad is not None
        grads.append(x.grad)
    assert torch.equal(*grads)
    assert 0 < grads[0].count_nonzero() < 100
