"""Owns: loading damaged checkpoints, on flagos and on the CPU, and comparing what comes of it.

To be run in a process of its own: what goes wrong here may end the process.
"""

from __future__ import annotations

import io
import random
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from memory_level import settled
from out_of_memory import wait_for_level

D = "flagos"
NOT_RESIZABLE = ("RuntimeError", "Trying to resize storage that is not resizable")


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Embedding(6, 3)
    ).to(D)


def checkpoint(*, zipped: bool) -> bytes:
    """A model and its optimizer, saved from the device."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    (net[1](net[0](torch.ones(4, 5, device=D))).sum() + net[2].weight.sum()).backward()
    optimizer.step()
    file = io.BytesIO()
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}
    torch.save(state, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def damaged(whole: bytes, stride: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """`whole` with changed bytes and truncated, at every `stride`th place, from a random one on."""
    chance = random.Random(seed)
    for place in range(chance.randrange(stride), len(whole), stride):
        changed = bytearray(whole)
        changed[place] ^= 1 << chance.randrange(8)
        yield f"a bit of byte {place} flipped", bytes(changed)
        length = chance.randrange(1, 40)
        changed = bytearray(whole)
        changed[place : place + length] = chance.randbytes(len(changed[place : place + length]))
        yield f"{length} bytes from {place} on overwritten", bytes(changed)
        yield f"cut off at byte {place}", whole[:place]
        yield f"without {length} bytes at {place}", whole[:place] + whole[place + length :]


@dataclass
class Loaded:
    """What came of torch.load: a value, or an error as type and text."""

    value: object = None
    error: tuple[str, str] | None = None


def load(data: bytes, place: str, *, mapped: bool) -> Loaded:
    """The state loaded to `place`; `mapped`: from a file that is mapped into memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch, about what it finds in the file
        try:
            if not mapped:
                return Loaded(torch.load(io.BytesIO(data), map_location=place, weights_only=True))
            with tempfile.NamedTemporaryFile() as file:
                file.write(data)
                file.flush()
                state = torch.load(file.name, map_location=place, weights_only=True, mmap=True)
                return Loaded(state)
        except Exception as error:
            return Loaded(error=(type(error).__name__, _plain(str(error))))


def _plain(text: str) -> str:
    """Without what differs from call to call: C++ frames, temporary files, memory's content."""
    lines = text.split("\nException raised from")[0].split("\nC++ CapturedTraceback")[0]
    lines = re.sub(r"b'[^']*'|b\"[^\"]*\"", "b''", lines)  # PyTorch's reader may read past a record
    words = [word for word in lines.replace("flagos:0", "cpu").split() if "/tmp" not in word]
    # Where an object is printed, its content follows.
    return re.split(r"OrderedDict|tensor\(|[{\[]|-?\d", " ".join(words))[0]


def _sizes(state: object) -> set[int]:
    """Bytes of the storages of a state."""
    if isinstance(state, torch.Tensor):
        return {state.untyped_storage().nbytes()}
    if isinstance(state, dict):
        return set().union(*map(_sizes, state.values()))
    return set()


def _same(mine: object, its: object, sizes: set[int]) -> bool:
    """Equal, but for memory that no file has filled: where damage made a storage larger."""
    if isinstance(mine, torch.Tensor) and isinstance(its, torch.Tensor):
        alike = mine.dtype == its.dtype and mine.shape == its.shape
        if not alike or its.untyped_storage().nbytes() not in sizes:
            return alike
        return bool(((mine.cpu() == its) | (mine.cpu().isnan() & its.isnan())).all())
    if isinstance(mine, dict) and isinstance(its, dict):
        return _same(list(mine), list(its), sizes) and _same(
            list(mine.values()), list(its.values()), sizes
        )
    if isinstance(mine, (list, tuple)) and isinstance(its, (list, tuple)):
        return len(mine) == len(its) and all(
            _same(*pair, sizes) for pair in zip(mine, its, strict=True)
        )
    return repr(mine) == repr(its)


def compare(whole: bytes, stride: int, *, mapped: bool = False, seed: int = 0) -> Counter[str]:
    """Loads damaged copies of `whole` to flagos and to the CPU; what happens must be the same.

    Returns: how often there was which error, or "loaded".
    """
    net = model()
    before = {name: value.cpu() for name, value in net.state_dict().items()}
    sizes = _sizes(load(whole, "cpu", mapped=False).value)
    level, found = settled(), Counter[str]()
    for what, data in damaged(whole, stride, seed):
        mine, its = load(data, D, mapped=mapped), load(data, "cpu", mapped=mapped)
        if its.error == NOT_RESIZABLE:  # the file's own memory; a device has a copy, which can
            found["resized" if mine.error is None else mine.error[0]] += 1
        elif its.error is not None:
            assert mine.error is not None, f"{what}: loads, but the CPU says {its.error}"
            assert mine.error == its.error, f"{what}: {mine.error}, but the CPU: {its.error}"
            found[mine.error[0]] += 1
        else:
            assert mine.error is None, f"{what}: {mine.error}, but the CPU loads it"
            if _same(mine.value, its.value, sizes):
                _into(net, mine.value, its.value, sizes, what)
                net.load_state_dict(before)
                found["loaded"] += 1
            else:  # PyTorch's reader may leave a record's memory as it found it
                again = [load(data, "cpu", mapped=mapped).value for _ in range(5)]
                undefined = not all(_same(one, its.value, sizes) for one in again)
                assert undefined, f"{what}: not what the CPU loads"
                found["undefined"] += 1
        mine = its = Loaded()
        if torch.flagos.memory_allocated() != level:
            wait_for_level(level, what)
    assert all(value.cpu().equal(before[name]) for name, value in net.state_dict().items())
    return found


def _into(net: torch.nn.Module, mine: object, its: object, sizes: set[int], what: str) -> None:
    """The model takes what was loaded exactly as a model on the CPU would."""
    twin = torch.nn.Sequential(
        torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Embedding(6, 3)
    )
    twin.load_state_dict({name: value.cpu() for name, value in net.state_dict().items()})
    outcomes = []
    for target, state in ((net, mine), (twin, its)):
        try:
            assert isinstance(state, dict)
            target.load_state_dict(state["model"])
            outcomes.append("taken")
        except Exception as error:
            outcomes.append(f"{type(error).__name__}: {error}")
    assert outcomes[0] == outcomes[1], f"{what}: {outcomes}"
    assert (
        outcomes[0] != "taken"
        or _sizes(its) - sizes
        or _same(dict(net.state_dict()), dict(twin.state_dict()), sizes)
    ), what
