"""Owns: tests of convolution and normalisation, forward and backward, against the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from parity import assert_same, gradients, leaf, through, uneven, with_gradients
from torch import nn
from torch.nn import functional

import torch_fl  # noqa: F401  (makes the device)

CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TRANSPOSED = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no bias": {"bias": False},
    "stride": {"stride": 2},
    "padding": {"padding": 1},
    "dilation": {"dilation": 2},
    "groups": {"groups": 2},
    "depthwise": {"groups": 4, "padding": 1},
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64]


def _inputs(dim: int, *, groups: int = 1, transposed: bool = False, dtype=torch.float32) -> list:
    """Input, weight and bias of four channels in and four out."""
    out = 4 if not transposed else 4 // groups
    weight = (4, out, *[3] * dim) if transposed else (out, 4 // groups, *[3] * dim)
    return [
        leaf(2, 4, *(7, 6, 5)[:dim], dtype=dtype),
        leaf(*weight, dtype=dtype),
        leaf(4, dtype=dtype),
    ]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_convolution(dim: int, transposed: bool, options: dict[str, Any]) -> None:
    convolve = (TRANSPOSED if transposed else CONVOLUTIONS)[dim]
    options = dict(options)
    given = _inputs(dim, groups=options.get("groups", 1), transposed=transposed)
    if options.pop("bias", True):
        assert_same(with_gradients(lambda x, w, b: convolve(x, w, b, **options)), *given)
    else:
        assert_same(with_gradients(lambda x, w: convolve(x, w, **options)), *given[:2])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
def test_convolution_dtypes(transposed: bool, dtype: torch.dtype) -> None:
    convolve = functional.conv_transpose2d if transposed else functional.conv2d
    assert_same(with_gradients(convolve), *_inputs(2, transposed=transposed, dtype=dtype))


@pytest.mark.parametrize("which", ["input", "weight", "both"])
@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
@pytest.mark.parametrize("dim", FORMATS)
def test_channels_last(dim: int, transposed: bool, which: str) -> None:
    """The results' strides too are those of the CPU."""
    x, weight, bias = _inputs(dim, transposed=transposed)
    if which != "weight":
        x = x.detach().contiguous(memory_format=FORMATS[dim]).requires_grad_()
    if which != "input":
        weight = weight.detach().contiguous(memory_format=FORMATS[dim]).requires_grad_()
    convolve = (TRANSPOSED if transposed else CONVOLUTIONS)[dim]
    assert_same(with_gradients(convolve), x, weight, bias)


