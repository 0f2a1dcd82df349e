"""Owns: tests of processes that start on CUDA: when, on which devices, after a fork, many at once,
and what installing and importing change for code that uses CUDA natively."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

AUTOLOAD = {"TORCH_DEVICE_BACKEND_AUTOLOAD": None, "FLAGOS_AUTOLOAD": None}
STARTED = """
    def started():
        contexts = torch._C._cuda_hasPrimaryContext(0)
        return [torch.cuda.is_initialized(), contexts, torch.flagos.is_initialized()]
"""


# -- when


def test_importing_and_asking_start_nothing(said: Any) -> None:
    told = said(f"""
    import torch_fl
    {STARTED}
    told = [started()]
    asked = [
        torch.flagos.is_available(), torch.flagos.device_count(), torch.accelerator.is_available(),
        torch.flagos.memory_allocated(), torch.accelerator.memory_allocated(),
    ]
    torch.manual_seed(3)
    torch.flagos.manual_seed_all(4)
    told.append(started())
    torch.ones(2, device="flagos")
    told.append(started())
    print(json.dumps([told, asked, torch.cuda.device_count()]))
    """)
    states, asked, count = told
    assert states == [[False] * 3, [False] * 3, [True] * 3]
    assert asked == [True, count, True, 0, 0]


def test_the_first_tensor_starts_cuda_under_both_names(said: Any) -> None:
    told = said("""
    import torch_fl
    torch.manual_seed(5)
    x = torch.randn(1 << 20, device="flagos")
    allocated = [m.memory_allocated() for m in (torch.flagos, torch.cuda, torch.accelerator)]
    torch.cuda.synchronize()
    y = torch.randn(1 << 20, device="flagos")
    print(json.dumps([allocated, torch.equal(x, y)]))
    """)
    assert told[0] == [4 << 20] * 3
    assert told[1] is False, "a seed from before the start counts once"


# -- on which devices

DEVICES = """
    import torch_fl
    from torch_fl.plugins import selection
    chosen = selection.current()
    (record,) = [each for each in chosen.records if each.name == "cuda"]
    told = [chosen.plugin.name, torch.flagos.device_count(), torch.flagos.is_available()]
    try:
        told.append(torch.ones(2, device="flagos").sum().item())
    except RuntimeError as error:
        told.append(str(error))
    told += [record.why, torch.ones(2).sum().item()]
    print(json.dumps(told))
