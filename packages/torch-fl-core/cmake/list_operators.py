"""Owns: everything the build derives from the operator list that the installed torch ships.

    python list_operators.py HOT_OPERATORS OUTPUT_DIR SHARDS

Writes to OUTPUT_DIR:
  typed_operators_<n>.cpp   typed boxing for the hot operators, SHARDS files of equal length
  typed_operators.cpp       what installs them
  known_operators.inc       every operator name, sorted
  unchecked_operators.inc   those with `device_check: NoCheck`, sorted
Files whose content is unchanged are left alone, so that nothing is recompiled for them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torchgen
from torchgen.gen import parse_native_yaml
from torchgen.model import DeviceCheckType, NativeFunction


def native_functions() -> dict[str, NativeFunction]:
    """Operators of the installed torch by name, such as ``add.Tensor``."""
    base = Path(torchgen.__file__).parent / "packaged/ATen/native"
    parsed = parse_native_yaml(str(base / "native_functions.yaml"), str(base / "tags.yaml"))
    return {str(function.func.name): function for function in parsed.native_functions}


def hot_names(path: Path) -> list[str]:
    """Words of the file, comments left out."""
    lines = (line.split("#")[0] for line in path.read_text().splitlines())
    return [name for line in lines for name in line.split()]


def string_list(names: list[str]) -> str:
    return "".join(f'"{name}",\n' for name in sorted(names))


def shard_source(index: int, functions: list[NativeFunction]) -> str:
    """C++ that installs typed boxing for `functions`."""
    headers = sorted({function.root_name for function in functions})
    includes = "".join(f"#include <ATen/ops/{name}_ops.h>\n" for name in headers)
    installs = "".join(
        f"  install_typed_boxing<at::_ops::{function.func.name.unambiguous_name()}>();\n"
        for function in functions
    )
    return (
        f'#include "boxing/typed.h"\n{includes}\nnamespace torch_fl {{\n'
        f"void install_typed_operators_{index}() {{\n{installs}}}\n}}  // namespace torch_fl\n"
    )


def index_source(shards: int) -> str:
    """C++ that calls every shard."""
    names = [f"install_typed_operators_{index}" for index in range(shards)]
    declarations = "".join(f"void {name}();\n" for name in names)
    calls = "".join(f"  {name}();\n" for name in names)
    return (
        f'#include "boxing/typed_operators.h"\n\nnamespace torch_fl {{\n{declarations}'
        f"void install_typed_operators() {{\n{calls}}}\n}}  // namespace torch_fl\n"
    )


def write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main(hot_file: Path, output: Path, shards: int) -> None:
    functions = native_functions()
    hot = [functions[name] for name in hot_names(hot_file) if name in functions]
    output.mkdir(parents=True, exist_ok=True)
    for index in range(shards):
        write(output / f"typed_operators_{index}.cpp", shard_source(index, hot[index::shards]))
    write(output / "typed_operators.cpp", index_source(shards))
    write(output / "known_operators.inc", string_list(list(functions)))
    unchecked = [
        name
        for name, function in functions.items()
        if function.device_check is DeviceCheckType.NoCheck
    ]
    write(output / "unchecked_operators.inc", string_list(unchecked))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
