"""Owns: tests of the boundary of a compiled region: flagos tensors in, flagos tensors out, what
they share, and which versions they count."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch
from regions import FLAGOS, memory, ones, region

# -- names


def test_the_code_gets_the_targets_tensors_and_the_caller_flagos_tensors() -> None:
    seen: list[Any] = []

    def call(arguments: list[Any]) -> list[Any]:
        seen.extend((argument.device.type, argument.data_ptr()) for argument in arguments[:2])
        seen.append(arguments[2])
        return [arguments[0] + arguments[1], None, 7, arguments[1]]

    x, y = ones(3), torch.full((3,), 2.0)
    made, nothing, number, host = region(call, [0, -1, -1, -1])([x, y, 5])
    assert seen == [("cpu", x.data_ptr()), ("cpu", y.data_ptr()), 5]
    assert made.device == torch.device(FLAGOS, 0)
    assert made.tolist() == [3, 3, 3]
    assert nothing is None
    assert number == 7
    assert host is y


def test_results_on_the_host_stay_there() -> None:
    ours, theirs = region(lambda a: [a[0] * 2, a[0] * 2], [0, -1])([ones(2)])
    assert (ours.device.type, theirs.device.type) == (FLAGOS, "cpu")


def test_the_list_of_arguments_is_emptied() -> None:
    arguments = [ones(2)]
    region(lambda a: [a[0] + 1], [0])(arguments)
    assert arguments == []


@pytest.mark.parametrize("results", [[torch.ones(1)], [torch.ones(1)] * 3])
def test_another_number_of_results_is_refused(results: list[Any]) -> None:
    with pytest.raises(RuntimeError, match=f"returned {len(results)} results where 2"):
        region(lambda a: results, [0, 0])([ones(1)])


def test_no_list_of_results_is_refused() -> None:
    with pytest.raises(TypeError, match="must return a list or a tuple"):
        region(lambda a: a[0] + 1, [0])([ones(1)])


def test_a_layout_that_compiled_code_cannot_take_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"takes strided flagos tensors"):
        region(lambda a: [a[0]], [0])([torch.eye(2, device=FLAGOS).to_sparse()])


# -- memory that is shared


def test_results_share_memory_with_arguments_and_with_each_other() -> None:
    def call(a: list[Any]) -> list[Any]:
        (x,) = a
        fresh = torch.zeros(4)
        return [x, x[1:], x.view(2, 2), fresh, fresh[2:], fresh.view(2, 2).t()]

    x = ones(4)
    same, tail, square, fresh, half, turned = region(call, [0] * 6)([x])
    assert {memory(t) for t in (same, tail, square)} == {memory(x)}
    assert {memory(t) for t in (half, turned)} == {memory(fresh)}
    assert tail.storage_offset() == 1
    assert turned.stride() == (1, 2)
    x.mul_(3)
    fresh.fill_(5)
    assert tail.tolist() == [3, 3, 3]
    assert half.tolist() == [5, 5]
    assert same.untyped_storage()._cdata == x.untyped_storage()._cdata  # one storage, not two


def test_arguments_share_memory_in_the_code_as_outside() -> None:
    found: list[bool] = []

    def call(a: list[Any]) -> list[Any]:
        found.append(memory(a[0]) == memory(a[1]))
        found.append(a[0].untyped_storage()._cdata == a[1].untyped_storage()._cdata)
        a[0].add_(1)
        return [a[1] * 1]

    x = ones(4)
    (after,) = region(call, [0])([x, x[1:]])
    assert found == [True, True]
    assert after.tolist() == [2, 2, 2]


def test_the_same_argument_twice() -> None:
    x = ones(3)
    (twice,) = region(lambda a: [a[0] + a[1]], [0])([x, x])
    assert twice.tolist() == [2, 2, 2]


def test_a_result_that_the_code_keeps_stays_the_codes() -> None:
    kept = torch.zeros(3)
    held = region(lambda a: [kept, kept, kept[1:]], [0, 0, 0])
    one, two, tail = held([ones(1)])
    assert kept.device.type == "cpu"
    assert one is two
    assert memory(one) == memory(kept) == memory(tail)
    kept.add_(1)
    assert one.tolist() == [1, 1, 1]
    again, *_ = held([ones(1)])
    assert memory(again) == memory(kept)


def test_a_result_outlives_the_argument_whose_memory_it_has() -> None:
    x = ones(4)
    (view,) = region(lambda a: [a[0][1:]], [0])([x])
    del x
    gc.collect()
    assert view.tolist() == [1, 1, 1]


# -- versions


def test_writing_counts_versions_of_the_callers_tensor() -> None:
    x = ones(3)
    before = x._version
    region(lambda a: [a[0].add_(1)], [0])([x])
    assert x.tolist() == [2, 2, 2]
    assert x._version == before + 1


def test_writing_to_what_autograd_saved_is_found() -> None:
    weight = ones(3).requires_grad_()
    x = ones(3)
    loss = (weight * x).sum()
    with torch.no_grad():
        region(lambda a: [a[0].add_(1)], [0])([x])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_storages_that_the_code_replaces_are_the_callers() -> None:
    def grow(a: list[Any]) -> list[Any]:
        a[0].untyped_storage().resize_(64)
        a[0].set_(a[0].untyped_storage(), 0, (16,), (1,))
        a[0].fill_(3)
        return []

    x = ones(2)
    region(grow, [], (0,))([x])
    assert x.untyped_storage().nbytes() == 64
    assert x.untyped_storage().device.type == FLAGOS
    assert x.tolist() == [3] * 16


def test_an_error_after_a_resize_leaves_no_pointer_to_freed_memory() -> None:
    def call(a: list[Any]) -> list[Any]:
        a.pop().resize_(1 << 16).fill_(3)
        raise ValueError("too late")

    x = ones(4)
    with pytest.raises(ValueError, match="too late"):
        region(call, [0], written=(0,))([x])
    others = [torch.full((4,), 7.0, device=FLAGOS) for _ in range(50)]
    assert x.data_ptr() not in {other.data_ptr() for other in others}
    assert x.untyped_storage().nbytes() == 4 << 16
    assert x.tolist() == [3] * (1 << 16), "as on the CPU"


# -- arguments that come back


def test_an_argument_that_is_a_result_is_the_callers_own_tensor() -> None:
    x, y = ones(3), ones(3)
    results = region(lambda a: [a[0], a[0] * 2, a[1]], [0, 0, 0])([x, y])
    assert results[0] is x
    assert results[2] is y
    (kept,) = region(lambda a: [a.pop()], [0])([ones(2)])  # of a caller that has let it go
    assert kept.tolist() == [1, 1]
    view = x[1:]
    (same,) = region(lambda a: [a.pop()], [0])([view])
    assert same is view


def test_a_view_of_an_argument_is_a_tensor_of_its_own() -> None:
    x = ones(3)
    (result,) = region(lambda a: [a[0].view(3)], [0])([x])
    assert result is not x
    assert result.untyped_storage()._cdata == x.untyped_storage()._cdata


def test_a_tensor_may_get_another_storage_and_shape() -> None:
    """`x.data = y`: what the code computes, an argument, a result."""
    x, y = ones(3), torch.full((2, 2), 7.0, device=FLAGOS)
    seen = x.view(3)

    def exchange(a: list[Any]) -> list[Any]:
        first, second = a
        made = second * 2
        first.set_(made)
        return [made]

    (made,) = region(exchange, [0], written=(0,))([x, y])
    assert x.tolist() == made.tolist() == [[14, 14], [14, 14]]
    assert x.untyped_storage()._cdata == made.untyped_storage()._cdata
    assert seen.tolist() == [1, 1, 1]
    region(lambda a: [a[0].set_(a[1])], [0], written=(0,))([x, y])
    assert x.untyped_storage()._cdata == y.untyped_storage()._cdata
    y.add_(1)
    assert x.tolist() == [[8, 8], [8, 8]]


def test_a_region_is_copied_as_a_function_is() -> None:
    call = region(lambda a: [a.pop() + 1], [0])
    assert copy.copy(call) is call
    assert copy.deepcopy(call)([ones(1)])[0].item() == 2