"""


@pytest.mark.parametrize("visible", ["0", "GPU-{uuid}"])
def test_one_visible_device(visible: str, said: Any) -> None:
    visible = visible.format(uuid=torch.cuda.get_device_properties(0).uuid)
    told = said(DEVICES, CUDA_VISIBLE_DEVICES=visible)
    assert told[:4] == ["cuda", 1, True, 2]


def test_without_visible_devices_the_host_is_used(said: Any) -> None:
    name, count, available, total, why, _ = said(DEVICES, CUDA_VISIBLE_DEVICES="")
    assert (name, count, available, total) == ("host", 1, True, 2)
    assert "CUDA_VISIBLE_DEVICES='' hides every GPU" in why


@pytest.mark.parametrize("env", [{"CUDA_VISIBLE_DEVICES": "99"}, {"CUDA_VISIBLE_DEVICES": ""}])
def test_the_first_use_tells_that_no_device_is_left(env: dict[str, str], said: Any) -> None:
    name, count, available, error, _, after = said(DEVICES, FLAGOS_PLUGIN="cuda", **env)
    native = said(
        "try: torch.ones(2, device='cuda')\n"
        "except RuntimeError as error: print(json.dumps(str(error)))",
        **env,
    )
    assert (name, count, available) == ("cuda", 0, False)
    assert native.splitlines()[0].rstrip(".") in error
    assert after == 2, "the process goes on"


def test_detection_takes_less_than_a_millisecond(said: Any) -> None:
    found, best = said("""
    import time
    import torch_fl_entry
    torch_fl_entry.is_command_line = True  # importing torch_fl then activates nothing
    from torch_fl.plugins.machine import Machine
    from torch_fl_cuda import detection

    found, times = [], []
    for _ in range(20):
        begin = time.perf_counter()
        found.append(detection.detect(Machine.here()).found)
        times.append(time.perf_counter() - begin)
    print(json.dumps([all(found), min(times)]))
    """)
    assert found
    assert best < 1e-3


# -- forks

FORK = """
    if {device!r} == "flagos":
        import torch_fl
    {before}
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = []
        for use in ({uses}):
            try:
                told.append(use())
            except BaseException as error:
                told.append(type(error).__name__ + ": " + str(error))
        os.write(writer, json.dumps(told).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        told = json.loads(file.read())
    os.waitpid(pid, 0)
    print(json.dumps([told, torch.ones(3, device={device!r}).sum().item()]))
"""
NEW = 'lambda: torch.ones(2, device="{device}").sum().item(),'


@pytest.mark.parametrize("device", ["cuda", "flagos"])
def test_a_child_forked_before_the_start_can_use_the_device(device: str, said: Any) -> None:
    code = FORK.format(device=device, before="", uses=NEW.format(device=device))
    assert said(code) == [[2.0], 3.0]


def test_fork_after_the_start_is_refused_as_cuda_refuses_it(said: Any) -> None:
    told = {}
    for device in ("cuda", "flagos"):
        uses = NEW.format(device=device) + "lambda: (x + 1).tolist(), lambda: x.cpu().tolist(),"
        before = f"x = torch.ones(2, device={device!r})"
        told[device], total = said(FORK.format(device=device, before=before, uses=uses))
        assert total == 3, "the parent goes on"
    assert "Cannot re-initialize CUDA in forked subprocess" in told["cuda"][0]
    assert told["flagos"][0] == told["cuda"][0].replace("CUDA", "flagos")
    assert all("forked subprocess" in error for error in told["flagos"]), "old tensors as well"


# -- code that uses CUDA natively

SCRIPT = """
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(256, 10)
    ).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for step in range(10):
        loss = net(torch.randn(32, 64, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    told = [loss.item()] + [p.double().sum().item() for p in net.parameters()]
    devices = [torch.cuda.device_count(), str(torch.accelerator.current_accelerator())]
    activated = [hasattr(torch, "flagos"), "torch_fl" in sys.modules]
    activated.append(torch._C._get_privateuse1_backend_name())
    print(json.dumps([told, devices, activated, "torch_fl_entry" in sys.modules]))
"""


def test_a_cuda_script_trains_as_if_nothing_were_installed(said: Any) -> None:
    *with_autoload, loaded = said(SCRIPT, **AUTOLOAD)
    *without, not_loaded = said(SCRIPT)
    assert (loaded, not_loaded) == (True, False), "the wheels are installed, and autoload was on"
    assert with_autoload == without
    assert with_autoload[1][1] == "cuda"
    assert with_autoload[2] == [False, False, "privateuseone"]


def test_a_cuda_script_may_fork_as_if_nothing_were_installed(said: Any) -> None:
    code = FORK.format(device="cuda", before="", uses=NEW.format(device="cuda"))
    assert said(code, **AUTOLOAD) == [[2.0], 3.0]


def test_backward_on_cuda_after_the_import_says_what_to_do() -> None:
    x = torch.ones(3, device="cuda", requires_grad=True)
    for backward in (
        lambda: (x * 2).sum().backward(),
        lambda: torch.autograd.grad((x * 2).sum(), x),
        lambda: torch.autograd.backward([(x * 2).sum()]),
    ):
        with pytest.raises(RuntimeError, match=r"import torch_fl.*'flagos'"):
            backward()
    assert (x * 2).tolist() == [2, 2, 2], "forward on CUDA works"
    ours = torch.ones(3, device="flagos", requires_grad=True)
    assert torch.autograd.grad((ours * 2).sum(), ours)[0].tolist() == [2, 2, 2]


@pytest.mark.parametrize("end", ['.to("flagos")', ".cpu()"])
def test_no_assertion_of_the_engine_is_shown(end: str, said: Any) -> None:
    """A graph with nodes on CUDA whose root is elsewhere: right, or our own error."""
    told = said(f"""
    import torch_fl
    x = torch.ones(3, device="cuda", requires_grad=True)
    try:
        (x * 2){end}.sum().backward()
        told = x.grad.tolist()
    except RuntimeError as error:
        told = str(error)
    y = torch.ones(3, device="flagos", requires_grad=True)
    (y * 2).sum().backward()
    print(json.dumps([told, y.grad.tolist()]))
    """)
    assert told[0] == [2, 2, 2] or "import torch_fl" in told[0]
    assert told[1] == [2, 2, 2], "the process goes on"


# -- many


def test_many_processes_start_and_end_at_once(child: Any) -> None:
    code = """
    import torch_fl
    x = (torch.arange(64 * 64.0) % 7 - 3).view(64, 64)
    weight = (torch.arange(64 * 64.0) % 5 - 2).view(64, 64)
    ours = weight.to("flagos").requires_grad_()
    (x.to("flagos") @ ours).relu().sum().backward()
    expected = weight.clone().requires_grad_()
    (x @ expected).relu().sum().backward()
    print(torch.equal(ours.grad.cpu(), expected.grad))
    (x.to("flagos") @ ours).relu().sum().backward()  # and nobody waits for it
    """
    with ThreadPoolExecutor(20) as pool:
        ended = list(pool.map(lambda _: child(code, timeout=300), range(20)))
    told = [(done.returncode, done.stdout.strip()) for done in ended]
    assert told == [(0, "True")] * 20, [done.stderr[-500:] for done in ended if done.returncode]
