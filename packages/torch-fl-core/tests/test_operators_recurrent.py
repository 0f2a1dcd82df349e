"""Owns: tests of LSTM, GRU and RNN, forward and backward.

PyTorch runs fused cells for every accelerator and written-out formulas on the CPU, so values are
compared within tolerance, and the gradients are also checked numerically.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from parity import assert_close, assert_same, gradients, leaf, through, uneven, with_gradients
from torch import nn
from torch.nn.utils import rnn

import torch_fl  # noqa: F401  (makes the device)
from torch_fl import routing

LAYERS: dict[str, Any] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "rnn tanh": nn.RNN,
    "rnn relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}
CELLS = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bidirectional": {"bidirectional": True},
    "biasless": {"bias": False},
    "batch first": {"batch_first": True},
    "deep": {"num_layers": 2, "bidirectional": True, "bias": False},
}


def _layer(name: str, **options: Any) -> nn.Module:
    module = LAYERS[name](3, 4, **options)
    for parameter in module.parameters():
        parameter.data = uneven(parameter.shape) / 2
    return module


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, options: dict[str, Any]) -> None:
    assert_close(through(_layer(name, **options)), leaf(5, 2, 3))


@pytest.mark.parametrize("name", LAYERS)
def test_initial_states(name: str) -> None:
    state = leaf(2, 2, 4)
    states = (state, leaf(2, 2, 4)) if name == "lstm" else state
    assert_close(through(_layer(name, bidirectional=True)), leaf(5, 2, 3), states)


@pytest.mark.parametrize("name", LAYERS)
def test_unbatched_and_one_step(name: str) -> None:
    assert_close(through(_layer(name)), leaf(5, 3))
    assert_close(through(_layer(name)), leaf(1, 2, 3))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported:UserWarning")
@pytest.mark.parametrize("bidirectional", [False, True])
def test_projections(bidirectional: bool) -> None:
    module = _layer("lstm", proj_size=2, bidirectional=bidirectional)
    assert_close(through(module), leaf(5, 2, 3))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_without_gradients(name: str, training: bool) -> None:
    with torch.no_grad():
        module = _layer(name, num_layers=2).train(training)
        assert_close(through(module), uneven((5, 2, 3)))


@pytest.mark.parametrize("name", LAYERS)
def test_dtypes(name: str) -> None:
    assert_close(through(_layer(name).double()), leaf(5, 2, 3, dtype=torch.float64))
    half = _layer(name).bfloat16().to("flagos")
    output, _ = half(torch.ones(5, 2, 3, dtype=torch.bfloat16, device="flagos"))
    assert output.dtype == torch.bfloat16
    expected, _ = _layer(name)(torch.ones(5, 2, 3))
    torch.testing.assert_close(output.cpu().float(), expected, atol=3e-2, rtol=3e-2)


@pytest.mark.parametrize("sort", [True, False], ids=["sorted", "unsorted"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
@pytest.mark.parametrize("name", LAYERS)
def test_packed_sequences(name: str, bidirectional: bool, sort: bool) -> None:
    module = _layer(name, bidirectional=bidirectional)
    lengths = torch.tensor([5, 3, 2] if sort else [2, 5, 3])

    def run(x: torch.Tensor) -> Any:
        mine = LAYERS[name](3, 4, bidirectional=bidirectional).to(x.device)
        mine.load_state_dict(module.state_dict())
        packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=sort)
        assert packed.batch_sizes.device.type == "cpu"
        output, state = mine(packed)
        padded, out_lengths = rnn.pad_packed_sequence(output, padding_value=-1.0)
        assert out_lengths.tolist() == lengths.tolist()
        return padded, state, gradients((padded, state), [x, *mine.parameters()])

    assert_close(run, leaf(5, 3, 3))


def test_packing_round_trip() -> None:
    def run(*sequences: torch.Tensor) -> Any:
        packed = rnn.pack_sequence(list(sequences), enforce_sorted=False)
        assert packed.data.device == sequences[0].device
        assert packed.to("cpu").data.device.type == "cpu"
        unpacked = rnn.unpack_sequence(packed)
        return packed.data, unpacked, rnn.pad_sequence(list(sequences), batch_first=True)

    assert_same(with_gradients(run), leaf(2, 3), leaf(4, 3), leaf(1, 3))
    packed = rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)]).to("flagos")
    assert packed.is_cuda is False
    assert packed.data.device.type == "flagos"


def _cell(name: str, bias: bool) -> tuple[Any, list[torch.Tensor]]:
    """A function of inputs, states and parameters, and these, in float64 on flagos."""
    module = CELLS[name](3, 2, bias=bias).double().to("flagos")
    names = [key for key, _ in module.named_parameters()]
    states = 2 if name == "lstm" else 1
    given = [leaf(2, 3, dtype=torch.float64)]
    given += [leaf(2, 2, dtype=torch.float64) for _ in range(states)]
    given += [uneven(x.shape, torch.float64) for x in module.parameters()]
    given = [x.detach().to("flagos").requires_grad_() for x in given]

    def run(x: torch.Tensor, *rest: torch.Tensor) -> Any:
        state = tuple(rest[:states]) if states == 2 else rest[0]
        parameters = dict(zip(names, rest[states:], strict=True))
        return torch.func.functional_call(module, parameters, (x, state))

    return run, given


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "biasless"])
@pytest.mark.parametrize("name", CELLS)
def test_gradcheck_of_the_cells(name: str, bias: bool) -> None:
    run, given = _cell(name, bias)
    assert torch.autograd.gradcheck(run, given)
    assert torch.autograd.gradgradcheck(run, given)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "biasless"])
@pytest.mark.parametrize("name", CELLS)
def test_cells(name: str, bias: bool) -> None:
    state = leaf(2, 4)
    states = (state, leaf(2, 4)) if name == "lstm" else state
    module = CELLS[name](3, 4, bias=bias)
    assert_close(through(module), leaf(2, 3), states)
    assert_close(through(module), leaf(2, 3))


@pytest.mark.parametrize("used", ["output", "cell", "both"])
def test_lstm_cell_with_the_gradient_of_one_result_only(used: str) -> None:
    module = nn.LSTMCell(3, 4)

    def run(x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        mine = nn.LSTMCell(3, 4).to(x.device)
        mine.load_state_dict(module.state_dict())
        results = dict(zip(("output", "cell"), mine(x, (h, c)), strict=True))
        chosen = list(results.values()) if used == "both" else [results[used]]
        return chosen, gradients(chosen, [x, h, c, *mine.parameters()])

    assert_close(run, leaf(2, 3), leaf(2, 4), leaf(2, 4))


def test_frozen_inputs_and_frozen_weights() -> None:
    for frozen in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", None):
        module = _layer("gru")
        for key, parameter in module.named_parameters():
            parameter.requires_grad_(frozen is None or key == frozen)
        assert_close(through(module), uneven((4, 2, 3)))
        assert_close(through(module), leaf(4, 2, 3))


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_nothing_is_copied_to_the_cpu(name: str) -> None:
    module = _layer(name).to("flagos")
    with routing.report() as report:
        output, _ = module(torch.ones(4, 2, 3, device="flagos"))
        output.sum().backward()
    assert report.fallbacks == ()
    assert f"aten::_thnn_fused_{name}_cell" in {row.operator for row in report.rows}


def test_state_of_another_device_is_refused() -> None:
    module = _layer("lstm").to("flagos")
    with pytest.raises(RuntimeError, match="same device"):
        module(torch.ones(4, 2, 3, device="flagos"), (torch.ones(1, 2, 4), torch.ones(1, 2, 4)))
    with pytest.raises(RuntimeError, match="same device"):
        module(torch.ones(4, 2, 3))


def test_training_an_lstm_follows_the_cpu() -> None:
    def train(x: torch.Tensor, y: torch.Tensor) -> Any:
        torch.manual_seed(3)
        net = nn.LSTM(3, 4, num_layers=2, batch_first=True).to(x.device)
        weights = list(net.parameters())
        losses = []
        for _ in range(10):
            loss = nn.functional.mse_loss(net(x)[0], y)
            with torch.no_grad():
                steps = torch.autograd.grad(loss, weights)
                torch._foreach_sub_(weights, steps, alpha=0.5)
            losses.append(loss.detach())
        assert losses[-1] < losses[0]
        return losses

    assert_close(train, uneven((2, 6, 3)), uneven((2, 6, 4)) / 2)
