"""Owns: tests that no random operator is forgotten: each draws from flagos' stream, and its numbers
are the CPU's for the same seed.

The operators come from PyTorch's own list, so a new one is tested as soon as PyTorch has it. Seeds,
states and generators as such are tested in test_random.
"""

from __future__ import annotations

import copy
import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch
from children import output_of_child
from parity import assert_same, gradients, leaf, uneven, with_gradients
from torch import distributions, nn
from torch.nn import functional

import torch_fl  # noqa: F401  (makes the device)
from torch_fl.testing.harness import tree

if TYPE_CHECKING:
    from collections.abc import Callable

flagos = torch.flagos
N = 23  # of rows and columns: no multiple of a vector

# What stock PyTorch cannot run on a CPU, by the beginning of the name; all else must be tested.
ELSEWHERE = (
    "_cudnn_", "_fused_dropout", "miopen_", "_lstm_mps", "_scaled_dot_product_flash_attention.",
    "_scaled_dot_product_efficient", "_scaled_dot_product_cudnn", "_flash_attention", "_triton_",
    "_scaled_dot_product_attention_math_for_mps", "_scaled_dot_product_fused_attention_over",
    "_efficient_attention", "_fill_mem_eff", "_cudnn_attention", "_nested_tensor_softmax",
)  # fmt: skip


def _random_operators() -> dict[str, torch._ops.OpOverload]:
    """Every operator with a Generator argument or PyTorch's tag for random ones, by name."""
    found = {}
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full.partition("::")
        if namespace != "aten":
            continue
        base, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, base), overload or "default")
        takes_generator = any("Generator" in str(x.type) for x in operator._schema.arguments)
        if takes_generator or torch.Tag.nondeterministic_seeded in operator.tags:
            found[f"{base}.{overload or 'default'}"] = operator
    return found


OPERATORS = _random_operators()
HERE = sorted(name for name in OPERATORS if not name.startswith(ELSEWHERE))

# Arguments by name, for all operators; a function gets the device.
VALUES: dict[str, Any] = {
    "self": lambda d: torch.full((N, N), 0.5, device=d),
    "input": lambda d: torch.full((N, N), 0.5, device=d),
    "p": 0.3,
    "train": True,
    "training": True,
    "size": [N, N],
    "names": None,
    "n": N,
    "low": 3,
    "high": 1000,
    "from": 2,
    "to": 500,
    "mean": 0.25,
    "std": 1.5,
    "num_samples": 15,
    "noise": lambda d: torch.zeros(N, N, device=d),
    "count": lambda d: torch.full((N, N), 40.0, device=d),
    "prob": lambda d: torch.full((N, N), 0.4, device=d),
    "query": lambda d: uneven((2, 3, 8, 4)).to(d),
    "key": lambda d: uneven((2, 3, 8, 4)).to(d).cos(),
    "value": lambda d: uneven((2, 3, 8, 4)).to(d).exp(),
    "dropout_p": 0.5,
}


def _full(value: float) -> Callable[[str], torch.Tensor]:
    return lambda device: torch.full((N, N), value, device=device)


# Arguments of single operators, on top.
OWN: dict[str, dict[str, Any]] = {
    "bernoulli_.Tensor": {"p": _full(0.3)},
    "bernoulli.Tensor": {"p": _full(0.3)},
    "bernoulli.Tensor_out": {"p": _full(0.3)},
    "randint_like.Tensor": {"high": lambda d: torch.tensor(900)},
    "randint_like.Tensor_generator": {"high": lambda d: torch.tensor(900)},
    "randint_like.Tensor_out": {"high": lambda d: torch.tensor(900)},
    "randint_like.Tensor_generator_out": {"high": lambda d: torch.tensor(900)},
    "multinomial.out": {"out": lambda d: torch.empty(0, dtype=torch.int64, device=d)},
    "native_dropout.out": {"out1": lambda d: torch.empty(0, dtype=torch.bool, device=d)},
    "rrelu.default": {"self": _full(-0.5)},
    "rrelu_.default": {"self": _full(-0.5)},
    "rrelu_with_noise.default": {"self": _full(-0.5)},
    "rrelu_with_noise_.default": {"self": _full(-0.5)},
    "rrelu_with_noise.out": {"self": _full(-0.5), "out": _full(0.0)},
    "rrelu_with_noise_functional.default": {"self": _full(-0.5)},
    "normal.Tensor_float": {"mean": _full(0.1)},
    "normal.Tensor_float_out": {"mean": _full(0.1), "out": _full(0.0)},
    "normal.float_Tensor": {"std": _full(1.1)},
    "normal.float_Tensor_out": {"std": _full(1.1)},
    "normal.Tensor_Tensor": {"mean": _full(0.1), "std": _full(1.1)},
    "normal.Tensor_Tensor_out": {"mean": _full(0.1), "std": _full(1.1)},
    "_scaled_dot_product_flash_attention_for_cpu.default": {"dropout_p": 0.0},
}
DETERMINISTIC = {
    "_scaled_dot_product_flash_attention_for_cpu.default",  # takes no dropout
    "_fused_sdp_choice.default",  # tagged for its relatives' sake
}


