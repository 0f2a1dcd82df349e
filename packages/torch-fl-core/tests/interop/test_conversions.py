"""Modules and parameters that change their device: what stays, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLAGOS = torch.device("flagos", 0)

MOVES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "to": lambda m: m.to("flagos"),
    "flagos()": lambda m: m.flagos(),  # type: ignore[operator]
    "flagos(0)": lambda m: m.flagos(0),  # type: ignore[operator]
    "like a tensor": lambda m: m.to(torch.ones(1, device=FLAGOS)),
}


@pytest.fixture(params=[False, True], ids=["data", "swap"])
def swapping(request: pytest.FixtureRequest) -> Iterator[bool]:
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(request.param)
    yield request.param
    torch.__future__.set_swap_module_params_on_conversion(before)


@pytest.mark.parametrize("move", MOVES)
def test_parameters_ties_gradients_and_hooks_stay(move: str, swapping: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    calls: list[str] = []
    weight = model[0].weight
    model[0].register_forward_hook(lambda *_: calls.append("forward"))
    model(torch.ones(3, 2)).sum().backward()
    MOVES[move](model)
    assert model[0].weight is weight
    assert model[1].weight is weight
    assert all(x.device == FLAGOS for x in (*model.parameters(), *model.buffers()))
    assert weight.grad is not None
    assert weight.grad.device == FLAGOS
    model(torch.ones(3, 2, device=FLAGOS)).square().sum().backward()
    optimizer.step()
    assert calls == ["forward", "forward"]
    model.cpu()
    assert model[0].weight is weight
    assert weight.device.type == "cpu"
    assert weight.grad.device.type == "cpu"


def test_swapping_takes_state_dicts(swapping: bool) -> None:
    model = nn.Linear(2, 2).to(FLAGOS)
    weight = model.weight
    state = nn.Linear(2, 2).state_dict()
    model.load_state_dict(state)
    assert model.weight is weight
    assert weight.device == FLAGOS
    assert torch.equal(weight.detach().cpu(), state["weight"])


def test_data_of_another_device_takes_the_place() -> None:
    parameter = nn.Parameter(torch.ones(2))
    parameter.data = torch.zeros(3, device=FLAGOS)
    assert parameter.device == FLAGOS
    assert parameter.shape == (3,)
    (parameter * 2).sum().backward()
    assert parameter.grad is not None
    assert parameter.grad.device == FLAGOS
    parameter.grad = None
    parameter.data = torch.ones(4)
    assert parameter.device.type == "cpu"
    assert torch._has_compatible_shallow_copy_type(parameter, torch.ones(2, device=FLAGOS))


def test_sparse_data_takes_the_place_of_sparse_data() -> None:
    tensor = torch.eye(2, device=FLAGOS).to_sparse()
    tensor.data = torch.eye(3, device=FLAGOS).to_sparse()
    assert tensor.shape == (3, 3)
    assert tensor.to_dense().sum() == 3
    for one, other in ((FLAGOS, "cpu"), ("cpu", FLAGOS)):
        mixed = torch.eye(2, device=one).to_sparse()
        with pytest.raises(RuntimeError, match="incompatible tensor type"):
            mixed.data = torch.eye(3, device=other).to_sparse()
        assert mixed.to_dense().sum() == 2
    dense = torch.ones(2, device=FLAGOS)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        dense.data = tensor


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_modules_with_sparse_parameters_move_with_their_values(layout: Any) -> None:
    value = torch.eye(3) * 2
    model = nn.Module()
    model.weight = nn.Parameter(value.to_sparse(layout=layout))
    model.register_buffer("table", value.to_sparse(layout=layout))
    model.to(FLAGOS)
    for tensor in (model.weight, model.table):
        assert (tensor.device == FLAGOS and tensor.values().device == FLAGOS) or (
            layout is torch.sparse_coo
        )
        assert torch.equal(tensor.detach().to_dense().cpu(), value)
    model.double().cpu()
    assert torch.equal(model.weight.detach().to_dense(), value.double())


@pytest.mark.parametrize(
    "adapt",
    [
        nn.utils.parametrizations.orthogonal,
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
    ],
)
def test_parametrizations(adapt: Any) -> None:
    model = adapt(nn.Linear(3, 3)).to(FLAGOS)
    model(torch.ones(2, 3, device=FLAGOS)).sum().backward()
    assert all(x.grad is not None and x.grad.device == FLAGOS for x in model.parameters())
    nn.utils.parametrize.remove_parametrizations(model, "weight")
    assert model.weight.device == FLAGOS


def test_pruning() -> None:
    from torch.nn.utils import prune

    model = nn.Linear(4, 4).to(FLAGOS)
    prune.l1_unstructured(model, "weight", 0.5)
    assert model.weight_mask.device == FLAGOS
    assert int(model.weight_mask.sum()) == 8
    model.cpu().to(FLAGOS)
    model(torch.ones(1, 4, device=FLAGOS)).sum().backward()
    prune.remove(model, "weight")
    assert int((model.weight == 0).sum()) == 8


def test_packed_sequences_move() -> None:
    from torch.nn.utils import rnn

    packed = rnn.pack_sequence([torch.ones(3, 2), torch.ones(2, 2)])
    there: Any = packed.flagos()  # type: ignore[attr-defined]
    assert there.is_flagos
    assert there.data.device == FLAGOS
    assert there.batch_sizes.device.type == "cpu"
    assert there.cpu().data.device.type == "cpu"
    padded, lengths = rnn.pad_packed_sequence(there)
    assert padded.device == FLAGOS
    assert lengths.tolist() == [3, 2]
    with pytest.raises(RuntimeError, match="1D CPU int64 tensor"):
        rnn.pack_padded_sequence(padded, lengths.to(FLAGOS))


def test_default_devices() -> None:
    with torch.device("flagos"):
        assert nn.Linear(2, 2)(torch.ones(2)).device == FLAGOS
        assert torch.tensor([1]).device == FLAGOS
    torch.set_default_device("flagos")
    try:
        assert torch.get_default_device().type == "flagos"
        assert torch.randperm(3).device == FLAGOS
    finally:
        torch.set_default_device(None)
    assert torch.ones(1).device.type == "cpu"
