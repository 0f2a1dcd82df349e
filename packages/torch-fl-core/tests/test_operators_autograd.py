"""Owns: tests of autograd on flagos: views, in-place, hooks, custom functions, torch.func, forward
mode, inference mode, checkpoints, and that numerical gradients agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from memory_level import assert_back_at, settled
from parity import assert_same, gradients, leaf, uneven, with_gradients
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Callable

IN_GRAPHS: dict[str, Callable[[torch.Tensor], Any]] = {
    "in-place on a view": lambda x: _then(x * 1, lambda y: y[1].mul_(3)),
    "in-place on a chain of views": lambda x: _then(
        x * 1, lambda y: y.t()[1:].view_as(y.t()[1:]).exp_()
    ),
    "in-place before a view is used": lambda x: _views_after(x * 1),
    "copy into a slice": lambda x: _then(torch.zeros_like(x), lambda y: y[:, 1].copy_(x[:, 0])),
    "setitem": lambda x: _then(x * 1, lambda y: y.__setitem__((0, 1), x[1, 0] * 2)),
    "setitem by mask": lambda x: _then(x * 1, lambda y: y.__setitem__(y > 0, 0.0)),
    "index_put": lambda x: _then(
        x * 1, lambda y: y.index_put_((torch.tensor([0, 0]),), x[:2], True)
    ),
    "expand": lambda x: x[:1].expand(3, 4) * x,
    "as_strided": lambda x: (x * 1).as_strided((2, 2), (4, 1), 1),
    "unbind": lambda x: sum(y * i for i, y in enumerate(x.unbind(1))),
    "split": lambda x: [y * i for i, y in enumerate(x.split(1))],
    "cat of views": lambda x: torch.cat([x[:1], x[1:].flip(0)]),
    "gather": lambda x: x.gather(1, torch.zeros(3, 2, dtype=torch.int64, device=x.device)),
    "index": lambda x: x[torch.tensor([0, 0, 2]), 1:],
    "boolean index": lambda x: x[x > 0],
    "where": lambda x: torch.where(x > 0, x, x.exp()),
    "resized view": lambda x: (x * 1).unfold(1, 2, 1).sum(-1),
    "diagonal": lambda x: _then(x[:, :3] * 1, lambda y: y.diagonal().zero_()),
    "clone": lambda x: x.t().clone(memory_format=torch.contiguous_format),
    "dtype": lambda x: x.double().float().bfloat16().float(),
    "to the CPU and back": lambda x: x.cpu().exp().to(x.device),
    "max": lambda x: x.max(1),
    "zero-dim": lambda x: x.sum() * x.mean() / 3,
    "cpu scalar": lambda x: x * torch.tensor(2.0) + torch.tensor(1.5),
    "detached part": lambda x: x.detach() * x,
    "repeated use": lambda x: x * x + x.sin() * x.cos() / (x + 3),
}  # fmt: skip


def _then(tensor: torch.Tensor, change: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    change(tensor)
    return tensor * 2


def _views_after(y: torch.Tensor) -> Any:
    view = y[1]
    y.mul_(2)
    view.add_(1)
    return y.clone(), view * 3


@pytest.mark.parametrize("name", IN_GRAPHS)
def test_graphs(name: str) -> None:
    assert_same(with_gradients(IN_GRAPHS[name]), leaf(3, 4))


def test_leaves_and_gradients_live_on_the_device() -> None:
    x = leaf(3, 4).detach().to("flagos").requires_grad_()
    y = (x * 2).sum()
    assert y.grad_fn is not None
    assert x.is_leaf
    y.backward()
    assert x.grad.device == x.device
    first = x.grad
    (x * 2).sum().backward()
    assert x.grad is first
    assert first.unique().tolist() == [4.0]
    x.grad = None
    with pytest.raises(RuntimeError, match="device"):
        x.grad = torch.zeros(3, 4)
    with pytest.raises(RuntimeError, match="leaf"):
        x.add_(1)
    with torch.no_grad():
        x.add_(1)
    assert x._version == 1


def test_hooks_see_device_tensors_and_may_replace_them() -> None:
    seen: list[Any] = []
    x = torch.ones(3, device="flagos", requires_grad=True)
    y = x * 2
    x.register_hook(lambda g: seen.append(("leaf", g.device.type)) or g * 10)
    y.register_hook(lambda g: seen.append(("inner", g.tolist())))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(("after", p.grad.tolist())))
    y.grad_fn.register_hook(lambda gi, go: seen.append(("node", gi[0].device.type)))
    y.grad_fn.register_prehook(lambda go: (go[0] + 1,))
    y.retain_grad()
    y.sum().backward()
    assert ("leaf", "flagos") in seen
    assert ("inner", [1.0] * 3) in seen
    assert ("node", "flagos") in seen
    assert seen[-1] == ("after", [40.0] * 3)
    assert y.grad.tolist() == [1.0] * 3


def test_module_hooks() -> None:
    seen: list[str] = []
    net = nn.Linear(3, 2).to("flagos")
    net.register_forward_pre_hook(lambda m, args: seen.append("pre"))
    net.register_forward_hook(lambda m, args, out: out * 2)
    net.register_full_backward_hook(lambda m, gi, go: seen.append(gi[0].device.type))
    x = torch.ones(1, 3, device="flagos", requires_grad=True)
    net(x).sum().backward()
    assert seen == ["pre", "flagos"]
    torch.testing.assert_close(x.grad, 2 * net.weight.sum(0, keepdim=True))


class Cube(torch.autograd.Function):
    """With everything a function may have: marks, non-tensors, saved results, double backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> Any:
        assert not torch.is_grad_enabled()
        result = x**3 * scale
        ctx.scale = scale
        ctx.save_for_backward(x, result)
        flags = x > 0
        ctx.mark_non_differentiable(flags)
        return result, flags

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> Any:
        x, result = ctx.saved_tensors
        assert grad.device == x.device == result.device
        if x.device.type == "flagos":
            assert torch.flagos.current_device() == x.device.index
        return grad * 3 * x**2 * ctx.scale, None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, _: Any) -> Any:
        raise NotImplementedError


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


