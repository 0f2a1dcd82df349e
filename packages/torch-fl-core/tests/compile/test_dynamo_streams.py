"""Owns: the tests that compiling for the CPU leaves flagos alone."""

from __future__ import annotations

from textwrap import dedent

from children import output_of_child

COMPILED_ON_THE_CPU = dedent("""
    import os
    import torch
    from torch_fl import _C

    function = torch.compile(lambda x: x * 2 + 1, backend="aot_eager")
    print(function(torch.ones(2)).tolist(), _C.is_initialized(), flush=True)
""")
IN_A_CHILD = dedent("""
    child = os.fork()
    if child == 0:
        print(function(torch.ones(2)).tolist(), flush=True)
        torch.compiler.reset()
        print(function(torch.zeros(3)).tolist(), flush=True)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")


def test_compiled_cpu_code_starts_nothing_and_its_process_may_fork() -> None:
    said = output_of_child(f"import torch_fl\n{COMPILED_ON_THE_CPU}{IN_A_CHILD}")
    assert said.splitlines() == ["[3.0, 3.0] False", "[3.0, 3.0]", "[1.0, 1.0, 1.0]", "0"]


def test_compiled_cpu_code_runs_in_children_of_a_process_that_uses_flagos() -> None:
    used = "import torch_fl, torch\ntorch.ones(1, device='flagos')\n"
    said = output_of_child(f"{used}{COMPILED_ON_THE_CPU}{IN_A_CHILD}")
    assert said.splitlines() == ["[3.0, 3.0] True", "[3.0, 3.0]", "[1.0, 1.0, 1.0]", "0"]