def _recurrent(name: str, device: str) -> list[Any]:
    """Two layers with dropout between them."""
    gates = {"lstm": 4, "gru": 3}.get(name.split(".")[0], 1)
    shapes = [(gates * 4, 4), (gates * 4, 4), (gates * 4,), (gates * 4,)] * 2
    weights = [(uneven(shape) / 2).to(device) for shape in shapes]
    state = torch.zeros(2, 3, 4, device=device)
    states: Any = [state, state] if name.startswith("lstm") else state
    if name.endswith(".data"):
        data = [uneven((9, 4)).to(device), torch.tensor([3, 2, 2, 1, 1])]
        return [*data, states, weights, True, 2, 0.5, True, False]
    return [uneven((5, 3, 4)).to(device), states, weights, True, 2, 0.5, True, False, False]


def _call(name: str, device: str, generator: torch.Generator | None = None) -> list[torch.Tensor]:
    """The tensors that the operator gives for the arguments above."""
    operator = OPERATORS[name]
    if name.startswith(("lstm.", "gru.", "rnn_")):
        return tree.tensors(operator(*_recurrent(name, device)))
    values = {**VALUES, **OWN.get(name, {})}
    positional: list[Any] = []
    keyword: dict[str, Any] = {}
    for argument in operator._schema.arguments:
        if argument.name == "generator":
            value: Any = generator
        elif argument.name == "device":
            value = torch.device(device)
        elif argument.is_out and argument.name not in values:
            value = torch.empty(0, device=device)
        elif argument.name in values:
            value = values[argument.name]
            value = value(device) if callable(value) else value
        elif argument.has_default_value():
            continue
        else:
            raise NotImplementedError(f"{name}: no value for the argument {argument.name}")
        if argument.kwarg_only:
            keyword[argument.name] = value
        else:
            positional.append(value)
    result = operator(*_without_gaps(operator, positional, values, device), **keyword)
    return tree.tensors(result)


def _without_gaps(operator: Any, given: list[Any], values: Any, device: str) -> list[Any]:
    """Positional arguments in order; one with a default before a given one takes its default."""
    names = [x for x in operator._schema.arguments if not x.kwarg_only]
    complete, rest = [], list(given)
    for argument in names:
        if not rest:
            break
        known = argument.name in values or argument.name == "generator"
        complete.append(rest.pop(0) if known else argument.default_value)
    return complete


def test_the_list_is_that_of_pytorch() -> None:
    """The dispatcher's operators include all of native_functions.yaml that are random."""
    torchgen_model = pytest.importorskip("torchgen.gen")
    import torchgen

    folder = os.path.join(os.path.dirname(torchgen.__file__), "packaged", "ATen", "native")
    parsed = torchgen_model.parse_native_yaml(
        os.path.join(folder, "native_functions.yaml"), os.path.join(folder, "tags.yaml")
    )
    expected = set()
    for function in parsed.native_functions:
        generator = any("Generator" in str(x.type) for x in function.func.arguments.flat_all)
        if generator or "nondeterministic_seeded" in function.tags:
            name = function.func.name
            expected.add(f"{name.name}.{name.overload_name or 'default'}")
    assert len(expected) > 100
    assert expected <= set(OPERATORS)


