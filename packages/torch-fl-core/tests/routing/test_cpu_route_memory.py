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
