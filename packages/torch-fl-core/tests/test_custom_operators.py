"""Owns: tests of operators that users bring: for the CPU only, for flagos, and over PyTorch's own.

An operator that somebody registered for the target alone, here the CPU, runs on flagos tensors
through the fallback; one that has no kernel there is refused by name.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from memory_level import assert_back_at, settled
from parity import assert_same, uneven
from torch import Tensor

import torch_fl  # noqa: F401  (makes the device)
from torch_fl import routing

if TYPE_CHECKING:
    from collections.abc import Iterator

D = "flagos"
NAMESPACE = "flagos_test"
_numbers = itertools.count()


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    yield library
    library._destroy()


def _define(library: torch.library.Library, schema: str, *kernels: tuple[str, Any]) -> Any:
    """An operator of a fresh name; `schema` begins at its opening parenthesis."""
    name = f"operator_{next(_numbers)}"
    library.define(name + schema)
    for key, function in kernels:
        library.impl(name, function, key)
    return getattr(getattr(torch.ops, NAMESPACE), name)


def test_a_kernel_of_the_cpu_runs_on_flagos(library: torch.library.Library) -> None:
    devices = []

    def kernel(x: Tensor, y: Tensor, scale: float, *, bias: int = 1) -> Tensor:
        devices.append((x.device.type, y.device.type))
        return torch.from_numpy(x.numpy() * y.numpy() * scale + bias)

    call = _define(
        library, "(Tensor x, Tensor y, float scale, *, int bias=1) -> Tensor", ("CPU", kernel)
    )
    x, y = uneven((3, 4)), uneven((3, 4))
    result = call(x.to(D), y.to(D), 2.0, bias=3)
    assert result.device == torch.device(D, 0)
    assert torch.equal(result.cpu(), call(x, y, 2.0, bias=3))
    assert devices == [("cpu", "cpu")] * 2
    strided = call(x.to(D).t(), y.to(D).t(), 2.0)
    assert torch.equal(strided.cpu(), call(x.t(), y.t(), 2.0))
    assert torch.equal(call(x.to(D), y.to(D)[:1].expand(3, 4), 1.0).cpu(),
                       call(x, y[:1].expand(3, 4), 1.0))  # fmt: skip


def test_changes_made_in_place_are_seen(library: torch.library.Library) -> None:
    def kernel(x: Tensor, n: int) -> Tensor:
        x.mul_(n)
        return x

    def out_kernel(x: Tensor, *, out: Tensor) -> Tensor:
        out.resize_(x.shape)
        return out.copy_(x).add_(1)

    def several(xs: list[Tensor]) -> None:
        for x in xs:
            x.numpy()[...] = 5

    call = _define(library, "(Tensor(a!) x, int n) -> Tensor(a!)", ("CPU", kernel))
    out = _define(library, "(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", ("CPU", out_kernel))
    fill = _define(library, "(Tensor(a!)[] xs) -> ()", ("CPU", several))

    def run(x: Tensor) -> Any:
        view = x[1:]
        assert call(view, 3) is view
        target = torch.empty(0, device=x.device)
        assert out(x, out=target) is target
        lists = [torch.zeros(2, device=x.device), torch.zeros(3, 2, device=x.device)[:, 1]]
        fill(lists)
        return view, target, lists

    assert_same(run, uneven((3, 4)))


def test_a_schema_that_does_not_tell_of_a_change_still_changes_the_tensor(
    library: torch.library.Library,
) -> None:
    """The memory is shared, so it could not be otherwise; as on the CPU."""
    call = _define(library, "(Tensor x) -> ()", ("CPU", lambda x: x.add_(1) and None))
    x = torch.zeros(1, device=D)
    call(x)
    assert x.item() == 1


def test_what_shares_memory_shares_the_version(library: torch.library.Library) -> None:
    """Else autograd would not notice a change made through the result, and gradients were wrong."""
    view = _define(library, "(Tensor(a) x) -> Tensor(a)", ("CPU", lambda x: x.view(-1)[1:]))
    x = torch.ones(3, device=D, requires_grad=True)
    y = x.exp()
    with torch.no_grad():
        view(y.detach()).mul_(5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_views_and_inputs_as_results(library: torch.library.Library) -> None:
    view = _define(library, "(Tensor(a) x) -> Tensor(a)", ("CPU", lambda x: x[1:, ::2]))
    same = _define(library, "(Tensor(a!) x) -> Tensor(a!)", ("CPU", lambda x: x.mul_(1)))

    def run(x: Tensor) -> Any:
        result = view(x)
        assert result.untyped_storage()._cdata == x.untyped_storage()._cdata
        result.zero_()
        assert same(x) is x
        return x, result.stride(), result.storage_offset()

    assert_same(run, uneven((3, 4)))


def test_lists_and_optional_tensors(library: torch.library.Library) -> None:
    def total(xs: list[Tensor], weights: list[Tensor | None], bias: Tensor | None) -> Tensor:
        assert {x.device.type for x in xs} == {"cpu"}
        result = sum(x if w is None else x * w for x, w in zip(xs, weights, strict=True))
        return result if bias is None else result + bias

    call = _define(
        library, "(Tensor[] xs, Tensor?[] weights, Tensor? bias) -> Tensor", ("CPU", total)
    )
    halves = _define(
        library, "(Tensor x) -> (Tensor, Tensor[], Tensor?)",
        ("CPU", lambda x: (x * 2, [x[:1].clone(), x[1:].clone()], None)),
    )  # fmt: skip

    def run(x: Tensor) -> Any:
        first, parts, nothing = halves(x)
        assert nothing is None
        return call([x, x * 2], [None, x], None), call([x], [x], x), call([x, x], [x, x], x), \
            first, parts  # fmt: skip

    assert_same(run, uneven((3, 4)))


def test_a_kept_tensor_of_the_kernel_is_not_taken_from_it(library: torch.library.Library) -> None:
    """A kernel may return what it holds elsewhere, such as a cached constant."""
    cached = torch.arange(3.0)
    part = _define(library, "(Tensor x) -> Tensor", ("CPU", lambda x: cached))
    view = _define(library, "(Tensor x) -> Tensor", ("CPU", lambda x: cached[1:]))
    x = torch.zeros(3, device=D)
    for _ in range(3):
        result, piece = part(x), view(x)
        assert result.device.type == piece.device.type == "flagos"
        assert result.tolist() == [0.0, 1.0, 2.0]
        assert cached.device.type == "cpu"
        assert cached.sum().item() == 3
    kept: list[Tensor] = []
    keeps = _define(library, "(Tensor x) -> Tensor", ("CPU", lambda x: kept.append(x) or x * 2))
    keeps(torch.full((4,), 3.0, device=D))
    assert kept[0].device.type == "cpu"
    assert kept[0].tolist() == [3.0] * 4, "the alias outlives the call and its tensor"


def test_device_arguments_and_plain_results(library: torch.library.Library) -> None:
    like = _define(
        library, "(Tensor x, int n, *, Device? device=None) -> Tensor",
        ("CPU", lambda x, n, device=None: torch.full((n,), 2.0, device=device or x.device)),
    )  # fmt: skip
    x = torch.ones(1, device=D)
    for device in (None, D, torch.device(D, 0)):
        assert like(x, 3, device=device).device == torch.device(D, 0)
        assert like(x, 3, device=device).tolist() == [2.0] * 3
    facts = _define(
        library, "(Tensor x) -> (int, float, bool, str, int[])",
        ("CPU", lambda x: (x.dim(), float(x.sum()), True, "text", list(x.shape))),
    )  # fmt: skip
    assert facts(torch.ones(2, 3, device=D)) == (2, 6.0, True, "text", [2, 3])


def test_gradients_through_the_fallback(library: torch.library.Library) -> None:
    call = _define(library, "(Tensor x, Tensor y) -> Tensor",
                   ("CPU", lambda x, y: torch.from_numpy(x.numpy() ** 2 * y.numpy())))  # fmt: skip
    seen = []

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, grad: Tensor) -> Any:
        x, y = ctx.saved_tensors
        seen.append(grad.device.type)
        return grad * 2 * x * y, grad * x**2

    torch.library.register_autograd(call.default, backward, setup_context=setup, lib=library)

    def run(x: Tensor, y: Tensor) -> Any:
        result = call(x.detach(), y.detach())
        assert not result.requires_grad
        result = call(x, y)
        assert result.requires_grad
        return result, torch.autograd.grad((result * 3).sum(), [x, y])

    assert_same(run, uneven((3, 4)).requires_grad_(), uneven((3, 4)).requires_grad_())
    assert seen == ["cpu", "flagos"]


def test_custom_op_for_the_cpu_only() -> None:
    @torch.library.custom_op(f"{NAMESPACE}::cpu_only", mutates_args=(), device_types="cpu")
    def squared(x: Tensor) -> Tensor:
        return torch.from_numpy(x.numpy() ** 2)

    @squared.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    squared.register_autograd(
        lambda ctx, grad: 2 * grad * ctx.saved_tensors[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    x = uneven((3, 4)).to(D).requires_grad_()
    result = squared(x)
    assert result.device.type == "flagos"
    assert torch.equal(result.detach().cpu(), uneven((3, 4)) ** 2)
    result.sum().backward()
    assert torch.equal(x.grad.cpu(), 2 * uneven((3, 4)))
    y = uneven((2, 2)).double().to(D).requires_grad_()
    assert torch.autograd.gradcheck(squared, [y])

    @torch.library.custom_op(f"{NAMESPACE}::cpu_adds", mutates_args={"x"}, device_types="cpu")
    def adds(x: Tensor, n: int) -> None:
        x.numpy()[...] += n

    z = torch.zeros(3, device=D)
    version = z._version
    adds(z, 2)
    assert z.tolist() == [2.0] * 3
    assert z._version > version


def test_custom_op_for_flagos() -> None:
    @torch.library.custom_op(f"{NAMESPACE}::both", mutates_args=(), device_types="cpu")
    def both(x: Tensor) -> Tensor:
        return x + 1

    seen = []

    @both.register_kernel(D)
    def _(x: Tensor) -> Tensor:
        seen.append(x.device.type)
        return x + 2

    assert both(torch.zeros(1)).item() == 1
    assert both(torch.zeros(1, device=D)).item() == 2
    assert seen == ["flagos"]

    @torch.library.custom_op(f"{NAMESPACE}::every", mutates_args=())
    def every(x: Tensor) -> Tensor:
        seen.append(x.device.type)
        return x * 3

    assert every(torch.ones(1, device=D)).item() == 3
    assert seen[-1] == "flagos"

    @torch.library.custom_op(f"{NAMESPACE}::only_here", mutates_args=(), device_types=D)
    def only_here(x: Tensor) -> Tensor:
        return x * 4

    assert only_here(torch.ones(1, device=D)).item() == 4
    with pytest.raises(NotImplementedError, match="only_here"):
        only_here(torch.ones(1))


def test_what_has_no_kernel_is_refused_by_name(library: torch.library.Library) -> None:
    nowhere = _define(library, "(Tensor x) -> Tensor")
    cuda = _define(library, "(Tensor x) -> Tensor", ("CUDA", lambda x: x))
    for operator in (nowhere, cuda):
        with pytest.raises(NotImplementedError) as refusal:
            operator(torch.ones(2, device=D))
        assert str(operator).split(".")[-1] in str(refusal.value)
        assert "flagos" in str(refusal.value)
    sparse = torch.eye(2).to_sparse().to(D)
    with pytest.raises(NotImplementedError, match="flagos"):
        nowhere(sparse)


def test_composite_kernels_run_on_flagos_itself(library: torch.library.Library) -> None:
    devices = []

    def kernel(x: Tensor) -> Tensor:
        devices.append(x.device.type)
        return x.sin() * 2

    implicit = _define(library, "(Tensor x) -> Tensor", ("CompositeImplicitAutograd", kernel))
    explicit = _define(
        library, "(Tensor x) -> Tensor", ("CompositeExplicitAutograd", kernel)
    )  # fmt: skip
    x = uneven((3,)).to(D).requires_grad_()
    implicit(x).sum().backward()
    assert torch.allclose(x.grad.cpu(), 2 * uneven((3,)).cos())
    assert explicit(x.detach()).device.type == "flagos"
    assert devices == ["flagos"] * 2


def test_errors_of_the_kernel_come_through(library: torch.library.Library) -> None:
    class MyError(Exception):
        pass

    def kernel(x: Tensor) -> Tensor:
        raise MyError("of mine")

    call = _define(library, "(Tensor x) -> Tensor", ("CPU", kernel))
    refuses = _define(
        library, "(Tensor x) -> Tensor", ("CPU", lambda x: x + torch.ones(x.numel() + 1))
    )
    before = settled()
    with pytest.raises(MyError, match="of mine"):
        call(torch.ones(3, device=D))
    with pytest.raises(RuntimeError, match="must match the size"):
        refuses(torch.ones(3, device=D))
    assert_back_at(before)
    assert (torch.ones(3, device=D) + 1).tolist() == [2.0] * 3


def test_results_that_share_memory_with_each_other(library: torch.library.Library) -> None:
    def kernel(x: Tensor) -> Any:
        y = x * 2
        return y, y, [y[1:], y.t()]

    call = _define(library, "(Tensor x) -> (Tensor, Tensor, Tensor[])", ("CPU", kernel))

    def run(x: Tensor) -> Any:
        first, second, parts = call(x)
        storages = {y.untyped_storage()._cdata for y in (first, second, *parts)}
        first.zero_()
        # Copies: boxed kernels run below autograd, so a result that is a view of another result
        # shares its memory but is no view for autograd.
        return first is second, len(storages), second, [part.clone() for part in parts]

    assert_same(run, uneven((3, 4)))


def test_an_error_after_a_resize_leaves_no_pointer_to_freed_memory(
    library: torch.library.Library,
) -> None:
    def kernel(x: Tensor) -> None:
        x.resize_(5000).fill_(3)
        raise ValueError("too late")

    call = _define(library, "(Tensor(a!) x) -> ()", ("CPU", kernel))
    x = torch.ones(4, device=D)
    with pytest.raises(ValueError, match="too late"):
        call(x)
    others = [torch.full((4,), 7.0, device=D) for _ in range(50)]
    assert x.data_ptr() not in {other.data_ptr() for other in others}
    assert x.shape == (5000,), "as on the CPU"
    assert x.untyped_storage().nbytes() == 20_000


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state:UserWarning")
def test_other_kinds_of_tensors_through_the_fallback(library: torch.library.Library) -> None:
    call = _define(library, "(Tensor x) -> Tensor")
    for key in ("CPU", "SparseCPU", "SparseCsrCPU"):
        library.impl(call._qualified_op_name.split("::")[1], lambda x: x * 2, key)
    z = torch.complex(uneven((2, 2)), uneven((2, 2)).cos())
    for x in (z, torch.eye(2).to_sparse(), torch.eye(2).to_sparse_csr(), torch.tensor(2.0),
              torch.ones(0, 3), torch.ones(3, dtype=torch.bfloat16)):  # fmt: skip
        result = call(x.to(D))
        assert result.device.type == "flagos"
        assert torch.equal(result.cpu().to_dense(), (x * 2).to_dense())
    assert torch.equal(call(z.to(D).conj()).cpu(), z.conj() * 2)


@contextmanager
def _override(name: str, function: Any) -> Iterator[None]:
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl(name, function, "PrivateUse1", allow_override=True)
        yield
    finally:
        library._destroy()


@pytest.mark.filterwarnings("ignore:.*Overriding a previously registered kernel:UserWarning")
def test_an_operator_of_pytorch_can_be_overridden_and_given_back() -> None:
    x = torch.full((3,), 2.0, device=D, requires_grad=True)
    for _ in range(3):
        with _override("sin", lambda x: x * 100):
            assert torch.sin(x).tolist() == [200.0] * 3
            assert torch.sin(x).requires_grad
            torch.sin(x).sum().backward()  # the formula of the derivative is PyTorch's
            assert torch.sin(torch.full((3,), 2.0)).tolist() != [200.0] * 3
        assert torch.equal(torch.sin(x.detach()).cpu(), torch.sin(torch.full((3,), 2.0)))
    with routing.report() as report:
        torch.sin(x)
    assert [(row.operator, row.route) for row in report.rows] == [("aten::sin", "boxing")]


@pytest.mark.filterwarnings("ignore:.*Overriding a previously registered kernel:UserWarning")
def test_an_override_is_used_by_everything_above_it() -> None:
    calls = []

    def addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
        calls.append(a.device.type)
        return bias * beta + (a @ b) * alpha

    x = torch.ones(2, 3, device=D)
    linear = torch.nn.Linear(3, 4).to(D)
    with _override("addmm", addmm):
        inside = linear(x)
    assert calls == ["flagos"]
    torch.testing.assert_close(inside, linear(x))
    assert calls == ["flagos"]


def test_opcheck_of_a_custom_operator() -> None:
    @torch.library.custom_op(f"{NAMESPACE}::checked", mutates_args=(), device_types="cpu")
    def checked(x: Tensor) -> Tensor:
        return x.exp()

    @checked.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    torch.library.opcheck(
        checked, (torch.ones(3, device=D),), test_utils=("test_schema", "test_faketensor")
    )
