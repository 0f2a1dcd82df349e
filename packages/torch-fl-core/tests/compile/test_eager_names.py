"""Owns: tests of the names that a cache or a package keeps of a region's own operators."""

from __future__ import annotations

import pytest

from torch_fl.compile.eager.names import HOSTS, Call

CALLS = {
    "aten::rand@0+saves": Call("aten::rand", 0, form="+saves"),
    "mine::f.out@12": Call("mine::f.out", 12),
    "aten::add.Tensor#other@1": Call("aten::add.Tensor", 1, numbers=("other",)),
    "mine::f#x#y@0~boxes=-1,to=1+restores": Call(
        "mine::f", 0, ("x", "y"), (("boxes", HOSTS), ("to", 1)), "+restores"
    ),
}


@pytest.mark.parametrize(("text", "call"), CALLS.items(), ids=list(CALLS))
def test_a_name_is_written_and_read(text: str, call: Call) -> None:
    assert str(call) == text
    assert Call.of(text) == call
    assert call.identifier().isidentifier()


def test_a_name_does_not_depend_on_the_order_of_arguments() -> None:
    one = Call("mine::f", 0, places=(("a", 1), ("b", HOSTS)))
    other = Call("mine::f", 0, places=(("b", HOSTS), ("a", 1)))
    assert str(one) == str(other)


def test_names_that_differ_are_different_operators() -> None:
    assert len({call.identifier() for call in CALLS.values()}) == len(CALLS)
