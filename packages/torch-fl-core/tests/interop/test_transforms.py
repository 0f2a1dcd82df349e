"""functorch, torch.jit, FakeTensor, checkpoint, modes and subclasses: as on the CPU."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from parity import FLAGOS, assert_close, assert_same, uneven, with_gradients
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vmap
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.flop_counter import FlopCounterMode

if TYPE_CHECKING:
    from collections.abc import Callable

attention = functional.scaled_dot_product_attention

# -- functorch


TRANSFORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "attention": lambda x: vmap(lambda r: attention(r, r, r))(x),
    "attention with a mask": lambda x: vmap(lambda r: attention(r, r, r, r @ r.mT))(x),
    "causal attention": lambda x: vmap(lambda r: attention(r, r, r, is_causal=True))(x),
    "gradient of attention": lambda x: grad(lambda y: attention(y, y, y).square().sum())(x),
    "each one's gradient": lambda x: vmap(grad(lambda r: attention(r, r, r).sum()))(x),
    "jvp": lambda x: jvp(lambda y: y.sin() * y.sum(), (x,), (x.cos(),)),
    "linearize": lambda x: linearize(lambda y: y.sin() * y.sum(), x)[1](x),
    "jacrev and jacfwd": lambda x: (jacrev(torch.sin)(x[0, 0, 0]), jacfwd(torch.sin)(x[0, 0, 0])),
    "hessian": lambda x: hessian(lambda y: (y**3).sum())(x[0, 0, 0]),
    "norms": lambda x: vmap(lambda r: functional.layer_norm(r, r.shape[-1:]))(x),
    "batch norm": lambda x: vmap(lambda r: functional.batch_norm(r, None, None, training=True))(x),
    "inverse": lambda x: vmap(torch.linalg.inv)(x[0] @ x[0].mT + torch.eye(4).to(x)),
    "cross entropy": lambda x: grad(
        lambda r: functional.cross_entropy(r, torch.zeros(4, dtype=torch.long).to(r.device))
    )(x[0, 0]),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    assert_close(TRANSFORMS[name], uneven((2, 3, 4, 8)))


def test_transforms_of_modules() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh())
    models = [nn.Sequential(nn.Linear(8, 4), nn.Tanh()) for _ in range(3)]

    def run(x: torch.Tensor) -> Any:
        here = [m.to(x.device) for m in models]
        stacked, buffers = torch.func.stack_module_state(here)
        values = {name: value.detach() for name, value in stacked.items()}
        base = model.to("meta")
        return vmap(lambda p, b: functional_call(base, (p, b), (x,)))(values, buffers)

    assert_close(run, uneven((2, 8)))


def test_a_random_operator_under_vmap_asks_for_a_mode() -> None:
    x = torch.ones(3, 16, device=FLAGOS)
    for mode, alike in (("same", True), ("different", False)):
        rows = vmap(lambda r: functional.dropout(r, 0.5), randomness=mode)(x)
        assert torch.equal(rows[0], rows[1]) is alike
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda r: r + torch.rand(16, device=FLAGOS))(x)


# -- torch.jit


def test_tracing_and_scripting() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU()).eval()

    def run(x: torch.Tensor) -> Any:
        here = copy.deepcopy(model).to(x.device)
        traced = torch.jit.trace(here, x)
        scripted = torch.jit.script(here)
        frozen = torch.jit.freeze(torch.jit.script(here))
        other = x * 2  # what was traced must not have become a constant
        with torch.no_grad():  # often enough for the profiling executor to optimise
            return [f(other) for f in (traced, scripted, frozen) for _ in range(3)]

    assert_close(run, uneven((2, 3, 6, 6)))


def test_scripts_make_tensors_on_the_device() -> None:
    @torch.jit.script
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(2, device="flagos") + torch.zeros([2], device=x.device)

    x = torch.ones(2, device=FLAGOS, requires_grad=True)
    for _ in range(3):
        function(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3]


class Looks(nn.Module):
    """Recurrence, attention and embedding, which PyTorch composes in ways of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 8)
        self.recurrence = nn.GRU(8, 8)
        self.attention = nn.MultiheadAttention(8, 2)
        self.transposed = nn.ConvTranspose1d(8, 8, 3)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        x = self.recurrence(self.embedding(indices))[0]
        x = self.attention(x, x, x, need_weights=False)[0]
        return self.transposed(x.transpose(1, 2)).sum(-1)


def test_a_trace_holds_operators_and_parameters_only() -> None:
    torch.manual_seed(0)
    model = Looks().eval()

    def run(indices: torch.Tensor) -> Any:
        here = copy.deepcopy(model).to(indices.device)
        traced = torch.jit.trace(here, indices)
        graph = traced.inlined_graph
        nodes = list(graph.nodes())
        constants = [x.output() for x in nodes if x.kind() == "prim::Constant"]
        tensors = [x for x in (y.toIValue() for y in constants) if isinstance(x, torch.Tensor)]
        assert all(x.dim() == 0 for x in tensors)
        kinds = {node.kind() for node in nodes}
        return traced(6 - indices), sorted(kinds & {"aten::_convolution", "aten::gru"})

    assert_close(run, torch.arange(6).view(3, 2))


