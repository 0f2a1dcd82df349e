"""Owns: tests that the cpu route, which runs on copies, loses nothing that an operator writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torch_fl import routing


@pytest.fixture(autouse=True)
def on_copies() -> Iterator[None]:
    with routing.use({"*::*": "cpu, boxing"}):
        yield


def _ones(count: int) -> list[torch.Tensor]:
    return [torch.ones(3, device="flagos") for _ in range(count)]


def test_writes_to_lists_are_counted() -> None:
    tensors = _ones(3)
    torch._foreach_add_(tensors, 1.0)
    assert [tensor._version for tensor in tensors] == [1, 1, 1]


def test_backward_notices_a_write_to_a_list() -> None:
    weight = torch.ones(3, device="flagos", requires_grad=True)
    kept = torch.ones(3, device="flagos")
    result = (weight * kept).sum()
    torch._foreach_add_([kept], 1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_a_tensor_that_is_listed_twice_is_written_twice() -> None:
    first, second = _ones(2)
    torch._foreach_add_([first, first, second], _ones(3))
    assert first.tolist() == [3.0] * 3
    assert second.tolist() == [2.0] * 3
    assert [first._version, second._version] == [2, 1]


def test_fused_optimizers_count_as_on_the_cpu() -> None:
    versions = {}
    for device in ("cpu", "flagos"):
        parameter, gradient = torch.ones(4, device=device), torch.ones(4, device=device)
        torch._fused_sgd_(
            [parameter],
            [gradient],
            [],
            weight_decay=0.0,
            momentum=0.0,
            lr=0.5,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=True,
        )
        assert parameter.tolist() == [0.5] * 4
        versions[device] = parameter._version
    assert versions["flagos"] == versions["cpu"]


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_keeps_its_running_statistics(training: bool) -> None:
    expected = torch.nn.BatchNorm1d(3).train(training)
    module = torch.nn.BatchNorm1d(3).train(training).to("flagos")
    for _ in range(2):
        values = torch.randn(5, 3) * 2 + 1
        torch.testing.assert_close(module(values.to("flagos")).cpu(), expected(values))
    for name, buffer in expected.named_buffers():
        torch.testing.assert_close(module.get_buffer(name).cpu(), buffer)
    assert bool(expected.running_mean.any()) is training


def test_a_result_in_the_memory_of_out_arrives() -> None:
    left, right = torch.arange(4.0).reshape(2, 2), torch.ones(2, 2)
    out = torch.empty(0, device="flagos")
    torch.kron(left.to("flagos"), right.to("flagos"), out=out)
    assert torch.equal(out.cpu(), torch.kron(left, right))


def test_operators_that_look_at_memory_see_the_tensor_s_own() -> None:
    base = torch.arange(12.0)
    spread = base.to("flagos")[::2]
    wanted = torch.as_strided_copy(base[::2], (2, 2), (1, 2), 1)
    assert torch.equal(torch.as_strided_copy(spread, (2, 2), (1, 2), 1).cpu(), wanted)
    spread.as_strided_((2, 2), (1, 2), 1)
    assert torch.equal(spread.cpu(), base.as_strided((2, 2), (1, 2), 1))


def test_what_looks_at_memory_anew_has_one_route() -> None:
    with pytest.raises(ValueError, match="as_strided_"):
        routing.set("as_strided_", "cpu")


# -- arguments with gaps


@pytest.mark.parametrize("name", ["det", "slogdet", "logdet"])
def test_a_backward_that_looks_at_the_layout_of_its_input(name: str) -> None:
    """The factors of a contiguous matrix are its transpose's: forward and backward must agree."""
    function = torch.logdet if name == "logdet" else getattr(torch.linalg, name)
    whole = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).double()
    gradients = []
    for device in ("cpu", "flagos"):
        leaf = whole.clone().to(device).requires_grad_()
        result = function(leaf[:, ::2])
        (result if isinstance(result, torch.Tensor) else result[-1]).sum().backward()
        gradients.append(leaf.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0], equal_nan=True)


def test_expanded_and_overlapping_arguments() -> None:
    x = torch.arange(6.0, device="flagos")
    overlapping = x.as_strided((3, 3), (1, 1))
    for view in (x[:1].expand(4, 3), x.view(2, 3)[:, None].expand(2, 5, 3), overlapping):
        moved, parts = view.to("cpu"), torch.unbind_copy(view)
        assert moved.device.type == "cpu"
        assert torch.equal(view.sum(0).cpu(), moved.sum(0))
        assert [part.device for part in parts] == [x.device] * len(view)
        stacked = torch._foreach_add([view, view], 1.0)
        assert [each.device for each in stacked] == [x.device] * 2
        assert torch.equal(stacked[1].cpu(), moved + 1)


def test_statistics_with_gaps_are_written() -> None:
    mean, var = (torch.ones(8, device="flagos")[::2] for _ in range(2))
    x = torch.randn(5, 4, device="flagos")
    torch.nn.functional.batch_norm(x, mean, var, training=True)
    torch.testing.assert_close(mean.cpu(), 0.9 + 0.1 * x.cpu().mean(0))