def test_custom_functions() -> None:
    def run(x: torch.Tensor) -> Any:
        result, flags = Cube.apply(x, 0.5)
        (first,) = gradients(result, [x], create_graph=True)
        changed = x * 1
        doubled = Doubled.apply(changed)
        assert doubled is changed
        return result, flags, first, gradients(first, [x]), gradients(doubled, [x])

    assert_same(run, leaf(3, 4))
    x = torch.ones(2, device="flagos", dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: Cube.apply(x, 2.0)[0], [x])


def test_higher_order_interfaces() -> None:
    def run(x: torch.Tensor) -> Any:
        def function(x: torch.Tensor) -> torch.Tensor:
            return (x.sin() * x.sum()).exp().sum()

        with torch.no_grad():
            ones = torch.ones_like(x)
        api = torch.autograd.functional
        return (
            api.jacobian(lambda x: x**2, x, vectorize=True),
            api.hessian(function, x),
            api.hvp(function, x, ones),
            api.vjp(lambda x: x**2, x, ones),
        )

    assert_same(run, uneven((3,)))


FUNC: dict[str, Callable[[torch.Tensor], Any]] = {
    "vmap": lambda x: torch.func.vmap(lambda r: (r * r.sum(), r.sort()[0], r @ x.t()))(x),
    "vmap of in-place": lambda x: torch.func.vmap(lambda r: r.clone().add_(1).mul_(2))(x),
    "vmap out_dims": lambda x: torch.func.vmap(torch.sin, in_dims=1, out_dims=1)(x),
    "nested vmap": lambda x: torch.func.vmap(torch.func.vmap(torch.exp))(x),
    "vmap of index": lambda x: torch.func.vmap(lambda r: r[torch.tensor([0, 2])])(x),
    "vmap of linear": lambda x: torch.func.vmap(functional.linear, in_dims=(None, 0))(x, x[None]),
    "grad": lambda x: torch.func.grad(lambda y: (y.sin() * y).sum())(x),
    "grad and value": lambda x: torch.func.grad_and_value(lambda y: y.exp().sum())(x),
    "grad of grad": lambda x: torch.func.grad(lambda y: torch.func.grad(torch.sin)(y))(x[0, 0]),
    "per-sample": lambda x: torch.func.vmap(torch.func.grad(lambda r: (r**3).sum()))(x),
    "jvp": lambda x: torch.func.jvp(lambda y: y.tanh() @ y.t(), (x,), (x.cos(),)),
    "vjp": lambda x: torch.func.vjp(torch.exp, x)[1](x.cos()),
    "jacrev": lambda x: torch.func.jacrev(lambda y: y.sin() * y.sum())(x[0]),
    "jacfwd": lambda x: torch.func.jacfwd(lambda y: y.sin() * y.sum())(x[0]),
    "hessian": lambda x: torch.func.hessian(lambda y: (y**3).sum())(x[0]),
    "linearize": lambda x: torch.func.linearize(torch.sin, x)[1](x),
    "functionalize": lambda x: torch.func.functionalize(lambda y: y.clone().add_(1).t())(x),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
@pytest.mark.parametrize("name", FUNC)
def test_function_transforms(name: str) -> None:
    assert_same(FUNC[name], uneven((3, 4)))


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_numbers_under_vmap(randomness: str) -> None:
    def run(x: torch.Tensor) -> Any:
        return torch.func.vmap(lambda r: (functional.dropout(r, 0.5), torch.rand_like(r)),
                               randomness=randomness)(x)  # fmt: skip

    assert_same(run, torch.ones(3, 40))
    with pytest.raises(RuntimeError, match="randomness"):
        torch.func.vmap(torch.rand_like)(torch.ones(2, 3, device="flagos"))


def test_functional_modules() -> None:
    def run(x: torch.Tensor) -> Any:
        torch.manual_seed(0)
        models = [nn.Linear(4, 2).to(x.device) for _ in range(3)]
        stacked, buffers = torch.func.stack_module_state(models)
        base = nn.Linear(4, 2).to("meta")
        call = torch.func.functional_call
        return torch.func.vmap(lambda p, b: call(base, (p, b), (x,)))(stacked, buffers)

    assert_same(run, uneven((3, 4)))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_forward_mode() -> None:
    def run(x: torch.Tensor, t: torch.Tensor) -> Any:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, t)
            plain = torch.ones_like(x)
            functions = (
                lambda y: y.exp() * y,
                lambda y: y.sum(0),
                lambda y: y @ y.t(),
                lambda y: functional.layer_norm(y, (4,)),
                lambda y: y * plain + 3,
                lambda y: plain * 2,  # has no tangent
                lambda y: torch.cat([y, plain]),
                lambda y: y.clone().mul_(y),
                lambda y: torch.where(y > 0, y, plain),
                lambda y: (y[0] * 1).copy_(y[1]),
                lambda y: functional.softmax(y, -1),
                lambda y: y.to(torch.float64),
                lambda y: y.double().float() - y.t().reshape(3, 4),
            )
            results = [tuple(forward_ad.unpack_dual(function(dual))) for function in functions]
        return [y for pair in results for y in pair if y is not None]

    assert_same(run, uneven((3, 4)), uneven((3, 4)).cos())


