"""Owns: tests of where results are: on the device of the arguments, of the device argument, or on
the current one.
"""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional
from torch.utils import _pytree as pytree

import torch_fl  # noqa: F401  (makes the devices)
from torch_fl import routing

if TYPE_CHECKING:
    from collections.abc import Callable

ZERO, ONE = torch.device("flagos:0"), torch.device("flagos:1")
flagos = torch.flagos


def _x(*shape: int) -> torch.Tensor:
    count = torch.Size(shape or (4, 4)).numel()
    return (torch.arange(count, dtype=torch.float32).reshape(shape or (4, 4)) + 1).to(ONE)


def _spd() -> torch.Tensor:
    return _x() @ _x().t() + 10 * torch.eye(4, device=ONE)


RESULTS: dict[str, Callable[[], object]] = {
    "add": lambda: _x() + _x(),
    "add of a number": lambda: _x() + 1,
    "compare": lambda: _x() > 2,
    "neg": lambda: -_x(),
    "in place": lambda: _x().mul_(2).add_(_x()),
    "out": lambda: torch.exp(_x(), out=torch.empty(0, device=ONE)),
    "mm": lambda: _x() @ _x(),
    "addmm": lambda: torch.addmm(_x(), _x(), _x()),
    "einsum": lambda: torch.einsum("ij,kj->ik", _x(), _x()),
    "sum": lambda: _x().sum(),
    "mean of a dimension": lambda: _x().mean(0, keepdim=True),
    "max": lambda: _x().max(1),
    "sort": lambda: _x().sort(),
    "topk": lambda: _x().topk(2),
    "var_mean": lambda: torch.var_mean(_x()),
    "cumsum": lambda: _x().cumsum(0),
    "cat": lambda: torch.cat([_x(), _x()]),
    "stack": lambda: torch.stack([_x(), _x()]),
    "split": lambda: _x().split(3),
    "unbind": lambda: _x().unbind(),
    "views": lambda: (_x().t(), _x()[1:], _x().view(16), _x().unsqueeze(0), _x().diagonal()),
    "real and imag": lambda: (torch.fft.fft(_x()).real, torch.fft.fft(_x()).imag),
    "conj": lambda: torch.fft.fft(_x()).conj().resolve_conj(),
    "index": lambda: _x()[torch.tensor([0, 2])],
    "mask": lambda: _x()[_x() > 4],
    "nonzero": lambda: (_x() > 4).nonzero(),
    "nonzero as tuple": lambda: torch.nonzero(_x() > 4, as_tuple=True),
    "unique": lambda: _x().unique(return_inverse=True, return_counts=True),
    "where": lambda: torch.where(_x() > 3, _x(), 0.0),
    "where of a condition": lambda: torch.where(_x() > 3),
    "gather": lambda: _x().gather(0, torch.zeros(1, 4, dtype=torch.int64, device=ONE)),
    "scatter_add": lambda: _x().scatter_add(
        0, torch.zeros(1, 4, dtype=torch.int64, device=ONE), _x()
    ),
    "index_put": lambda: _x().index_put((torch.tensor([1]),), torch.tensor(2.0)),
    "bincount": lambda: torch.bincount(_x(16).long()),
    "histc": lambda: torch.histc(_x(), 4),
    "searchsorted": lambda: torch.searchsorted(_x(16), _x(3)),
    "one_hot": lambda: functional.one_hot(_x(4).long()),
    "conv": lambda: functional.conv2d(_x(1, 2, 5, 5), _x(3, 2, 3, 3), _x(3)),
    "conv transposed": lambda: functional.conv_transpose2d(_x(1, 2, 5, 5), _x(2, 3, 3, 3)),
    "max_pool": lambda: functional.max_pool2d(_x(1, 1, 4, 4), 2, return_indices=True),
    "batch_norm": lambda: functional.batch_norm(_x(), _x(4), _x(4), training=True),
    "layer_norm": lambda: functional.layer_norm(_x(), (4,)),
    "native_layer_norm": lambda: torch.native_layer_norm(_x(), (4,), None, None, 1e-5),
    "softmax": lambda: functional.softmax(_x(), -1),
    "gelu": lambda: functional.gelu(_x()),
    "dropout": lambda: functional.dropout(_x(), 0.5),
    "embedding": lambda: functional.embedding(torch.tensor([1, 2], device=ONE), _x()),
    "embedding_bag": lambda: functional.embedding_bag(
        torch.tensor([[1, 2]], device=ONE), _x(), mode="max"
    ),
    "cross_entropy": lambda: functional.cross_entropy(_x(), torch.arange(4, device=ONE)),
    "attention": lambda: functional.scaled_dot_product_attention(*[_x(1, 2, 4, 8)] * 3),
    "interpolate": lambda: functional.interpolate(_x(1, 1, 4, 4), scale_factor=2),
    "pad": lambda: functional.pad(_x(), (1, 1), value=3.0),
    "lstm": lambda: torch.nn.LSTM(4, 3, device=ONE)(_x(2, 4)),
    "gru": lambda: torch.nn.GRU(4, 3, device=ONE)(_x(2, 4)),
    "svd": lambda: torch.linalg.svd(_x()),
    "eigh": lambda: torch.linalg.eigh(_spd()),
    "qr": lambda: torch.linalg.qr(_x()),
    "cholesky": lambda: torch.linalg.cholesky(_spd()),
    "solve": lambda: torch.linalg.solve(_spd(), _x()),
    "lstsq": lambda: torch.linalg.lstsq(_spd(), _x()),
    "slogdet": lambda: torch.linalg.slogdet(_spd()),
    "fft": lambda: torch.fft.rfft(_x()),
    "stft": lambda: torch.stft(_x(64), 16, return_complex=True, window=_x(16)),
    "clone": lambda: _x().clone(),
    "to a dtype": lambda: _x().to(torch.float64),
    "contiguous": lambda: _x().t().contiguous(),
    "detach": lambda: _x().detach(),
    "empty_like": lambda: torch.empty_like(_x()),
    "ones_like": lambda: torch.ones_like(_x(), dtype=torch.int32),
    "rand_like": lambda: torch.rand_like(_x()),
    "new_tensor": lambda: _x().new_tensor([1.0, 2.0]),
    "new_zeros": lambda: _x().new_zeros(3),
    "new_full": lambda: _x().new_full((2,), 5.0),
    "random in place": lambda: _x().uniform_(),
    "bernoulli": lambda: torch.bernoulli(torch.full((4,), 0.5, device=ONE)),
    "multinomial": lambda: torch.multinomial(_x(4), 2),
    "normal": lambda: torch.normal(_x(), 1.0),
    "foreach": lambda: torch._foreach_add([_x(), _x(3)], 1),
    "meshgrid": lambda: torch.meshgrid(_x(2), _x(3), indexing="ij"),
    "tril_indices": lambda: torch.tril_indices(3, 3, device=ONE),
    "sparse": lambda: (_x().to_sparse(), _x().to_sparse().to_dense(), _x().to_sparse().values()),
    "sparse csr": lambda: (_x().to_sparse_csr(), _x().to_sparse_csr() @ _x()),
    "quantized": lambda: torch.quantize_per_tensor(_x(), 0.1, 0, torch.qint8),
    "dequantized": lambda: torch.quantize_per_tensor(_x(), 0.1, 0, torch.qint8).dequantize(),
    "deepcopy": lambda: copy.deepcopy(_x()),
}


