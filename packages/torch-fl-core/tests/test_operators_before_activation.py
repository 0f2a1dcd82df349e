"""Owns: tests of users' operators that are there before flagos is: both orders of the imports do
the same, which is what the CPU does."""

from __future__ import annotations

import pytest
from children import output_of_child

CODE = """
import torch

def define():
    library = torch.library.Library("flagos_order", "DEF")
    library.define("one_(Tensor(a!) x) -> ()")
    library.define("all_(Tensor(a!)[] xs) -> ()")
    library.define("out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
    for key in ("CPU", "SparseCPU"):
        library.impl("one_", lambda x: (x.mul_(2), None)[1], key)
    library.impl("all_", lambda xs: ([x.add_(1) for x in xs], None)[1], "CPU")
    library.impl("out", lambda x, *, out: out.copy_(x), "CPU")

    @torch.library.custom_op("flagos_order::counted_", mutates_args={{"x"}}, device_types="cpu")
    def counted_(x: torch.Tensor) -> None:
        x.add_(1)

    return library

{first}
{second}
mine = torch.ops.flagos_order
for device in ("cpu", "flagos"):
    x = torch.ones(3, device=device, requires_grad=True)
    y = x.exp()
    with torch.no_grad():
        mine.one_(y.detach())
    try:
        y.sum().backward()
        print(device, "a wrong gradient")
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    a, b, c = (torch.ones(3, device=device) for _ in range(3))
    sparse = torch.eye(2).to_sparse().to(device)
    for use in (
        lambda: mine.all_([a, b]),
        lambda: mine.out(a, out=c),
        lambda: mine.one_(c),
        lambda: mine.one_(sparse),
        lambda: mine.counted_(b),
    ):
        before = [t._version for t in (a, b, c, sparse)]
        use()
        # (The CPU counts what a custom_op writes twice.)
        print([min(t._version - v, 1) for t, v in zip((a, b, c, sparse), before)])
"""


@pytest.mark.parametrize("order", [("import torch_fl", "kept = define()"), ()])
def test_versions_are_counted(order: tuple[str, ...]) -> None:
    first, second = order or ("kept = define()", "import torch_fl")
    said = output_of_child(
        CODE.format(first=first, second=second), TORCH_DEVICE_BACKEND_AUTOLOAD="0"
    ).splitlines()
    assert len(said) == 10
    assert said[:5] == said[5:]
    assert said[0] == "[1, 1, 0, 0]"
    assert said[3] == "[0, 0, 0, 1]"
