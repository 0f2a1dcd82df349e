"""Owns: tests of what `.to`, `.cpu`, `.flagos` and pinned memory give back.

What a copy puts into the memory is in test_copies.py.
"""

from __future__ import annotations

import pytest
import torch

import torch_fl  # noqa: F401  (makes the device)


@pytest.fixture
def there() -> torch.Tensor:
    return torch.arange(6.0, device="flagos").view(2, 3)


SAME = {
    "device": lambda t: t.to("flagos"),
    "device with index": lambda t: t.to("flagos:0"),
    "a torch.device": lambda t: t.to(torch.device("flagos")),
    "a number": lambda t: t.to(0),
    "dtype": lambda t: t.to(torch.float32),
    "device and dtype": lambda t: t.to("flagos", torch.float32),
    "another tensor": lambda t: t.to(torch.ones(1, device="flagos")),
    "memory format": lambda t: t.to("flagos", memory_format=torch.preserve_format),
    "non_blocking": lambda t: t.to("flagos", non_blocking=True),
    "copy=False": lambda t: t.to("flagos", copy=False),
    "flagos()": lambda t: t.flagos(),
    "flagos(0)": lambda t: t.flagos(0),
    "float()": lambda t: t.float(),
    "type": lambda t: t.type(torch.float32),
    "contiguous": lambda t: t.contiguous(),
}
OTHER = {
    "copy": lambda t: t.to("flagos", copy=True),
    "copy of a dtype": lambda t: t.to(torch.float32, copy=True),
    "another dtype": lambda t: t.to(torch.float64),
    "cpu": lambda t: t.cpu(),
    "clone": lambda t: t.clone(),
    "double()": lambda t: t.double(),
}


@pytest.mark.parametrize("how", SAME)
def test_to_the_same_is_the_same(there: torch.Tensor, how: str) -> None:
    assert SAME[how](there) is there


@pytest.mark.parametrize("how", OTHER)
def test_to_something_else_is_new_memory(there: torch.Tensor, how: str) -> None:
    result = OTHER[how](there)
    assert result is not there
    assert result.data_ptr() != there.data_ptr()
    assert result.tolist() == there.tolist()
    there.zero_()
    assert result.sum().item() == 15.0


def test_cpu_and_back() -> None:
    here = torch.arange(3.0)
    assert here.cpu() is here
    assert here.to("cpu") is here
    there = here.flagos()
    assert there.device == torch.device("flagos:0")
    assert there.is_flagos
    assert not here.is_flagos
    assert there.cpu().device.type == "cpu"
    assert there.cpu().untyped_storage().device.type == "cpu"
    for dtype in (torch.float16, torch.int32):
        assert torch.equal(here.to("flagos", dtype).cpu(), here.to(dtype))
        assert there.to("cpu", dtype).dtype == dtype
    assert there.to(here).device.type == "cpu"
    assert here.to(there.double()).dtype == torch.float64
    assert here.to(there.double()).device == there.device


@pytest.mark.parametrize("way", ["to flagos", "to cpu", "on flagos"])
def test_strides_are_kept_or_asked_for(way: str) -> None:
    start, end = {
        "to flagos": ("cpu", "flagos"),
        "to cpu": ("flagos", "cpu"),
        "on flagos": ("flagos", "flagos"),
    }[way]
    x = torch.randn(2, 3, 4, 5)
    nhwc = x.contiguous(memory_format=torch.channels_last)
    ndhwc = x.unsqueeze(2).contiguous(memory_format=torch.channels_last_3d)
    for made in (x, nhwc, ndhwc, x.transpose(1, 3), x[:, :, ::2], x[:, :1].expand(2, 3, 4, 5)):
        # The same strides on the start, also where a copy would make them dense.
        begin = made.untyped_storage().to(device=start)
        begin = torch.empty(0, device=start).set_(begin, 0, made.shape, made.stride())
        moved = begin.to(end, copy=True)
        assert moved.stride() == made.to("cpu", copy=True).stride()
        assert torch.equal(moved.cpu(), made)
        for memory_format in (torch.contiguous_format, torch.preserve_format):
            expected = begin.cpu().to("cpu", copy=True, memory_format=memory_format)
            actual = begin.to(end, copy=True, memory_format=memory_format)
            assert actual.stride() == expected.stride()
    moved = x.to(start).to(end, memory_format=torch.channels_last)
    assert moved.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(moved.cpu(), x)