def test_zero_tensors_of_forward_mode_cost_no_memory() -> None:
    before = settled()
    zero = torch._efficientzerotensor((1000, 1000), device="flagos")
    assert zero._is_zerotensor()
    assert_back_at(before)
    x = torch.ones(2, 2, device="flagos")
    small = torch._efficientzerotensor((2, 2), device="flagos")
    assert (x + small).tolist() == x.tolist()
    assert (x * small)._is_zerotensor()
    assert small.clone().tolist() == [[0.0, 0.0]] * 2
    with pytest.raises(RuntimeError, match="ZeroTensor"):
        small.add_(1)


DETACHED: dict[str, Callable[[torch.Tensor], Any]] = {
    "to the CPU": lambda x: x.cpu().numpy().tolist(),
    "as a list": lambda x: x.tolist(),
    "another dtype": lambda x: x.double(),
    "arithmetic": lambda x: x + x,
    "in place": lambda x: x.add_(1),
    "copied from": lambda x: torch.zeros_like(x).copy_(x),
    "copied to": lambda x: x.copy_(torch.ones_like(x)),
    "out": lambda x: torch.add(x, x, out=x),
    "a list of tensors": lambda x: torch._foreach_add([x], 1.0),
    "a list in place": lambda x: torch._foreach_add_([x], 1.0),
    "filled": lambda x: x.zero_(),
    "resized": lambda x: x.resize_(1),
}


