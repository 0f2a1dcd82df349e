"""Owns: programs with recurrent layers."""

from __future__ import annotations

import copy
import io
import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import rnn

from ..inputs import (
    each,
    gradients_of,
    integers,
    leaves_of,
    loss_of,
    normal,
    on_device,
    state_of,
    trained,
)
from ..registry import Results, program

_KINDS: dict[str, Any] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **how: nn.RNN(*sizes, nonlinearity="relu", **how),
}


def _layer(kind: str, device: str, *sizes: int, **how: Any) -> nn.RNNBase:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer: nn.RNNBase = _KINDS[kind](*(sizes or (6, 8)), **how)
    return on_device(layer, device)


def _shapes(device: str, kind: str) -> Results:
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "deep": {"num_layers": 3},
        "both ways": {"bidirectional": True},
        "deep both ways": {"num_layers": 2, "bidirectional": True, "batch_first": True},
        "no bias": {"bias": False},
    }
    results: Results = {}
    for name, how in options.items():
        layer = _layer(kind, device, **how)
        x = normal(device, 5, 3, 6, grad=True)
        results |= trained(layer, x, prefix=f"{name}: ")
        with torch.no_grad():
            evaluated = leaves_of(layer.eval()(x))
        results |= {f"{name}: evaluated {i}": leaf for i, leaf in enumerate(evaluated)}
    layer = _layer(kind, device)
    results |= trained(layer, normal(device, 5, 6, grad=True), prefix="unbatched: ")
    return results


@program
def lstm(device: str) -> Results:
    """LSTM with layers, both ways, batch first, without bias, unbatched."""
    return _shapes(device, "lstm")


@program
def gru(device: str) -> Results:
    """GRU in the same ways."""
    return _shapes(device, "gru")


@program
def rnn_tanh(device: str) -> Results:
    """RNN with tanh in the same ways."""
    return _shapes(device, "tanh")


@program
def rnn_relu(device: str) -> Results:
    """RNN with relu in the same ways."""
    return _shapes(device, "relu")


@program
def projections(device: str) -> Results:
    """LSTM whose outputs are projected."""
    results: Results = {}
    for both in (False, True):
        layer = _layer("lstm", device, num_layers=2, proj_size=3, bidirectional=both)
        results |= trained(layer, normal(device, 5, 3, 6, grad=True), prefix=f"{both}: ")
    return results


@program
def recurrent_dropout(device: str) -> Results:
    """Dropout between layers, under a seed; each call must draw its own."""
    results: Results = {}
    for kind in _KINDS:
        layer = _layer(kind, device, num_layers=3, dropout=0.4)
        x = normal(device, 6, 4, 6, grad=True)
        torch.manual_seed(5)
        results |= trained(layer, x, prefix=f"{kind} first: ")
        results |= trained(layer, x, prefix=f"{kind} second: ")
        results[f"{kind}: drawn afterwards"] = torch.rand(5, device=device)
        torch.manual_seed(5)
        results |= trained(layer, x, prefix=f"{kind} again: ")
    return results


@program
def packed_sequences(device: str) -> Results:
    """Sequences of several lengths, sorted or not, with initial states."""
    results: Results = {}
    for kind in _KINDS:
        for lengths in ([5, 4, 2], [2, 5, 3]):
            layer = _layer(kind, device, bidirectional=True, batch_first=True)
            x = normal(device, 3, 5, 6, grad=True)
            packed = rnn.pack_padded_sequence(
                x, torch.tensor(lengths), batch_first=True, enforce_sorted=lengths[0] == 5
            )
            state = normal(device, 2, 3, 8, seed=3, grad=True)
            states: Any = (state, normal(device, 2, 3, 8, seed=4)) if kind == "lstm" else state
            output, last = layer(packed, states)
            padded, _ = rnn.pad_packed_sequence(output, batch_first=True, padding_value=-1.0)
            loss_of(padded, last).backward()
            prefix = f"{kind} {lengths}: "
            results |= {f"{prefix}{i}": part for i, part in enumerate(leaves_of((padded, last)))}
            results |= gradients_of(layer, prefix)
            assert x.grad is not None
            assert state.grad is not None
            results |= {f"{prefix}x": x.grad, f"{prefix}state": state.grad}
    return results


