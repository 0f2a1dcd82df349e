"""Owns: tests of modules that move: parameters stay the same objects, with what hangs on them."""

from __future__ import annotations

import copy
import io
import pickle
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import torch_fl  # noqa: F401  (makes the device)

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS = ["to flagos", "to cpu"]


class Net(nn.Module):
    """Tied weights, buffers of each kind, a parameter of its own, a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 10, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.full((6,), 1.5))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.register_buffer("steps", torch.tensor(3))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)
        self.register_buffer("nothing", None)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embed(words)) * self.scale)


def _make(device: str = "cpu") -> Net:
    torch.manual_seed(4)
    return Net().to(device)


def _start_and_end(way: str) -> tuple[str, str]:
    return ("cpu", "flagos") if way == "to flagos" else ("flagos", "cpu")


MOVES: dict[str, dict[str, Callable[[Net], nn.Module]]] = {
    "to flagos": {
        "to": lambda m: m.to("flagos"),
        "to with index": lambda m: m.to(torch.device("flagos", 0)),
        "to, non_blocking": lambda m: m.to("flagos", non_blocking=True),
        "to another tensor": lambda m: m.to(torch.ones(1, device="flagos")),
        "flagos()": lambda m: m.flagos(),
        "flagos(0)": lambda m: m.flagos(0),
        "apply": lambda m: m._apply(lambda t: t.to("flagos")),
    },
    "to cpu": {
        "to": lambda m: m.to("cpu"),
        "cpu()": lambda m: m.cpu(),
        "apply": lambda m: m._apply(lambda t: t.cpu()),
    },
}
EACH_MOVE = [(way, name) for way in WAYS for name in MOVES[way]]


@pytest.mark.parametrize(("way", "name"), EACH_MOVE)
def test_parameters_stay_the_same_objects(way: str, name: str) -> None:
    start, end = _start_and_end(way)
    model = _make(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameters = dict(model.named_parameters())
    hooked: list[str] = []
    model.scale.register_hook(lambda grad: hooked.append("tensor"))
    model.scale.register_post_accumulate_grad_hook(lambda p: hooked.append("accumulated"))
    model.register_forward_hook(lambda *_: hooked.append("module"))
    model.scale.tag = "mine"  # type: ignore[attr-defined]
    before = {key: value.detach().cpu().clone() for key, value in model.state_dict().items()}

    assert MOVES[way][name](model) is model

    assert {key: id(value) for key, value in model.named_parameters()} == {
        key: id(value) for key, value in parameters.items()
    }
    assert model.head.weight is model.embed.weight
    assert optimizer.param_groups[0]["params"][0] is model.scale
    assert model.scale.tag == "mine"  # type: ignore[attr-defined]
    tensors = [*model.parameters(), *model.buffers()]
    assert {t.device.type for t in tensors} == {end}
    assert all(type(p) is nn.Parameter and p.is_leaf for p in model.parameters())
    assert not model.frozen.requires_grad
    assert model.nothing is None
    for key, value in model.state_dict().items():
        assert torch.equal(value.cpu(), before[key]), key
        assert value.dtype == before[key].dtype

    model(torch.tensor([1, 2, 3], device=end)).sum().backward()
    assert hooked == ["module", "tensor", "accumulated"]
    assert model.scale.grad is not None
    assert model.scale.grad.device.type == end
    was = model.scale.detach().clone()
    optimizer.step()
    assert not torch.equal(model.scale, was), "the optimizer steps the parameters that moved"


def test_moving_back_and_forth_keeps_training() -> None:
    words = torch.tensor([1, 2, 3, 4])

    def losses(*places: str) -> list[float]:
        model = _make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        result = []
        for place in places:
            model.to(place)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(words.to(place)), words.to(place))
            loss.backward()
            optimizer.step()
            result.append(loss.item())
        return result

    expected = losses(*["cpu"] * 6)
    assert expected[-1] < expected[0]
    assert losses("flagos", "cpu", "cpu", "flagos", "flagos", "cpu") == pytest.approx(
        expected, rel=1e-5
    )


@pytest.mark.parametrize("way", WAYS)
def test_gradients_move_with_their_parameters(way: str) -> None:
    start, end = _start_and_end(way)
    model = _make(start)
    model(torch.tensor([1, 2, 3], device=start)).sum().backward()
    grads = {
        name: p.grad.cpu().clone() for name, p in model.named_parameters() if p.grad is not None
    }
    assert len(grads) == 4
    model.to(end)
    for name, parameter in model.named_parameters():
        if name in grads:
            assert parameter.grad is not None
            assert parameter.grad.device.type == end
            assert torch.equal(parameter.grad.cpu(), grads[name])


@pytest.mark.parametrize("way", WAYS)
def test_a_tensors_data_can_be_assigned_from_the_other_side(way: str) -> None:
    start, end = _start_and_end(way)
    parameter = nn.Parameter(torch.zeros(3, device=start))
    alias, version = parameter, parameter._version
    parameter.data = torch.arange(4.0, device=end)
    assert parameter is alias
    assert parameter.device.type == end
    assert parameter.shape == (4,)
    assert parameter.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert parameter.requires_grad
    assert parameter.is_leaf
    assert parameter._version == version
    (parameter * 2).sum().backward()
    assert parameter.grad is not None
    assert parameter.grad.device.type == end
    parameter.data = parameter.data.to(start)
    assert parameter.device.type == start
    assert parameter.tolist() == [0.0, 1.0, 2.0, 3.0]

    shared = torch.zeros(2, device=end)
    parameter.data = shared
    shared.fill_(6.0)
    assert parameter.tolist() == [6.0, 6.0], "the data itself, not a copy"


def test_data_may_change_its_dtype_where_the_cpu_lets_it() -> None:
    def outcome(device: str) -> object:
        parameter = nn.Parameter(torch.zeros(3, device=device))
        try:
            parameter.data = torch.ones(2, dtype=torch.float64, device=device)
        except RuntimeError as error:
            return str(error)
        return parameter.dtype, parameter.tolist()

    assert outcome("flagos") == outcome("cpu")


def test_a_module_of_meta_is_filled() -> None:
    def filled(device: str) -> Net:
        with torch.device("meta"):
            model = Net()
        return model.to_empty(device=device)

    model, expected = filled("flagos"), filled("cpu")
    assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {"flagos"}
    tied = [m.head.weight is m.embed.weight for m in (model, expected)]
    assert tied[0] == tied[1]
    model.load_state_dict(_make().state_dict())
    words = torch.tensor([1, 2, 3])
    torch.testing.assert_close(model(words.to("flagos")).cpu(), _make()(words))


def test_a_module_of_meta_cannot_be_moved() -> None:
    model = nn.Linear(2, 2, device="meta")
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        model.to("flagos")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("assign", [False, True])
def test_a_state_is_loaded_from_the_other_side(way: str, assign: bool) -> None:
    start, end = _start_and_end(way)
    state = _make(end).state_dict()
    state["scale"] = torch.arange(6.0, device=end)
    model = _make(start)
    scale = model.scale
    model.load_state_dict(state, assign=assign)
    assert model.scale.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert isinstance(model.scale, nn.Parameter)
    if assign:
        assert model.scale.device.type == end
        assert model.scale.data_ptr() == state["scale"].data_ptr()
    else:
        assert model.scale is scale
        assert model.scale.device.type == start


@pytest.mark.parametrize("device", ["flagos", "cpu"])
def test_the_state_dict_is_a_view(device: str) -> None:
    model = _make(device)
    state = model.state_dict()
    assert set(state) == {
        "embed.weight", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var",
        "norm.num_batches_tracked", "head.weight", "scale", "frozen", "steps",
    }  # fmt: skip
    assert all(value.device.type == device for value in state.values())
    assert state["head.weight"].data_ptr() == state["embed.weight"].data_ptr()
    state["scale"].zero_()
    assert model.scale.sum().item() == 0.0


# -- copies of whole objects


def _objects() -> dict[str, object]:
    base = torch.arange(12.0, device="flagos")
    parameter = nn.Parameter(torch.ones(3, device="flagos"))
    return {
        "base": base,
        "view": base.view(3, 4)[1:, ::2],
        "parameter": parameter,
        "again": parameter,
        "cpu": torch.arange(2),
        "half": torch.arange(5, device="flagos").half(),
        "bool": torch.tensor([True, False], device="flagos"),
        "complex": torch.tensor([1 + 2j], device="flagos"),
        "conj": torch.tensor([1 + 2j], device="flagos").conj(),
        "empty": torch.empty(0, 3, device="flagos"),
        "number": torch.tensor(2.5, device="flagos"),
        "channels last": torch.randn(2, 3, 4, 5).to("flagos", memory_format=torch.channels_last),
        "needs gradient": torch.ones(2, device="flagos", requires_grad=True),
    }


def _saved_and_loaded(things: object) -> object:
    file = io.BytesIO()
    torch.save(things, file)
    file.seek(0)
    return torch.load(file)


def _saved_and_loaded_old(things: object) -> object:
    file = io.BytesIO()
    torch.save(things, file, _use_new_zipfile_serialization=False)
    file.seek(0)
    return torch.load(file)


COPIES: dict[str, Callable[[object], object]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda things: pickle.loads(pickle.dumps(things)),
    "save and load": _saved_and_loaded,
    "save and load, old format": _saved_and_loaded_old,
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_of_objects_are_like_them_and_share_what_they_share(way: str) -> None:
    things = _objects()
    copies = COPIES[way](things)
    assert isinstance(copies, dict)
    for name, thing in things.items():
        made = copies[name]
        assert type(made) is type(thing), name
        assert made.device == thing.device, name
        assert made.dtype == thing.dtype
        assert made.stride() == thing.stride(), name
        assert made.requires_grad == thing.requires_grad
        assert torch.equal(made.detach().cpu(), thing.detach().cpu()), name
        if thing.numel():
            assert made.data_ptr() != thing.data_ptr(), name
    assert copies["parameter"] is copies["again"]
    assert copies["view"].untyped_storage().data_ptr() == copies["base"].data_ptr() or (
        way == "pickle"  # PyTorch's own pickling of single tensors copies the storage for each
    )
    copies["base"].fill_(-1.0)
    assert things["base"].sum().item() == 66.0


@pytest.mark.parametrize("way", COPIES)
def test_copies_of_modules_keep_ties_and_values(way: str) -> None:
    model = _make("flagos")
    if way.startswith("save"):
        made = _make("flagos")
        made.load_state_dict(COPIES[way](model.state_dict()))
    else:
        made = COPIES[way](model)
    assert made.head.weight is made.embed.weight
    assert made.scale is not model.scale
    words = torch.tensor([1, 2, 3], device="flagos")
    assert torch.equal(made(words), model(words))
    with torch.no_grad():
        made.scale.zero_()
    assert model.scale.sum().item() == 9.0


LOCATIONS: dict[str, tuple[object, str, str]] = {
    "none": (None, "flagos:0", "cpu"),
    "cpu": ("cpu", "cpu", "cpu"),
    "flagos": ("flagos", "flagos:0", "flagos:0"),
    "flagos:0": (torch.device("flagos:0"), "flagos:0", "flagos:0"),
    "meta": ("meta", "meta", "meta"),
    "a table": ({"flagos:0": "cpu", "cpu": "flagos:0"}, "cpu", "flagos:0"),
    "a function": (lambda storage, location: storage.cpu(), "cpu", "cpu"),
    "a function to flagos": (lambda storage, location: storage.flagos(), "flagos:0", "flagos:0"),
}


@pytest.mark.parametrize("name", LOCATIONS)
def test_loading_to_a_location(name: str) -> None:
    where, flagos, cpu = LOCATIONS[name]
    base = torch.arange(6.0, device="flagos")
    file = io.BytesIO()
    torch.save({"base": base, "view": base[2:], "cpu": torch.ones(2)}, file)
    file.seek(0)
    loaded = torch.load(file, map_location=where)
    assert loaded["base"].device == loaded["view"].device == torch.device(flagos)
    assert loaded["cpu"].device == torch.device(cpu)
    if name == "meta":
        return
    assert loaded["base"].tolist() == base.tolist()
    loaded["base"][2:].fill_(7.0)
    assert loaded["view"].tolist() == [7.0] * 4, "views still share"


def test_an_optimizer_is_saved_and_goes_on_where_its_parameters_are() -> None:
    words = torch.tensor([1, 2, 3, 4])

    def step(model: Net, optimizer: torch.optim.Optimizer, place: str) -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(words.to(place)), words.to(place))
        loss.backward()
        optimizer.step()
        return loss.item()

    def losses(*places: str) -> list[float]:
        model = _make(places[0])
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        result = [step(model, optimizer, places[0])]
        for place in places[1:]:
            file = io.BytesIO()
            torch.save((model.state_dict(), optimizer.state_dict()), file)
            file.seek(0)
            model_state, optimizer_state = torch.load(file, map_location="cpu")
            model = _make(place)
            model.load_state_dict(model_state)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
            optimizer.load_state_dict(optimizer_state)
            moments = optimizer.state[model.scale]
            assert moments["exp_avg"].device.type == place
            result.append(step(model, optimizer, place))
        return result

    expected = losses("cpu", "cpu", "cpu", "cpu")
    assert losses("flagos", "flagos", "cpu", "flagos") == pytest.approx(expected, rel=1e-5)


def test_dtype_changes_keep_the_objects_too() -> None:
    model = _make("flagos")
    scale = model.scale
    assert model.half().scale is scale
    assert scale.dtype == torch.float16
    assert model.to("cpu", torch.float64).scale is scale
    assert scale.dtype == torch.float64
    assert scale.device.type == "cpu"
    assert model.steps.dtype == torch.int64
    assert model.to(torch.device("flagos"), torch.bfloat16).scale is scale
    assert scale.device.type == "flagos"
    nhwc = nn.Conv2d(3, 4, 3).to("flagos").to(memory_format=torch.channels_last)
    assert nhwc.weight.is_contiguous(memory_format=torch.channels_last)
    assert nhwc.cpu().weight.is_contiguous(memory_format=torch.channels_last)


def test_parametrized_and_lazy_modules_move() -> None:
    model = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    expected = model(torch.ones(1, 4))
    originals = list(model.parameters())
    model.to("flagos")
    assert all(now is was for now, was in zip(model.parameters(), originals, strict=True))
    torch.testing.assert_close(model(torch.ones(1, 4, device="flagos")).cpu(), expected)

    lazy = nn.LazyLinear(3).to("flagos")
    assert lazy(torch.ones(2, 5, device="flagos")).device.type == "flagos"
    assert lazy.weight.shape == (3, 5)
    assert lazy.weight.device.type == "flagos"

    rnn = nn.LSTM(4, 4, num_layers=2)
    weights = list(rnn.parameters())
    out = rnn(torch.ones(2, 1, 4))[0]
    rnn.to("flagos")
    assert all(now is was for now, was in zip(rnn._flat_weights, weights, strict=True))
    torch.testing.assert_close(rnn(torch.ones(2, 1, 4, device="flagos"))[0].cpu(), out)


def test_swapping_instead_of_assigning_works_as_well() -> None:
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model = _make()
        parameters = [id(p) for p in model.parameters()]
        model.to("flagos")
        assert [id(p) for p in model.parameters()] == parameters
        assert {p.device.type for p in model.parameters()} == {"flagos"}
        assert model.head.weight is model.embed.weight
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