@pytest.mark.parametrize("name", DETACHED)
@pytest.mark.parametrize(
    "detach",
    [torch.Tensor.detach, lambda x: x.data, lambda x: x[:1].data],
    ids=["detach", "data", "view"],
)
def test_what_was_detached_from_an_inference_tensor_can_be_used(
    name: str, detach: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """The usual end of a prediction: `y.detach().cpu().numpy()`."""

    def run(x: torch.Tensor) -> Any:
        with torch.inference_mode():
            y = x * 2
        detached = detach(y)
        return DETACHED[name](detached), detached

    assert_same(run, uneven((2, 3)))


@pytest.mark.parametrize(
    "write", [torch._foreach_zero_, lambda xs: torch._foreach_add_(xs, 1.0)], ids=["zero", "add"]
)
def test_a_list_of_inference_tensors_is_written_in_inference_mode_only(
    write: Callable[[list[torch.Tensor]], None],
) -> None:
    with torch.inference_mode():
        x = torch.ones(3, device="flagos")
        write([x])
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        write([x])


def test_inference_mode() -> None:
    x = torch.ones(3, 3, device="flagos", requires_grad=True)
    with torch.inference_mode():
        y = x * 2
        view = y[0]
        view.add_(1)
        y.mul_(2)
        assert y.is_inference()
        assert view.is_inference()
        assert not y.requires_grad
        fresh = torch.zeros(2, device="flagos")
        fresh.add_(1)
        torch.add(fresh, 1, out=fresh)
        torch._foreach_add_([fresh], 1.0)
        out = torch.empty(0, device="flagos")
        torch.mm(y, y, out=out)
        y.resize_(2, 2)
        moved = y.cpu().to("flagos")
        with pytest.raises(RuntimeError, match="do not track version"):
            _ = y._version
    assert fresh.tolist() == [3.0, 3.0]
    assert moved.is_inference()
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        y.add_(1)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        (x[:2, :2] * y).sum().backward()
    assert (x[:2, :2] * y.clone()).sum().requires_grad


@pytest.mark.filterwarnings("ignore:Error detected in SqrtBackward0:UserWarning")
def test_gradient_modes() -> None:
    x = torch.ones(2, device="flagos", requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad
    with torch.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="nan"):
        torch.sqrt((x * 0) - 1).sum().backward()
    with torch.autograd.graph.save_on_cpu():
        y = (x.exp() ** 2).sum()
    y.backward()
    assert x.grad.device.type == "flagos"
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.to("flagos")):
        z = (x.exp() ** 2).sum()
    previous = x.grad.clone()
    z.backward()
    assert torch.equal(x.grad, 2 * previous)


