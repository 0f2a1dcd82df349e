"""Owns: a folder that looks to plugins like a machine with certain hardware."""

from __future__ import annotations

from pathlib import Path


class PretendMachine:
    """PCI devices and device nodes under `root`, which is what FLAGOS_DEVICE_ROOT names."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._devices = 0

    def pci(
        self,
        vendor: int,
        device: int,
        class_code: int,
        *,
        subsystem: int = 0,
        modalias: bool = True,
    ) -> Path:
        """One PCI function more; `modalias` as Linux has it, else in four files."""
        folder = self.root / f"sys/bus/pci/devices/0000:00:{self._devices:02x}.0"
        folder.mkdir(parents=True)
        self._devices += 1
        if modalias:
            classes = (
                f"bc{class_code >> 16:02X}sc{class_code >> 8 & 0xFF:02X}i{class_code & 255:02X}"
            )
            (folder / "modalias").write_text(
                f"pci:v{vendor:08X}d{device:08X}sv{subsystem:08X}sd00000000{classes}\n"
            )
            return folder
        for name, number, digits in (
            ("vendor", vendor, 4),
            ("device", device, 4),
            ("class", class_code, 6),
            ("subsystem_vendor", subsystem, 4),
        ):
            (folder / name).write_text(f"0x{number:0{digits}x}\n")
        return folder

    def nodes(self, *names: str) -> None:
        """Files that stand for device nodes, such as "accel/accel0"."""
        for name in names:
            node = self.root / "dev" / name
            node.parent.mkdir(parents=True, exist_ok=True)
            node.touch()