# -- FakeTensor


def test_fake_tensors_say_their_device() -> None:
    with FakeTensorMode() as mode:
        x = torch.ones(2, 3, 8, device=FLAGOS)
        results = [
            attention(x, x, x),
            functional.dropout(x),
            nn.MultiheadAttention(8, 2, device=FLAGOS)(x, x, x)[0],
            nn.LSTM(8, 4, device=FLAGOS)(x)[0],
            functional.conv1d(x, torch.ones(2, 3, 3, device=FLAGOS)),
            torch.ones(2).flagos(),
            torch.arange(3, device="flagos"),
        ]
        assert all(y.device == FLAGOS for y in results)
        assert x.cpu().device.type == "cpu"
        with pytest.raises(RuntimeError, match="two devices, flagos:0 and cpu"):
            x + torch.ones(8)
    assert mode.from_tensor(torch.ones(2, device=FLAGOS)).device == FLAGOS


# -- checkpoint


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("low", [True, False])
def test_recomputation_is_the_first_computation_again(reentrant: bool, low: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)).to(FLAGOS)
    x = uneven((4, 8)).to(FLAGOS).requires_grad_()

    def gradient(run: Callable[[], torch.Tensor]) -> torch.Tensor:
        torch.manual_seed(1)
        with torch.autocast("flagos", torch.bfloat16, enabled=low):
            output = run()
        return torch.autograd.grad(output.float().square().sum(), x)[0]

    if reentrant:  # which torch.autograd.grad does not support

        def gradient(run: Callable[[], torch.Tensor]) -> torch.Tensor:
            torch.manual_seed(1)
            x.grad = None
            with torch.autocast("flagos", torch.bfloat16, enabled=low):
                output = run()
            output.float().square().sum().backward()
            assert x.grad is not None
            return x.grad

    plain = gradient(lambda: model(x))
    assert torch.equal(gradient(lambda: checkpoint(model, x, use_reentrant=reentrant)), plain)
    segments = gradient(lambda: checkpoint_sequential(model, 2, x, use_reentrant=reentrant))
    assert torch.equal(segments, plain)


# -- modes and subclasses


class Wrapper(torch.Tensor):
    """A tensor subclass that has no memory of its own."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def unwrap(x: Any) -> Any:
            return x.inner if isinstance(x, Wrapper) else x

        map_all = torch.utils._pytree.tree_map
        result = func(*map_all(unwrap, args), **map_all(unwrap, kwargs or {}))
        return map_all(lambda x: cls(x) if isinstance(x, torch.Tensor) else x, result)


SUBCLASS_WORK: dict[str, Callable[[Any], Any]] = {
    "attention": lambda x: attention(x, x, x),
    "dropout": lambda x: functional.dropout(x, 0.5),
    "linear": lambda x: nn.functional.linear(x, torch.ones(4, 8, device=x.device)),
    "encoder": lambda x: (
        nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).to(x.device).eval()(x)
    ),
    "recurrence": lambda x: nn.LSTM(8, 4).to(x.device)(x)[0],
    "writing": lambda x: x.add_(1),
    "moving": lambda x: x.cpu(),
}


@pytest.mark.parametrize("name", SUBCLASS_WORK)
def test_wrapper_subclasses_pass_through(name: str) -> None:
    torch.manual_seed(0)
    given = Wrapper(uneven((2, 3, 8)).to(FLAGOS))
    assert given.device == FLAGOS
    result = SUBCLASS_WORK[name](given)
    assert isinstance(result, Wrapper)
    assert result.inner.device == (torch.device("cpu") if name == "moving" else FLAGOS)


def test_the_flop_counter_sees_what_it_sees_on_the_cpu() -> None:
    def count(x: torch.Tensor) -> int:
        with FlopCounterMode(display=False) as counter:
            attention(x, x, x)
            functional.conv2d(x, torch.ones(2, 2, 3, 3, device=x.device))
            x @ x.mT
        return counter.get_total_flops()

    x = uneven((1, 2, 8, 8))
    assert count(x.to(FLAGOS)) == count(x) > 0


def test_forward_mode_of_attention() -> None:
    def run(x: torch.Tensor) -> Any:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return jvp(lambda y: attention(y, y, y), (x,), (x.cos(),))

    assert_close(run, uneven((1, 2, 4, 8)))


def test_gradients_through_saved_tensors_on_the_cpu() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return (x.exp() * x.sin()).tanh()

    assert_same(with_gradients(run), uneven((3, 4)).requires_grad_())