def _all_on_one(results: object) -> None:
    tensors = [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
    assert tensors
    assert {tensor.device for tensor in tensors} == {ONE}


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("name", RESULTS)
def test_results_are_on_the_device_of_the_arguments(name: str, current: int) -> None:
    with flagos.device(current):
        _all_on_one(RESULTS[name]())
        assert flagos.current_device() == current


def test_storages_and_views_agree_about_the_device() -> None:
    x = _x()
    for tensor in (x, x.t(), x[1:], x + 1, x.view(torch.int32), torch.cat([x, x])):
        assert tensor.untyped_storage().device == ONE
        assert tensor.get_device() == 1


# -- factories

FACTORIES: dict[str, Callable[[object], torch.Tensor]] = {
    "empty": lambda d: torch.empty(3, device=d),
    "empty_strided": lambda d: torch.empty_strided((2, 3), (1, 2), device=d),
    "zeros": lambda d: torch.zeros(3, device=d),
    "ones": lambda d: torch.ones(3, device=d),
    "full": lambda d: torch.full((3,), 7, device=d),
    "tensor": lambda d: torch.tensor([1, 2], device=d),
    "as_tensor": lambda d: torch.as_tensor([1, 2], device=d),
    "asarray": lambda d: torch.asarray([1, 2], device=d),
    "scalar_tensor": lambda d: torch.scalar_tensor(3, device=d),
    "arange": lambda d: torch.arange(4, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 4, device=d),
    "logspace": lambda d: torch.logspace(0, 1, 4, device=d),
    "eye": lambda d: torch.eye(3, device=d),
    "rand": lambda d: torch.rand(3, device=d),
    "randn": lambda d: torch.randn(3, device=d),
    "randint": lambda d: torch.randint(5, (3,), device=d),
    "randperm": lambda d: torch.randperm(5, device=d),
    "tril_indices": lambda d: torch.tril_indices(3, 3, device=d),
    "hann_window": lambda d: torch.hann_window(5, device=d),
    "kaiser_window": lambda d: torch.kaiser_window(5, device=d),
    "fftfreq": lambda d: torch.fft.fftfreq(5, device=d),
    "sparse_coo": lambda d: torch.sparse_coo_tensor([[0]], [1.0], (2,), device=d),
    "to": lambda d: torch.ones(3).to(d),
    "new_empty": lambda d: torch.ones(3).new_empty(3, device=d),
    "zeros_like": lambda d: torch.zeros_like(torch.ones(3), device=d),
    "rand_like": lambda d: torch.rand_like(torch.ones(3), device=d),
    "of a storage": lambda d: torch.empty(0, device=d).set_(torch.UntypedStorage(8, device=d)),
    "a module": lambda d: torch.nn.Linear(2, 2, device=d).weight,
}


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("name", FACTORIES)
def test_factories(name: str, current: int) -> None:
    here = torch.device("flagos", current)
    with flagos.device(current):
        assert FACTORIES[name]("flagos").device == here
        assert FACTORIES[name](torch.device("flagos")).device == here
        assert FACTORIES[name]("flagos:0").device == ZERO
        assert FACTORIES[name]("flagos:1").device == ONE
        assert FACTORIES[name](1).device == ONE
        assert FACTORIES[name]("cpu").device.type == "cpu"
        assert flagos.current_device() == current


def test_an_index_that_does_not_exist_is_refused_and_the_device_still_works() -> None:
    for call in (
        lambda: torch.empty(2, device="flagos:2"),
        lambda: torch.ones(2, device="flagos:7"),
        lambda: torch.arange(3, device="flagos:2"),
        lambda: torch.ones(2).to("flagos:2"),
        lambda: torch.rand(2, device=torch.device("flagos", 2)),
        lambda: torch.ones(2, device=ONE).to(5),
        lambda: torch.ones(2).flagos(2),
    ):
        with pytest.raises(RuntimeError, match=r"flagos|device"):
            call()
    assert torch.ones(2, device=ONE).sum().item() == 2.0


def test_device_as_a_context_and_as_a_default() -> None:
    with torch.device("flagos:1"):
        assert torch.ones(2).device == ONE
        assert torch.ones(2, device="cpu").device.type == "cpu"
        assert torch.nn.Linear(2, 2).weight.device == ONE
    with ONE, torch.device("cpu"):
        assert torch.ones(2).device.type == "cpu"
    assert torch.ones(2).device.type == "cpu"
    torch.set_default_device("flagos:1")
    try:
        assert torch.ones(2).device == ONE
        assert torch.get_default_device() == ONE
        torch.set_default_device("flagos")
        with flagos.device(1):
            assert torch.ones(2).device == ONE
    finally:
        torch.set_default_device(None)
    assert torch.ones(2).device.type == "cpu"


def test_the_accelerators_own_words() -> None:
    with torch.accelerator.device_index(1):
        assert torch.ones(2, device="flagos").device == ONE
        assert torch.accelerator.current_device_index() == flagos.current_device() == 1
    assert torch.accelerator.current_device_index() == 0
    x = torch.ones(2)
    assert x.flagos(1).device == ONE
    assert x.flagos("flagos:1").device == ONE
    assert x.flagos(ONE).device == ONE
    with flagos.device(1):
        assert x.flagos().device == ONE
        assert torch.ones(2, device=ZERO).flagos().device == ONE
    assert x.flagos(1).flagos(1).data_ptr() != x.flagos(0).data_ptr()


def test_threads_make_tensors_on_their_own_current_device() -> None:
    seen: dict[int, torch.device] = {}
    gate = threading.Barrier(2)

    def work(index: int) -> None:
        flagos.set_device(index)
        gate.wait()
        x = torch.ones(50, 50, device="flagos", requires_grad=True)
        (x @ x).sum().backward()
        assert x.grad is not None
        seen[index] = x.grad.device

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {0: ZERO, 1: ONE}
    assert flagos.current_device() == 0


# -- random numbers and memory of each device


def test_each_device_has_its_own_random_numbers() -> None:
    torch.manual_seed(3)
    first, second = torch.rand(5, device=ZERO), torch.rand(5, device=ONE)
    assert torch.equal(first.cpu(), second.cpu()), "one seed for all"
    torch.rand(7, device=ZERO)
    state = flagos.get_rng_state(1)
    third = torch.rand(5, device=ONE)
    flagos.set_rng_state(state, 1)
    assert torch.equal(torch.rand(5, device=ONE), third)

    generator = torch.Generator(ONE)
    assert generator.device == ONE
    generator.manual_seed(8)
    drawn = torch.rand(4, device=ONE, generator=generator)
    assert drawn.device == ONE
    with pytest.raises(RuntimeError, match="Expected a 'flagos' device type for generator"):
        torch.rand(4, device=ONE, generator=torch.Generator())
    with flagos.device(1):
        assert torch.Generator("flagos").device == ONE


def test_memory_is_counted_where_it_is() -> None:
    flagos.synchronize()
    before = [flagos.memory_allocated(index) for index in (0, 1)]
    x = torch.empty(1 << 20, dtype=torch.uint8, device=ONE)
    y = x + x
    after = [flagos.memory_allocated(index) for index in (0, 1)]
    assert after[0] == before[0]
    assert after[1] - before[1] >= 2 << 20
    del x, y
    assert flagos.memory_allocated(1) == before[1]


def test_streams_and_events_of_the_other_device() -> None:
    stream = flagos.Stream(ONE)
    assert stream.device == ONE
    with stream:
        assert flagos.current_device() == 1
        assert flagos.current_stream() == stream
        x = torch.ones(3, device="flagos")
    assert flagos.current_device() == 0
    assert x.device == ONE
    event = stream.record_event()
    event.synchronize()
    assert event.query()
    x.record_stream(stream)
    assert flagos.current_stream(1).device == ONE


def test_results_of_lists_on_the_cpu_route_come_back_to_their_device() -> None:
    gaps = _x(2, 8)[:, ::2]
    with routing.use({"cat": "cpu", "stack": "cpu"}):
        for result in (torch.cat([gaps, gaps]), torch.cat([_x(), _x()])):
            assert result.device == ONE
    assert torch.cat([gaps, gaps]).device == ONE