@program
def truncated_training(device: str) -> Results:
    """A language model over the pieces of a text, which hand their states on."""
    embedding, layer = nn.Embedding(20, 6), nn.LSTM(6, 8, num_layers=2)
    model = on_device(nn.ModuleList([embedding, layer, nn.Linear(8, 20)]), device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    text = integers(device, 20, 13, 3)
    states: Any = None
    results: Results = {}
    for start in (0, 4, 8):
        optimizer.zero_grad()
        output, states = layer(embedding(text[start : start + 4]), states)
        states = tuple(state.detach() for state in states)
        scores = model[2](output).flatten(0, 1)
        loss = nn.functional.cross_entropy(scores, text[start + 1 : start + 5].flatten())
        loss.backward()
        optimizer.step()
        results[f"loss at {start}"] = loss.detach()
    return results | state_of(model) | {"hidden": states[0], "cell": states[1]}


@program
def weights_in_one_piece(device: str) -> Results:
    """What is done with the weights between calls: state dicts, copies, dtypes, flattening."""
    layer = _layer("lstm", device, num_layers=2, bidirectional=True)
    x = normal(device, 5, 3, 6)
    results: Results = {"at first": layer(x)[0].detach()}
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    other = _layer("lstm", device, num_layers=2, bidirectional=True)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    results["zero"] = other(x)[0].detach()
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    results["loaded"] = other(x)[0].detach()
    results["copied"] = copy.deepcopy(layer)(x)[0].detach()
    layer.flatten_parameters()
    results["flattened"] = layer(x)[0].detach()
    results["double"] = copy.deepcopy(layer).double()(x.double())[0].detach()
    weights = dict(layer.named_parameters())
    nn.init.constant_(weights["weight_hh_l0"], 0.1)
    results["changed in place"] = layer(x)[0].detach()
    layer.weight_ih_l1 = nn.Parameter(weights["weight_ih_l1"].detach() * 2)
    results["replaced"] = layer(x)[0].detach()
    return results | trained(layer, x, prefix="in the end: ")


@program
def recurrent_float64(device: str) -> Results:
    """Layers in float64."""
    return each((kind, partial(_in_dtype, kind, device, torch.float64)) for kind in _KINDS)


@program(accelerator=True)
def recurrent_half(device: str) -> Results:
    """Layers in float16 and bfloat16, which PyTorch does not have on every CPU, and autocast."""
    results: Results = {}
    for kind in _KINDS:
        for dtype in (torch.float16, torch.bfloat16):
            results |= _in_dtype(kind, device, dtype)
            layer = _layer(kind, device, 16, 16)
            with torch.autocast(device, dtype):
                made = trained(layer, normal(device, 5, 4, 16))
            results |= {f"{kind} {dtype} autocast {name}": value for name, value in made.items()}
    return results


def _in_dtype(kind: str, device: str, dtype: torch.dtype) -> Results:
    layer = _layer(kind, device, 16, 16, num_layers=2).to(dtype)
    x = normal(device, 5, 4, 16, dtype=dtype, grad=True)
    return trained(layer, x, prefix=f"{kind} {dtype}: ")


@program
def recurrent_cells(device: str) -> Results:
    """Cells in a loop of the program's own."""
    results: Results = {}
    x = normal(device, 4, 3, 6)
    for name, build in (("lstm", nn.LSTMCell), ("gru", nn.GRUCell), ("rnn", nn.RNNCell)):
        cell: Any = on_device(build(6, 8), device)
        state: Any = None
        for step in x:
            state = cell(step, state)
        loss_of(state).backward()
        states: list[Tensor] = [leaf.detach() for leaf in leaves_of(state)]
        results |= {f"{name} {i}": leaf for i, leaf in enumerate(states)}
        results |= gradients_of(cell, f"{name}: ")
    return results