@pytest.mark.parametrize("name", sorted(set(OPERATORS) - set(HERE)))
def test_what_is_left_out_is_not_for_the_cpu(name: str) -> None:
    with pytest.raises((NotImplementedError, RuntimeError)):
        _call(name, "cpu")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", HERE)
def test_numbers_are_those_of_the_cpu(name: str) -> None:
    """Twice in a row, with CPU draws in between; neither stream touches the other."""
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if name.startswith(("lstm", "gru", "rnn")) else None
    torch.manual_seed(4321)
    expected = [_call(name, "cpu"), _call(name, "cpu")]
    torch.manual_seed(4321)
    actual = []
    for _ in range(2):
        torch.rand(7)
        on_cpu = torch.get_rng_state()
        actual.append(_call(name, "flagos"))
        assert torch.equal(torch.get_rng_state(), on_cpu), "drew from the CPU's stream"
    for ours, theirs in zip(tree.tensors(actual), tree.tensors(expected), strict=True):
        assert ours.device.type == "flagos"
        assert ours.dtype == theirs.dtype
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours.cpu(), theirs, **(tolerance or {"rtol": 0, "atol": 0}))
    if name not in DETERMINISTIC:
        same = [torch.equal(a, b) for a, b in zip(*actual, strict=True)]
        assert not all(same), "two calls gave the same numbers"


WITH_GENERATOR = [
    name for name in HERE if any(x.name == "generator" for x in OPERATORS[name]._schema.arguments)
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", WITH_GENERATOR)
def test_a_given_generator_is_the_only_source(name: str) -> None:
    ours, theirs = torch.Generator("flagos").manual_seed(9), torch.Generator().manual_seed(9)
    before, on_cpu = flagos.get_rng_state(), torch.get_rng_state()
    for _ in range(2):
        for actual, expected in zip(
            _call(name, "flagos", ours), _call(name, "cpu", theirs), strict=True
        ):
            assert torch.equal(actual.cpu(), expected)
    assert torch.equal(flagos.get_rng_state(), before)
    assert torch.equal(torch.get_rng_state(), on_cpu)


DROPOUTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dropout": (lambda: nn.Dropout(0.3), (7, 11)),
    "dropout 1d": (lambda: nn.Dropout1d(0.3), (5, 7, 3)),
    "dropout 2d": (lambda: nn.Dropout2d(0.3), (5, 7, 3, 2)),
    "dropout 3d": (lambda: nn.Dropout3d(0.3), (5, 7, 3, 2, 2)),
    "alpha": (lambda: nn.AlphaDropout(0.3), (7, 11)),
    "feature alpha": (lambda: nn.FeatureAlphaDropout(0.3), (5, 7, 3)),
    "rrelu": (nn.RReLU, (7, 11)),
    "nothing": (lambda: nn.Dropout(0.0), (7, 11)),
    "everything": (lambda: nn.Dropout(1.0), (7, 11)),
}
FORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "strided": lambda x: torch.cat([x, x], -1)[..., ::2],
    "double": lambda x: x.double(),
    "bfloat16": lambda x: x.bfloat16(),
    "half": lambda x: x.half(),
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_in_training(name: str, form: str) -> None:
    """Values, strides and gradients: the mask of the forward pass is that of the backward pass."""
    make, shape = DROPOUTS[name]
    if (form, name) in (("empty", "feature alpha"), ("half", "rrelu")):
        pytest.skip("the CPU refuses it")
    x = FORMS[form](uneven(shape) + 2).detach().requires_grad_()
    assert_same(with_gradients(make()), x, seed=8)
    assert_same(make().eval(), x, seed=8)