def test_channels_last_module_stays_so_through_a_network() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8), nn.AdaptiveAvgPool2d(2),
    ).to(memory_format=torch.channels_last)  # fmt: skip
    x = uneven((2, 3, 12, 12)).contiguous(memory_format=torch.channels_last)
    assert_same(through(net), x)
    on_device = net.to("flagos")
    assert on_device[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert on_device(x.to("flagos")).is_contiguous(memory_format=torch.channels_last)


UNUSUAL = {
    "unbatched": lambda: (leaf(4, 7, 6), leaf(4, 4, 3, 3)),
    "empty batch": lambda: (leaf(0, 4, 7, 6), leaf(4, 4, 3, 3)),
    "transposed storage": lambda: (leaf(4, 2, 6, 7).detach().permute(1, 0, 3, 2), leaf(4, 4, 3, 3)),
    "strided input": lambda: (uneven((2, 8, 14, 6))[:, ::2, ::2], leaf(4, 4, 3, 3)),
    "expanded input": lambda: (uneven((1, 1, 7, 6)).expand(2, 4, 7, 6), leaf(4, 4, 3, 3)),
    "expanded weight": lambda: (leaf(2, 4, 7, 6), uneven((1, 4, 1, 1)).expand(4, 4, 3, 3)),
    "offset": lambda: (uneven((3, 4, 7, 6))[1:], leaf(4, 4, 3, 3)),
    "pointwise": lambda: (leaf(2, 4, 7, 6), leaf(8, 4, 1, 1)),
    "large": lambda: (leaf(2, 16, 40, 40), leaf(32, 16, 5, 5)),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_convolutions(name: str) -> None:
    given = UNUSUAL[name]()
    assert_same(with_gradients(functional.conv2d), *given)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [1, "same"])
def test_padding_modes(mode: str, padding: Any) -> None:
    torch.manual_seed(0)
    assert_same(through(nn.Conv2d(4, 4, 3, padding=padding, padding_mode=mode)), leaf(2, 4, 7, 6))


def test_wrong_shapes_are_refused_with_the_same_words() -> None:
    given = [uneven((2, 4, 7, 6)), uneven((4, 3, 3, 3))]
    with pytest.raises(RuntimeError) as expected:
        functional.conv2d(*given)
    with pytest.raises(RuntimeError) as actual:
        functional.conv2d(*[x.to("flagos") for x in given])
    assert str(actual.value) == str(expected.value)


@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_double_backward(dim: int, transposed: bool) -> None:
    convolve = (TRANSPOSED if transposed else CONVOLUTIONS)[dim]

    def run(*given: torch.Tensor) -> list:
        first = gradients(convolve(*given).tanh(), list(given), create_graph=True)
        return first, gradients([x.tanh() for x in first], list(given))

    assert_same(run, *_inputs(dim, transposed=transposed))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # forward mode's
@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
def test_convolution_gradcheck(transposed: bool) -> None:
    convolve = functional.conv_transpose2d if transposed else functional.conv2d
    x, weight, bias = _inputs(2, groups=2, transposed=transposed, dtype=torch.float64)
    small = (x[:1, :, :4, :4], weight, bias)
    given = [x.detach().to("flagos").requires_grad_() for x in small]

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        return convolve(*inputs, groups=2, padding=1)

    assert torch.autograd.gradcheck(run, given, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(run, given)


NORMS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "batch 1d": (lambda: nn.BatchNorm1d(4), (6, 4, 5)),
    "batch 1d flat": (lambda: nn.BatchNorm1d(4), (6, 4)),
    "batch 2d": (lambda: nn.BatchNorm2d(4), (3, 4, 5, 6)),
    "batch 3d": (lambda: nn.BatchNorm3d(4), (2, 4, 3, 4, 5)),
    "batch cumulative": (lambda: nn.BatchNorm2d(4, momentum=None), (3, 4, 5, 6)),
    "batch without affine": (lambda: nn.BatchNorm2d(4, affine=False), (3, 4, 5, 6)),
    "batch untracked": (lambda: nn.BatchNorm2d(4, track_running_stats=False), (3, 4, 5, 6)),
    "instance": (lambda: nn.InstanceNorm2d(4, affine=True), (3, 4, 5, 6)),
    "instance tracked": (
        lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        (3, 4, 5, 6),
    ),
    "layer": (lambda: nn.LayerNorm(6), (3, 4, 5, 6)),
    "layer two dims": (lambda: nn.LayerNorm((5, 6)), (3, 4, 5, 6)),
    "layer without bias": (lambda: nn.LayerNorm(6, bias=False), (3, 4, 5, 6)),
    "layer without affine": (lambda: nn.LayerNorm(6, elementwise_affine=False), (3, 4, 5, 6)),
    "group": (lambda: nn.GroupNorm(2, 4), (3, 4, 5, 6)),
    "group without affine": (lambda: nn.GroupNorm(4, 4, affine=False), (3, 4, 5)),
    "rms": (lambda: nn.RMSNorm(6), (3, 4, 5, 6)),
    "rms two dims": (lambda: nn.RMSNorm((5, 6), eps=1e-3), (3, 4, 5, 6)),
    "rms without affine": (lambda: nn.RMSNorm(6, elementwise_affine=False), (3, 4, 6)),
    "local response": (lambda: nn.LocalResponseNorm(3), (3, 4, 5, 6)),
}


def _norm(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    make, shape = NORMS[name]
    module = make()
    for parameter in module.parameters():
        parameter.data = 1 + uneven(parameter.shape) / 2
    return module, shape


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", NORMS)
def test_normalisation(name: str, training: bool) -> None:
    """Running statistics are buffers and are compared too."""
    module, shape = _norm(name)
    assert_same(through(module.train(training)), leaf(*shape))


@pytest.mark.parametrize("name", ["batch 2d", "layer", "group", "rms"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_normalisation_dtypes(name: str, dtype: torch.dtype) -> None:
    module, shape = _norm(name)
    assert_same(through(module.to(dtype)), leaf(*shape, dtype=dtype))


@pytest.mark.parametrize("name", ["batch 2d", "layer", "group"])
def test_float32_parameters_for_bfloat16_inputs(name: str) -> None:
    module, shape = _norm(name)
    assert_same(through(module), leaf(*shape, dtype=torch.bfloat16))


@pytest.mark.parametrize("name", ["batch 2d", "instance"])
def test_normalisation_keeps_channels_last(name: str) -> None:
    module, shape = _norm(name)
    x = uneven(shape).contiguous(memory_format=torch.channels_last).requires_grad_()
    assert_same(through(module), x)


def test_group_norm_keeps_channels_last() -> None:
    """Its gradient is contiguous as on every accelerator: autograd's formula asks for the CPU."""
    module, shape = _norm("group")
    x = uneven(shape).contiguous(memory_format=torch.channels_last)
    assert_same(lambda x: functional.group_norm(x, 2), x)
    given = [x.requires_grad_(), *module.parameters()]

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
        output = functional.group_norm(x, 2, weight, bias)
        return [y.contiguous() for y in gradients(output, [x, weight, bias])]

    assert_same(run, *given, exact=False)


@pytest.mark.parametrize("name", ["batch 2d", "batch 1d", "layer", "group", "rms"])
def test_normalisation_double_backward(name: str) -> None:
    module, shape = _norm(name)
    weights = [x.detach().clone().requires_grad_() for x in module.parameters()]
    names = [x for x, _ in module.named_parameters()]

    def run(x: torch.Tensor, *given: torch.Tensor) -> list:
        fresh = _norm(name)[0].to(x.device)
        output = torch.func.functional_call(fresh, dict(zip(names, given, strict=True)), x)
        first = gradients(output.tanh(), [x, *given], create_graph=True)
        return first, gradients([y.tanh() for y in first], [x, *given])

    assert_same(run, leaf(*shape), *weights)


def test_a_batch_of_one_value_is_refused_in_training() -> None:
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        nn.BatchNorm1d(4).to("flagos")(torch.ones(1, 4, device="flagos"))


def test_several_steps_of_statistics() -> None:
    """In-place updates of buffers: running mean and variance, and the count of batches."""

    def run(*batches: torch.Tensor) -> Any:
        module = nn.BatchNorm2d(3).to(batches[0].device)
        outputs = [module(x) for x in batches]
        module.eval()
        return outputs, module(batches[0]), module.state_dict()

    assert_same(run, *[uneven((2, 3, 4, 4)) * k for k in (1, 2, 3)])
