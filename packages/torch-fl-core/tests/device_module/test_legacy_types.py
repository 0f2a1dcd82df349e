"""Owns: tests of the tensor and storage types that PyTorch keeps for old code."""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import pytest
import torch

import torch_fl  # noqa: F401  (makes the device)

flagos = torch.flagos
TENSORS = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}


@pytest.mark.parametrize(("name", "dtype"), TENSORS.items())
def test_a_tensor_type_makes_names_and_recognises_its_tensors(
    name: str, dtype: torch.dtype
) -> None:
    kind = getattr(flagos, name)
    made = kind(2, 3)
    assert (made.shape, made.dtype, made.device.type) == ((2, 3), dtype, "flagos")
    assert type(made) is torch.Tensor
    assert kind([1, 0]).tolist() == [1, 0]
    assert kind(torch.Size([4])).shape == (4,)
    assert kind().shape == (0,)
    assert made.type() == f"torch.flagos.{name}"
    assert isinstance(made, kind)
    assert isinstance(torch.nn.Parameter(made, requires_grad=False), kind)
    assert not isinstance(made.cpu(), kind)
    assert not isinstance(made.to_sparse() if dtype == torch.float32 else 1, kind)
    others = set(TENSORS) - {name}
    assert not any(isinstance(made, getattr(flagos, other)) for other in others)
    assert kind.dtype == dtype
    assert kind.is_sparse is False
    assert (kind.__module__, kind.__name__) == ("torch.flagos", name)
    assert repr(kind) == f"<class 'torch.flagos.{name}'>"


@pytest.mark.parametrize("name", TENSORS)
def test_conversion_to_a_tensor_type(name: str) -> None:
    kind = getattr(flagos, name)
    for asked in (kind, f"torch.flagos.{name}"):
        there = torch.tensor([1, 0, 1]).type(asked)
        assert isinstance(there, kind)
        assert there.tolist() == [1, 0, 1]
        back = there.type(f"torch.{name}")
        assert back.device.type == "cpu"
        assert back.dtype == there.dtype
    assert torch.ones(2, device="flagos").type(kind).type() == f"torch.flagos.{name}"


def test_methods_are_reached_through_the_type_as_cudas_are() -> None:
    x = flagos.FloatTensor([1, 2])
    assert flagos.FloatTensor.add(x, x).tolist() == torch.cuda.FloatTensor.add(x, x).tolist()
    with pytest.raises(AttributeError):
        flagos.FloatTensor.no_such_method  # noqa: B018


def test_a_tensor_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="expected"):
        flagos.FloatTensor(torch.ones(2))
    with pytest.raises(TypeError, match="expected"):
        flagos.LongTensor(torch.ones(2, device="flagos"))
    x = torch.ones(2, device="flagos")
    assert flagos.FloatTensor(x).data_ptr() == x.data_ptr(), "its own kind is shared"


def test_sparse_types() -> None:
    sparse = torch.eye(3, device="flagos").to_sparse()
    assert sparse.type() == "torch.flagos.sparse.FloatTensor"
    assert isinstance(sparse, flagos.sparse.FloatTensor)
    assert not isinstance(sparse, flagos.FloatTensor)
    assert flagos.sparse.FloatTensor.is_sparse is True
    assert flagos.sparse.DoubleTensor.dtype == torch.float64


@pytest.mark.parametrize(
    "name", ["FloatStorage", "LongStorage", "BoolStorage", "ComplexFloatStorage"]
)
def test_storage_types(name: str) -> None:
    kind, on_cpu = getattr(flagos, name), getattr(torch, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # TypedStorage is deprecated
        made = kind(3)
        assert (len(made), made.device.type, made.dtype) == (3, "flagos", on_cpu.dtype)
        assert isinstance(made, kind)
        assert not isinstance(made, on_cpu)
        assert made.type() == f"torch.flagos.{name}"
        made.fill_(1)
        assert made.cpu().tolist() == [1, 1, 1]
        assert isinstance(kind([1, 0]), kind)
        whole = torch.ones(3, dtype=made.dtype, device="flagos").storage()
        assert isinstance(whole, kind)
        assert torch.is_storage(whole)
        assert kind(wrap_storage=whole.untyped()).tolist() == whole.tolist()
        with pytest.raises(RuntimeError, match="Device of 'wrap_storage' must be flagos"):
            kind(wrap_storage=torch.UntypedStorage(8))
        for again in (pickle.loads(pickle.dumps(whole)), copy.deepcopy(whole)):
            assert isinstance(again, kind)
            assert again.tolist() == whole.tolist()
        buffer = io.BytesIO()
        torch.save(whole, buffer)
        buffer.seek(0)
        assert torch.load(buffer, weights_only=False).tolist() == whole.tolist()


def test_storages_are_named_as_pytorch_names_them() -> None:
    """The base class is private; what it does with a device's name is what this rests on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for name in flagos.__all__:
            if name.endswith("Storage"):
                kind = getattr(flagos, name)
                assert kind in torch._storage_classes
                assert kind(1).type() == f"torch.flagos.{name}"