IN_PLACE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: functional.dropout(x, 0.3, inplace=True),
    "dropout 2d": lambda x: functional.dropout2d(x, 0.3, inplace=True),
    "alpha": lambda x: functional.alpha_dropout(x, 0.3, training=True, inplace=True),
    "feature alpha": lambda x: torch.feature_alpha_dropout_(x, 0.3, True),
    "rrelu": lambda x: functional.rrelu(x, training=True, inplace=True),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_dropout_in_place(name: str) -> None:
    def run(x: torch.Tensor) -> Any:
        y = x * 1
        assert IN_PLACE[name](y) is y
        return y, gradients(y, [x])

    assert_same(run, (uneven((5, 7, 3, 2)) - 0.5).requires_grad_(), seed=8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_dropout_scales_as_the_cpu_does(dtype: torch.dtype) -> None:
    """1 / (1 - p) may be rounded before or after the product: it shows in the last bit."""

    def run(x: torch.Tensor) -> Any:
        outputs = [functional.dropout(x, percent / 100) for percent in range(1, 100, 3)]
        return outputs, gradients(outputs, [x])

    assert_same(run, leaf(2000, dtype=dtype), seed=8)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module, torch.Tensor], Any]]] = {
    "multihead attention": (
        lambda: nn.MultiheadAttention(8, 2, dropout=0.4, batch_first=True),
        lambda m, x: m(x, x, x, need_weights=False)[0],
    ),
    "multihead attention, weights": (
        lambda: nn.MultiheadAttention(8, 2, dropout=0.4, batch_first=True),
        lambda m, x: m(x, x, x),
    ),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.3, batch_first=True),
        lambda m, x: m(x),
    ),
    "decoder": (
        lambda: nn.TransformerDecoderLayer(8, 2, 16, 0.3, batch_first=True),
        lambda m, x: m(x, x),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_with_dropout(name: str) -> None:
    make, run = NETWORKS[name]
    weights = [(uneven(x.shape) / 3).requires_grad_() for x in make().parameters()]

    def train(x: torch.Tensor, *given: torch.Tensor) -> Any:
        module = make().to(x.device)
        for parameter, value in zip(module.parameters(), given, strict=True):
            parameter.data = value.detach()
        torch.manual_seed(12)
        output = run(module, x)
        return output, gradients(output, [x, *module.parameters()])

    assert_same(train, leaf(3, 5, 8), *weights)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_dropout_in_the_composed_path(causal: bool) -> None:
    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5, is_causal=causal)

    given = [leaf(2, 3, 9, 4), leaf(2, 3, 9, 4), leaf(2, 3, 9, 4)]
    assert_same(with_gradients(run), *given, seed=3)
    assert_same(with_gradients(run), *[x.detach().bfloat16().requires_grad_() for x in given])


INITIALISERS = [
    "uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "xavier_normal_",
    "kaiming_uniform_", "kaiming_normal_", "orthogonal_",
]  # fmt: skip


@pytest.mark.parametrize("name", INITIALISERS)
def test_initialisers(name: str) -> None:
    assert_same(getattr(nn.init, name), torch.zeros(9, 7))


def test_parameters_made_on_the_device_are_those_made_on_the_cpu() -> None:
    for make in (
        lambda d: nn.Linear(7, 5, device=d),
        lambda d: nn.Conv2d(3, 5, 3, device=d),
        lambda d: nn.Embedding(11, 5, device=d),
        lambda d: nn.LSTM(3, 5, 2, device=d),
        lambda d: nn.MultiheadAttention(8, 2, device=d),
        lambda d: nn.Bilinear(3, 4, 5, device=d),
    ):
        assert_same(lambda d, make=make: [x.detach() for x in make(d).parameters()], "cpu")


DISTRIBUTIONS: dict[str, Callable[[torch.Tensor], distributions.Distribution]] = {
    "normal": lambda x: distributions.Normal(x, x + 1),
    "multivariate": lambda x: distributions.MultivariateNormal(x, torch.diag(x)),
    "gamma": lambda x: distributions.Gamma(x, x),
    "beta": lambda x: distributions.Beta(x, x + 1),
    "dirichlet": lambda x: distributions.Dirichlet(x),
    "student": lambda x: distributions.StudentT(x + 2),
    "categorical": lambda x: distributions.Categorical(x),
    "bernoulli": lambda x: distributions.Bernoulli(x / 2),
    "binomial": lambda x: distributions.Binomial(9, x / 2),
    "multinomial": lambda x: distributions.Multinomial(9, x),
    "poisson": lambda x: distributions.Poisson(x * 3),
    "exponential": lambda x: distributions.Exponential(x),
    "laplace": lambda x: distributions.Laplace(x, x),
    "cauchy": lambda x: distributions.Cauchy(x, x),
    "gumbel": lambda x: distributions.Gumbel(x, x),
    "weibull": lambda x: distributions.Weibull(x, x),
    "von mises": lambda x: distributions.VonMises(x, x),
    "relaxed": lambda x: distributions.RelaxedOneHotCategorical(x.new_tensor(0.5), x),
    "mixture": lambda x: distributions.MixtureSameFamily(
        distributions.Categorical(x), distributions.Normal(x, x)
    ),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name: str) -> None:
    def run(x: torch.Tensor) -> Any:
        distribution = DISTRIBUTIONS[name](x)
        sample = distribution.sample((20,))
        return sample, distribution.log_prob(sample)

    assert_same(run, torch.tensor([0.3, 0.9, 0.5]), seed=6)


