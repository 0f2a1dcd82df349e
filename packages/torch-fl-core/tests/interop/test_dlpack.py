"""DLPack: out of flagos and into it, as an external device's tensors and as the target's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from children import output_of_child
from torch.utils import dlpack
from torch.utils.dlpack import DLDeviceType

FLAGOS = torch.device("flagos", 0)
CPU_PLACE = (DLDeviceType.kDLCPU, 0)


def numbers(count: int = 6) -> torch.Tensor:
    return torch.arange(float(count), device=FLAGOS)


def test_a_flagos_tensor_says_that_it_is_an_external_devices() -> None:
    assert numbers().__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)
    # Contract: PyTorch's own answer, which the adaptation is for. When this fails it can go.
    own: Any = torch.Tensor.__dlpack_device__
    with pytest.raises(ValueError, match="Unknown device type"):
        own.__wrapped__(numbers())


@pytest.mark.parametrize(
    "make",
    [
        numbers,
        lambda: numbers()[2:],
        lambda: numbers().view(2, 3).t(),
        lambda: torch.tensor(3, device=FLAGOS),
        lambda: torch.zeros(2, dtype=torch.bfloat16, device=FLAGOS),
        lambda: torch.zeros(2, dtype=torch.complex64, device=FLAGOS),
    ],
)
def test_a_round_trip_shares_the_memory_and_keeps_the_device(make: Any) -> None:
    source = make()
    result = torch.from_dlpack(source)
    assert result.device == FLAGOS
    assert result.data_ptr() == source.data_ptr()
    assert (result.shape, result.stride(), result.dtype) == (
        source.shape,
        source.stride(),
        source.dtype,
    )
    result.fill_(1)
    assert torch.equal(source, torch.ones_like(source))


def test_a_capsule_can_be_passed_on_and_keeps_the_memory_alive() -> None:
    source = numbers()
    capsule = dlpack.to_dlpack(source)
    del source
    numbers().fill_(9)
    assert dlpack.from_dlpack(capsule).tolist() == [0, 1, 2, 3, 4, 5]


def test_empty_tensors_travel() -> None:
    assert torch.from_dlpack(torch.empty(0, 3, device=FLAGOS)).shape == (0, 3)


def test_the_targets_type_on_request_shares_the_memory() -> None:
    source = numbers()[1:]
    for result in (
        torch.from_dlpack(source, device="cpu"),
        torch.utils.dlpack.from_dlpack(source, device=torch.device("cpu")),
        dlpack.from_dlpack(source.__dlpack__(dl_device=CPU_PLACE)),
        dlpack.from_dlpack(source.__dlpack__(dl_device=CPU_PLACE, max_version=(1, 0))),
        torch.from_dlpack(source, device="cpu", copy=False),
    ):
        assert result.device.type == "cpu"
        assert result.data_ptr() == source.data_ptr()
    result[0] = 9.0
    assert source[0] == 9


def test_numpy_gets_the_memory_when_it_asks_for_the_cpu() -> None:
    source = numbers()
    array = np.from_dlpack(source, device="cpu")
    array[0] = 7
    assert source[0] == 7
    with pytest.raises((RuntimeError, BufferError)):
        np.from_dlpack(source)  # as a CUDA tensor: numpy knows no such device


def test_memory_of_the_target_becomes_flagos_without_a_copy() -> None:
    array = np.ones(3, dtype=np.float32)
    result = torch.from_dlpack(array, device="flagos")
    assert result.device == FLAGOS
    result.add_(1)
    assert array.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="not resizable"):
        result.resize_(1000)
    assert torch.from_dlpack(torch.ones(2), device="flagos:0").device == FLAGOS
    # What flagos makes of such memory is its own again.
    assert (result * 2).sum() == 12


def test_copies_on_request() -> None:
    source = numbers()
    for result in (
        torch.from_dlpack(source, copy=True),
        torch.from_dlpack(source, device="cpu", copy=True),
        torch.from_dlpack(source, device="flagos", copy=True),
    ):
        assert result.tolist() == source.tolist()
        assert result.data_ptr() != source.data_ptr()
    array = np.zeros(2, dtype=np.float32)
    torch.from_dlpack(array, device="flagos", copy=True).add_(1)
    assert array.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda d: torch.ones(2, device=d, requires_grad=True), "require gradient"),
        (lambda d: torch.ones(2, device=d, dtype=torch.complex64).conj(), "conjugate bit"),
        (lambda d: torch.ones(2, device=d).to_sparse(), "other than torch.strided"),
    ],
)
@pytest.mark.parametrize("place", [None, CPU_PLACE])
def test_what_a_capsule_cannot_say_is_refused_as_on_the_cpu(
    make: Any, text: str, place: Any
) -> None:
    with pytest.raises(BufferError, match=text) as expected:
        make("cpu").__dlpack__()
    with pytest.raises(BufferError, match=text) as given:
        make(FLAGOS).__dlpack__(dl_device=place)
    assert str(given.value) == str(expected.value)


def test_streams_are_the_targets() -> None:
    numbers().__dlpack__(stream=None)
    numbers().__dlpack__(stream=-1)
    with pytest.raises(TypeError, match="stream must be"):
        numbers().__dlpack__(stream="1")
    with pytest.raises(AssertionError, match="stream should be None on cpu"):
        numbers().__dlpack__(stream=3)


def test_versions() -> None:
    assert '"dltensor"' in repr(numbers().__dlpack__())
    assert '"dltensor"' in repr(numbers().__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(numbers().__dlpack__(max_version=(1, 0)))


def test_read_only_arrays_are_taken_as_pytorch_takes_them() -> None:
    array = np.ones(2, dtype=np.float32)
    array.flags.writeable = False
    assert torch.from_dlpack(array, device="flagos").tolist() == [1, 1]


def test_other_tensors_travel_as_before() -> None:
    source = torch.arange(3.0)
    assert source.__dlpack_device__() == (DLDeviceType.kDLCPU, 0)
    assert torch.from_dlpack(source).data_ptr() == source.data_ptr()
    assert torch.from_dlpack(source, device="cpu").data_ptr() == source.data_ptr()
    with pytest.raises(AssertionError, match="already a DLPack capsule"):
        torch.from_dlpack(dlpack.to_dlpack(source), device="flagos")


def test_subclasses_travel_like_their_tensors() -> None:
    class Subclass(torch.Tensor):
        pass

    source = numbers().as_subclass(Subclass)
    assert torch.from_dlpack(source).data_ptr() == source.data_ptr()
    assert torch.from_dlpack(source, device="cpu").data_ptr() == source.data_ptr()


def test_with_two_devices_and_closed_memory() -> None:
    code = """
        import numpy as np, torch, torch_fl
        x = torch.arange(3.0, device="flagos:1")
        y = torch.from_dlpack(x)
        assert y.device == x.device and y.data_ptr() == x.data_ptr()
        assert (y + 1).tolist() == [1, 2, 3]
        assert x.__dlpack_device__() == (12, 1)
        moved = torch.from_dlpack(x, device="flagos:0")
        assert moved.device.index == 0 and moved.tolist() == [0, 1, 2]
        try:
            torch.from_dlpack(x, device="flagos:0", copy=False)
        except ValueError as error:
            print("refused", error)
        array = np.ones(2, dtype=np.float32)
        assert torch.from_dlpack(array, device="flagos:1").device.index == 1
        with torch.flagos.device(1):
            assert torch.from_dlpack(array, device="flagos").device.index == 1
    """
    out = output_of_child(code, FLAGOS_HOST_DEVICES="2", FLAGOS_HOST_GUARD="1")
    assert out.startswith("refused")
