"""Owns: what the kernel shows of a machine's hardware, without any SDK.

Plugins detect their hardware with it. Nothing here raises for what cannot be read: it is not there.
"""

from __future__ import annotations

import functools
import glob
import os
import re
from dataclasses import dataclass
from pathlib import Path

from torch_fl import settings

_PCI = "sys/bus/pci/devices"
# One file for each device, where the kernel has it, instead of four.
_MODALIAS = re.compile(
    r"pci:v(?P<vendor>[0-9A-F]{8})d(?P<device>[0-9A-F]{8})sv(?P<subsystem_vendor>[0-9A-F]{8})"
    r"sd[0-9A-F]{8}(?P<classes>bc[0-9A-F]{2}sc[0-9A-F]{2}i[0-9A-F]{2})"
)
_LARGEST_READ = 2**20
_LONGEST_LINE = 256

_DISPLAY, _ACCELERATOR = 0x03, 0x12  # base classes
_CO_PROCESSOR = 0x0B40  # base class and subclass


@dataclass(frozen=True)
class PciDevice:
    """One function of a PCI device: "0000:3b:00.0", and its ids as numbers.

    `class_code` has three bytes: base class, subclass, programming interface.
    """

    address: str
    vendor: int
    device: int
    class_code: int
    subsystem_vendor: int

    @property
    def computes(self) -> bool:
        """Whether its class is one that accelerators have: display or 3D controller, co-processor,
        processing accelerator. A maker's bridges, audio and network functions are not."""
        return (
            self.class_code >> 16 in (_DISPLAY, _ACCELERATOR)
            or self.class_code >> 8 == _CO_PROCESSOR
        )


class Machine:
    """The hardware under a root folder, "/" or a copy of parts of it.

    Paths are written as on the machine ("/dev/null"), whatever the root. PCI devices are read once.
    A container shows the PCI devices of its host but only those device nodes that it was given: a
    plugin that wants to use a device looks for both.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    @classmethod
    def here(cls) -> Machine:
        """This machine, or what FLAGOS_DEVICE_ROOT names in its place."""
        return cls(settings.FLAGOS_DEVICE_ROOT.read())

    @functools.cached_property
    def pci_devices(self) -> tuple[PciDevice, ...]:
        """All PCI functions whose ids can be read, by address."""
        devices = (self._pci_device(*found) for found in self._modaliases)
        return tuple(device for device in devices if device is not None)

    def pci(self, vendor: int) -> tuple[PciDevice, ...]:
        """The accelerators of one maker: its PCI functions that compute."""
        wanted = b"pci:v%08X" % vendor
        devices = (
            self._pci_device(address, modalias)
            for address, modalias in self._modaliases
            if not modalias or modalias.startswith(wanted)
        )
        return tuple(d for d in devices if d and d.vendor == vendor and d.computes)

    @functools.cached_property
    def _modaliases(self) -> tuple[tuple[str, bytes], ...]:
        """Each PCI function's address, and all its ids in one line; empty where it has none.

        A server has hundreds: read without anything in between, they take some microseconds each.
        """
        folder = str(self.root / _PCI)
        try:
            addresses = sorted(os.listdir(folder))
        except OSError:
            return ()
        return tuple((address, _line(f"{folder}/{address}/modalias")) for address in addresses)

    def nodes(self, pattern: str) -> tuple[str, ...]:
        """Device nodes that match, such as "/dev/accel/accel[0-9]*", sorted."""
        # (Without a slash at its end: to POSIX a path that begins with two is another one.)
        root = str(self.root).rstrip("/")
        found = glob.glob(f"{glob.escape(root)}/{pattern.lstrip('/')}")
        return tuple(sorted(path[len(root) :] for path in found))

    def exists(self, path: str) -> bool:
        """Whether there is a file, folder or device node."""
        return os.path.exists(self._at(path))

    def accessible(self, path: str) -> bool:
        """Whether this process may read and write it: a device node that exists may still be
        closed to this user."""
        return os.access(self._at(path), os.R_OK | os.W_OK)

    def read(self, path: str) -> str | None:
        """A small text file, such as one in /sys or /proc, without spaces around it; None if it is
        none or cannot be read."""
        file = self._at(path)
        try:
            if not file.is_file():  # opening a device node may start the device, a pipe waits
                return None
            with open(file, encoding="utf-8", errors="replace") as opened:
                return opened.read(_LARGEST_READ).strip()
        except (OSError, ValueError):
            return None

    def notes(self) -> tuple[str, ...]:
        """What is wrong with the root itself: from a folder that is not there nothing is found."""
        if self.root.is_dir():
            return ()
        name = settings.FLAGOS_DEVICE_ROOT.name
        return (
            f"{name} is {str(self.root)!r}, which is not a folder: no hardware is found there.",
        )

    def __repr__(self) -> str:
        return f"Machine({str(self.root)!r})"

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _pci_device(self, address: str, modalias: bytes) -> PciDevice | None:
        folder = f"/{_PCI}/{address}"
        if found := _MODALIAS.fullmatch(modalias.decode("ascii", "replace").strip()):
            return PciDevice(
                address,
                vendor=int(found["vendor"], 16),
                device=int(found["device"], 16),
                class_code=int(re.sub("[a-z]", "", found["classes"]), 16),
                subsystem_vendor=int(found["subsystem_vendor"], 16),
            )
        vendor, device, class_code = (
            self._hexadecimal(f"{folder}/{file}") for file in ("vendor", "device", "class")
        )
        if vendor is None or device is None or class_code is None:
            return None
        subsystem_vendor = self._hexadecimal(f"{folder}/subsystem_vendor")
        return PciDevice(address, vendor, device, class_code, subsystem_vendor or 0)

    def _hexadecimal(self, path: str) -> int | None:
        try:
            return int(self.read(path) or "", 16)
        except ValueError:
            return None


def _line(path: str) -> bytes:
    """The first bytes of a small file; none of one that cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _LONGEST_LINE)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