def test_cpu_of_channels_last_keeps_the_strides() -> None:
    nhwc = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    there = nhwc.flagos()
    assert there.stride() == nhwc.stride()
    assert there.cpu().stride() == nhwc.stride()
    assert torch.equal(there.cpu(), nhwc)
    assert there.is_contiguous(memory_format=torch.channels_last)


def test_meta() -> None:
    there = torch.randn(2, 3, dtype=torch.float16, device="flagos").t()
    meta = there.to("meta")
    assert meta.is_meta
    assert (meta.shape, meta.dtype, meta.stride()) == (there.shape, there.dtype, there.stride())
    assert torch.empty_like(meta, device="flagos").device.type == "flagos"
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        meta.to("flagos")
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        there.copy_(meta)


def test_gradients_and_flags_follow() -> None:
    leaf = torch.ones(3, requires_grad=True)
    there = leaf.to("flagos")
    assert there.requires_grad
    assert not there.is_leaf
    (there * 3).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.device.type == "cpu"
    assert leaf.grad.tolist() == [3.0, 3.0, 3.0]
    with torch.inference_mode():
        assert torch.ones(2).to("flagos").is_inference()
    assert not torch.ones(3).to("flagos").requires_grad


def test_storages_move_too() -> None:
    storage = torch.arange(4, dtype=torch.uint8, device="flagos").untyped_storage()
    assert storage.device == torch.device("flagos:0")
    assert storage.cpu().tolist() == [0, 1, 2, 3]
    assert storage.flagos().tolist() == [0, 1, 2, 3]
    back = storage.cpu().flagos()
    assert back.device == torch.device("flagos:0")
    assert back.tolist() == [0, 1, 2, 3]
    clone = storage.clone()
    assert clone.device == storage.device
    assert clone.data_ptr() != storage.data_ptr()


# -- pinned memory


def test_pinned_memory_goes_both_ways() -> None:
    pinned = torch.arange(1000.0).pin_memory()
    assert pinned.is_pinned()
    assert pinned.device.type == "cpu"
    assert pinned.pin_memory() is pinned
    assert pinned[10:20].is_pinned()
    assert not torch.arange(3.0).is_pinned()

    there = pinned.to("flagos", non_blocking=True)
    torch.flagos.synchronize()
    assert torch.equal(there.cpu(), pinned)
    assert not there.is_pinned()

    back = torch.empty(1000, pin_memory=True)
    back.copy_(there * 2, non_blocking=True)
    torch.flagos.synchronize()
    assert torch.equal(back, pinned * 2)
    assert back.is_pinned()


def test_a_non_blocking_copy_to_the_host_arrives_in_pinned_memory() -> None:
    there = torch.arange(10.0, device="flagos")
    back = there.to("cpu", non_blocking=True)
    torch.flagos.synchronize()
    assert back.is_pinned()
    assert torch.equal(back, torch.arange(10.0))
    assert not there.to("cpu").is_pinned()


def test_device_memory_cannot_be_pinned() -> None:
    for pin in (
        lambda: torch.ones(2, device="flagos").pin_memory(),
        lambda: torch.empty(2, device="flagos", pin_memory=True),
    ):
        with pytest.raises(RuntimeError) as caught:
            pin()
        assert "only dense cpu tensors can be pinned" in str(caught.value).lower()


def test_pinned_copies_wait_for_their_source() -> None:
    """A pinned buffer that is let go and taken again must not disturb the copy from it."""
    results = []
    for i in range(50):
        buffer = torch.full((4096,), float(i), pin_memory=True)
        results.append(buffer.to("flagos", non_blocking=True))
        del buffer
    torch.flagos.synchronize()
    assert [result.unique().tolist() for result in results] == [[float(i)] for i in range(50)]