SAMPLES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "matmul": (torch.matmul, ((2, 3), (3, 2))),
    "layer_norm": (lambda x: functional.layer_norm(x, (4,)), ((2, 4),)),
    "batch_norm": (lambda x: functional.batch_norm(x, None, None, training=True), ((4, 2, 2),)),
    "softmax": (lambda x: functional.softmax(x, -1), ((2, 4),)),
    "cross_entropy": (
        lambda x: functional.cross_entropy(x, torch.tensor([1, 0], device=x.device)),
        ((2, 3),),
    ),
    "embedding": (
        lambda w: functional.embedding(torch.tensor([0, 2, 0], device=w.device), w),
        ((3, 2),),
    ),
    "gelu": (functional.gelu, ((5,),)),
    "logsumexp": (lambda x: x.logsumexp(0), ((4, 2),)),
    "cumprod": (lambda x: x.cumprod(0), ((4,),)),
    "index_add": (
        lambda x, y: x.index_add(0, torch.tensor([1, 1], device=x.device), y),
        ((3, 2), (2, 2)),
    ),
    "inverse": (lambda x: torch.linalg.inv(x + 3 * torch.eye(3, device=x.device)), ((3, 3),)),
    "pooling": (lambda x: functional.avg_pool2d(x, 2), ((1, 1, 4, 4),)),
    "einsum": (lambda x, y: torch.einsum("ij,jk->ik", x, y), ((2, 3), (3, 2))),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("name", SAMPLES)
def test_gradcheck(name: str) -> None:
    function, shapes = SAMPLES[name]
    host = [uneven(shape, torch.float64) for shape in shapes]
    given = [x.to("flagos").requires_grad_() for x in host]
    options = {"check_batched_grad": True, "check_forward_ad": True}
    assert torch.autograd.gradcheck(function, given, **options)
    assert torch.autograd.gradgradcheck(function, given)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("preserve", [True, False])
def test_checkpoint_with_dropout(reentrant: bool, preserve: bool) -> None:
    """With the state kept, a recomputed block gives what the plain one does, bit for bit."""

    def block(x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(functional.dropout(x.exp(), 0.5).sin(), 0.3)

    def run(x: torch.Tensor) -> Any:
        torch.manual_seed(5)
        y = checkpoint(block, x, use_reentrant=reentrant, preserve_rng_state=preserve)
        state = torch.rand(3, device=x.device)
        (grad,) = torch.autograd.grad(y.sum(), [x]) if not reentrant else (None,)
        if reentrant:
            y.sum().backward()
            grad, x.grad = x.grad, None
        return y, grad, state, torch.rand(3, device=x.device)

    def plain(x: torch.Tensor) -> Any:
        torch.manual_seed(5)
        y = block(x)
        return y, torch.autograd.grad(y.sum(), [x])[0], torch.rand(3, device=x.device)

    x = torch.linspace(0, 1, 200).requires_grad_()
    if preserve:
        assert_same(run, x)
        ours, theirs = (x.detach().to("flagos").requires_grad_() for _ in range(2))
        (y, grad, _, after), (y0, grad0, state0) = run(ours), plain(theirs)
        assert torch.equal(y, y0)
        assert torch.equal(grad, grad0)
        torch.manual_seed(5)
        plain(theirs)
        assert not torch.equal(after, state0)
    else:
        ours = x.detach().to("flagos").requires_grad_()
        y, grad, *_ = run(ours)
        assert not torch.equal(grad != 0, y != 0)


def test_a_graph_is_freed_with_its_last_tensor() -> None:
    x = torch.ones(1000, device="flagos", requires_grad=True)
    before = settled()
    y = (x.exp() * x).sin().sum()
    assert torch.flagos.memory_allocated() > before
    y.backward()
    del y
    x.grad = None
    assert_back_at(before)


def test_a_graph_may_cross_devices() -> None:
    mixed = torch.ones(3, requires_grad=True)
    (mixed.to("flagos").exp().cpu() * mixed).sum().backward()
    assert mixed.grad.device.type == "cpu"
    assert torch.allclose(mixed.grad, 2 * torch.exp(torch.ones(3)))


def test_errors_in_backward_arrive_and_the_engine_lives_on() -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            raise ValueError("broken on purpose")

    x = torch.ones(3, device="flagos", requires_grad=True)
    for _ in range(3):
        with pytest.raises(ValueError, match="on purpose"):
            Broken.apply(x).sum().backward()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0] * 3
