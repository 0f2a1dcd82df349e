"""Owns: running a test function in a process of its own that has the pretend device.

A parent process imports torch and loads the device once; it is forked for each test, so that a test
costs what flagos' activation costs. It lives as long as the tests of this process.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

_INSIDE = "PRETEND_DEVICE_LIBRARY"  # set in the parent process and its children


def on_pretend_device(
    test: Callable[[], None] | None = None, *, activate: bool = True
) -> Callable[..., None]:
    """A test that runs in a fresh process, with flagos activated there if `activate`."""
    if test is None:
        return functools.partial(on_pretend_device, activate=activate)
    if _INSIDE in os.environ:
        return test

    # torch allows one accelerator to a process, and what it was built with counts as one.
    @pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch has CUDA built in")
    @functools.wraps(test)
    def run() -> None:
        failure = _ask(test.__module__, test.__name__, activate)
        if failure:
            pytest.fail(failure, pytrace=False)

    return run


@functools.cache
def _parent() -> subprocess.Popen[str]:
    from pretend_device import building

    path = [str(Path(__file__).parents[1]), *filter(None, sys.path)]
    environment = {
        **os.environ,
        _INSIDE: str(building.library()),
        "PYTHONPATH": os.pathsep.join(path),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    started = subprocess.Popen(
        [sys.executable, "-c", "from pretend_device import processes; processes.serve()"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdin is not None
    atexit.register(started.wait)
    atexit.register(started.stdin.close)  # first: it ends the process
    return started


def _ask(module: str, name: str, activate: bool) -> str:
    parent = _parent()
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(json.dumps([module, name, activate]) + "\n")
    parent.stdin.flush()
    answer: str = json.loads(parent.stdout.readline() or '"the parent of the test died"')
    return answer


def serve() -> None:
    """The parent process: one request a line on standard input, one answer a line on standard
    output, empty where the test passed."""
    from pretend_device import loading

    loading.load(os.environ[_INSIDE])
    for line in sys.stdin:
        print(json.dumps(_in_child(*json.loads(line))), flush=True)


def _in_child(module: str, name: str, activate: bool) -> str:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as said:
            said.write(_failure_of(module, name, activate))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        failure = said.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return failure or (f"the process ended with {status}" if status else "")


def _failure_of(module: str, name: str, activate: bool) -> str:
    from pretend_device import loading

    os.dup2(2, 1)  # standard output is the answers'
    try:
        if activate:
            loading.activate()
        getattr(importlib.import_module(module), name)()
    except BaseException:
        return traceback.format_exc()
    return ""