LARGE: dict[str, Callable[[str], torch.Tensor]] = {
    "rand": lambda d: torch.rand(300_001, device=d),
    "randn": lambda d: torch.randn(300_001, device=d),
    "randperm": lambda d: torch.randperm(100_003, device=d),
    "bernoulli": lambda d: torch.empty(300_001, device=d).bernoulli_(0.3),
    "dropout": lambda d: functional.dropout(torch.ones(300_001, device=d), 0.3),
    "exponential": lambda d: torch.empty(300_001, device=d).exponential_(),
    "multinomial": lambda d: torch.ones(5_000, device=d).multinomial(1_000),
    "strided normal": lambda d: torch.empty(300, 401, device=d).t()[::2].normal_(),
    "byte": lambda d: torch.empty(300_001, dtype=torch.uint8, device=d).random_(),
    "low rank": lambda d: torch.svd_lowrank(torch.ones(50, 40, device=d), 3)[1],
}


@pytest.mark.parametrize("name", LARGE)
def test_large_tensors(name: str) -> None:
    """Kernels take other paths above some size, and share the work among threads."""
    assert_same(LARGE[name], "cpu", seed=2, exact=name != "low rank")


def test_generators_are_copied_and_pickled() -> None:
    """With their state, as loaders and samplers need it."""
    generator = torch.Generator("flagos").manual_seed(5)
    torch.rand(3, generator=generator, device="flagos")
    copies = [copy.deepcopy(generator), pickle.loads(pickle.dumps(generator))]
    expected = torch.rand(9, generator=generator, device="flagos")
    for other in copies:
        assert other.device.type == "flagos"
        assert other.initial_seed() == 5
        assert torch.equal(torch.rand(9, generator=other, device="flagos"), expected)


def test_each_device_has_a_stream_of_its_own() -> None:
    output_of_child(
        """
        import torch, torch_fl
        from torch.nn import functional
        DRAWS = {
            "dropout": lambda d: functional.dropout(torch.ones(99, device=d), 0.5),
            "native": lambda d: torch.native_dropout(torch.ones(99, device=d), 0.5, True)[0],
            "out": lambda d: torch.rand(99, out=torch.empty(99, device=d)),
            "like": lambda d: torch.randn_like(torch.ones(99, device=d)),
            "method": lambda d: torch.empty(99, device=d).uniform_(),
            "multinomial": lambda d: torch.ones(99, device=d).multinomial(50),
            "foreach": lambda d: torch.nn.init.orthogonal_(torch.empty(9, 9, device=d)),
            "attention": lambda d: functional.scaled_dot_product_attention(
                *[torch.ones(1, 1, 9, 4, device=d)] * 3, dropout_p=0.5),
        }
        for name, draw in DRAWS.items():
            torch.manual_seed(3)
            first = draw("flagos:0"), draw("flagos:0")
            torch.manual_seed(3)
            for index in (0, 1):
                for current in (0, 1):
                    with torch.flagos.device(current):
                        ours = draw(f"flagos:{index}")
                    assert ours.device == torch.device("flagos", index), name
                    assert torch.equal(ours.cpu(), first[current].cpu()), (name, index, current)
            torch.flagos.manual_seed_all(5)
            state = torch.flagos.get_rng_state(0)
            draw("flagos:1")
            assert torch.equal(torch.flagos.get_rng_state(0), state), name
        generator = torch.Generator("flagos:1")
        x = torch.rand(3, generator=generator, device="flagos:1")
        assert x.device.index == 1
        """,
        FLAGOS_HOST_DEVICES="2",
    )
