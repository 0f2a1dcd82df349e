"""Owns: tests of what the environment asks of routes, and of a device that cannot be started."""

from __future__ import annotations

from pathlib import Path

import pytest
from children import output_of_child, run_child

MM = """
import torch, torch_fl
x = torch.ones(2, 2, device="flagos")
print((x @ x).sum().item(), torch_fl.routing.explain("mm.default")[0].decided_by)
"""


def test_importing_loads_no_routes_where_there_are_none() -> None:
    output_of_child(
        """
        import torch, torch_fl
        from torch_fl.routing.engine import ENGINE
        assert not ENGINE._facts, "nothing asked for them"
        """
    )


def test_layers_of_a_process(tmp_path: Path) -> None:
    config = tmp_path / "mine.conf"
    config.write_text("mm = composite\nadd.Tensor[int64] = cpu\n")
    output = output_of_child(MM, FLAGOS_BACKEND_CONFIG=str(config))
    assert output.startswith("8.0 config")
    assert f"{config}:1:1" in output
    output = output_of_child(MM, FLAGOS_BACKEND_CONFIG=str(config), FLAGOS_OP_mm="cpu")
    assert "environment variable FLAGOS_OP_mm" in output
    output_of_child(
        """
        import os
        before = dict(os.environ)
        import torch, torch_fl
        assert dict(os.environ) == before
        routing = torch_fl.routing
        assert routing.explain("mm.default")[0].layer == "environment"
        routing.set("mm", "boxing")
        assert routing.explain("mm.default")[0].layer == "set"
        with routing.use({"mm": "composite"}):
            assert routing.explain("mm.default")[0].layer == "use"
        routing.reset()
        assert routing.explain("mm.default")[0].layer == "environment"
        assert routing.explain("add.Tensor", torch.int64)[0].layer == "config"
        """,
        FLAGOS_BACKEND_CONFIG=str(config),
        FLAGOS_OP_mm="cpu",
    )


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"FLAGOS_OP_mm": "cpx"}, "did you mean 'cpu'"),
        ({"FLAGOS_OP_mmm": "cpu"}, "there is no operator 'mmm'"),
        ({"FLAGOS_OP_linear": "cpu"}, "would lose autograd"),
        ({"FLAGOS_BACKEND_CONFIG": "/no/such/file"}, "there is no file"),
        ({"FLAGOS_STRICT": "maybe"}, "FLAGOS_STRICT must be 0 or 1"),
    ],
)
def test_a_mistake_is_an_error_at_every_import(variables: dict[str, str], said: str) -> None:
    child = run_child(
        """
        for _ in range(2):
            try:
                import torch_fl
            except ValueError as error:
                print(error)
            else:
                raise AssertionError("imported")
        import torch
        try:
            torch.ones(2, device="flagos")
        except RuntimeError as error:
            print(error)
        assert torch.ones(2).sum().item() == 2
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        **variables,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.count(said) == 3


def test_with_a_broken_file_nothing_runs_until_it_is_put_right(tmp_path: Path) -> None:
    config = tmp_path / "broken.conf"
    config.write_text("mm = cpu\nadd = cpx\n")
    child = run_child(
        f"""
        import warnings
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            import torch
        assert "broken.conf:2:7" in str(said[0].message), said
        try:
            torch.ones(2, device="flagos")
        except RuntimeError as error:
            assert "broken.conf:2:7" in str(error), error
        else:
            raise AssertionError("it ran")
        open({str(config)!r}, "w").write("mm = cpu\\nadd = cpu\\n")
        import torch_fl
        x = torch.ones(2, 2, device="flagos")
        x @ x
        assert torch_fl.routing.fallbacks()[0].operator == "aten::mm"
        """,
        FLAGOS_AUTOLOAD="1",
        TORCH_DEVICE_BACKEND_AUTOLOAD="1",
        FLAGOS_BACKEND_CONFIG=str(config),
    )
    assert child.returncode == 0, child.stderr


def test_a_file_may_name_operators_of_a_library_that_comes_later(tmp_path: Path) -> None:
    config = tmp_path / "later.conf"
    config.write_text("coming_later::twice = cpu\n")
    output_of_child(
        """
        import torch, torch_fl
        library = torch.library.Library("coming_later", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda a: a + a, "CPU")
        torch_fl.routing.refresh()
        assert torch_fl.routing.explain("coming_later::twice").route == "cpu"
        torch.ops.coming_later.twice(torch.ones(2, device="flagos"))
        assert torch_fl.routing.fallbacks()[0].operator == "coming_later::twice"
        """,
        FLAGOS_BACKEND_CONFIG=str(config),
    )


def test_calls_are_logged() -> None:
    child = run_child(
        """
        import torch, torch_fl
        x = torch.ones(2, 2, device="flagos")
        x @ x
        torch_fl.routing.set("mm", "cpu")
        x @ x
        """,
        FLAGOS_LOG_DISPATCH="1",
        FLAGOS_LOG_FALLBACK="1",
    )
    assert child.returncode == 0, child.stderr
    lines = child.stderr.splitlines()
    assert "[flagos dispatch] aten::mm -> boxing" in lines
    assert lines.index("[flagos dispatch] aten::mm -> cpu") < lines.index(
        "[flagos cpu_fallback] aten::mm"
    )


def test_strict_makes_a_fallback_an_error_that_names_the_way_out() -> None:
    output_of_child(
        """
        import torch, torch_fl
        x = torch.ones(2, 2, device="flagos")
        torch.relu(x)
        try:
            x @ x
        except RuntimeError as error:
            assert "aten::mm" in str(error) and "routing.explain" in str(error), error
        else:
            raise AssertionError("fell back")
        assert not torch_fl.routing.fallbacks()
        with torch_fl.routing.use({"mm": "boxing"}):
            assert (x @ x).sum().item() == 8
        """,
        FLAGOS_STRICT="1",
        FLAGOS_OP_mm="cpu",
    )


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"FLAGOS_PLUGIN": "nope"}, "no plugin of that name is installed"),
        ({"FLAGOS_HOST_DEVICES": "abc"}, "FLAGOS_HOST_DEVICES must be a number"),
    ],
)
def test_a_backend_that_cannot_start_is_told_at_first_use(
    variables: dict[str, str], said: str
) -> None:
    output_of_child(
        f"""
        import torch, torch_fl
        flagos = torch.flagos
        assert torch.device("flagos").type == "flagos"
        assert not flagos.is_available() and flagos.device_count() == 0
        assert torch.accelerator.current_accelerator(check_available=True) is None
        model = torch.nn.Linear(2, 2)
        for use in (
            lambda: torch.ones(2, device="flagos"),
            lambda: torch.ones(2, device="flagos:0"),
            lambda: torch.ones(2).to("flagos"),
            lambda: model.to("flagos"),
            lambda: torch.ones(2).pin_memory(),
            lambda: torch.Stream("flagos"),
            lambda: torch.Generator("flagos"),
            flagos.init,
            flagos.synchronize,
            flagos.current_device,
            flagos.get_device_properties,
            flagos.get_rng_state,
        ):
            try:
                use()
            except RuntimeError as error:
                assert {said!r} in str(error), error
            else:
                raise AssertionError("it was used")
        torch.manual_seed(1)  # all devices', which are none
        model(torch.ones(1, 2)).sum().backward()  # the CPU goes on
        assert flagos.memory_allocated() == 0
        flagos.empty_cache()
        """,
        **variables,
    )
