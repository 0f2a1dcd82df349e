"""Owns: `torch_fl.migrate()`: scripts with "cuda" written into them run on flagos, unchanged.

    with torch_fl.migrate() as migration:      # for a block
        train()
    print(migration)

    torch_fl.migrate()                         # for the rest of the process
    python -m torch_fl.migrate script.py       # for a script, from outside

docs/migrate.md is the guide, with the limits.
"""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from torch_fl.migrate import adaptations, scopes
from torch_fl.migrate.mode import DeviceNames
from torch_fl.migrate.report import Limit, Report, Rewrite

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Limit", "Migration", "Report", "Rewrite", "migrate"]


class Migration(Report):
    """A migration in force, and its report. See `migrate`."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self._scope = scopes.Scope(scopes.current(), self)
        adaptations.acquire()
        try:
            scopes.enter(self._scope, DeviceNames(self._scope))
        except BaseException:
            adaptations.release()
            raise

    @property
    def active(self) -> bool:
        """Whether it is in force."""
        return self._scope.open

    def stop(self) -> None:
        """Ends it: nothing is rewritten from here on, in any of its threads.

        Raises RuntimeError in another thread than the one that began it, and when it has ended.
        """
        if not self._scope.open:
            raise RuntimeError("This migration has ended already; begin another with migrate().")
        if threading.get_ident() != self._thread:
            raise RuntimeError(
                "This migration was begun in another thread: stop it in that one. The threads that "
                "were started inside are outside then, too."
            )
        scopes.leave(self._scope)
        self._scope.open = False
        adaptations.release()

    def __enter__(self) -> Self:
        if not self._scope.open:
            raise RuntimeError("This migration has ended; begin another with migrate().")
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._scope.open:
            self.stop()


def migrate(*, force: bool = False) -> Migration:
    """Lets the name "cuda" mean flagos, from now on, for code that has it written into it.

    Holds in the calling thread and in threads started from it. As a context manager it ends with
    the block; otherwise with `stop()` or the process. Migrations nest; what happens in an inner one
    is also counted in those around it.

    Args:
        force: also where this process has real CUDA devices, which cannot be reached by their name
            then.

    Returns:
        The migration: `rewrites`, `limits` and `table()` say what was rewritten so far.

    Raises:
        RuntimeError: real CUDA devices are available, and `force` is false.
    """
    if not force and not scopes.inside() and torch.cuda.is_available():
        raise RuntimeError(
            'This process has CUDA devices, and torch_fl.migrate() would hide them: "cuda" would '
            "mean flagos. If that is what you want, say migrate(force=True); otherwise leave "
            "migrate() out here."
        )
    return Migration()


class _Callable(ModuleType):
    """`torch_fl.migrate` is this package and the function in one, in whatever order they come."""

    def __call__(self, *, force: bool = False) -> Migration:
        return migrate(force=force)


sys.modules[__name__].__class__ = _Callable
