"""Owns: ten minutes of fuzzing of texts and files of routes: every input is right or a RouteError.

What is accepted is right by an oracle of its own (route_texts.is_right), and reads back the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from route_texts import TEXTS, WORDS, is_right

from torch_fl.routing.errors import RouteError
from torch_fl.routing.files import load
from torch_fl.routing.grammar import parse, unparse

FUZZ_SECONDS = 600.0

_INPUTS = st.binary(max_size=200) | TEXTS.map(lambda text: text.encode(errors="surrogatepass"))


def _fuzz(seconds: float, run: Callable[[], None]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        run()


@pytest.mark.slow
def test_texts() -> None:
    @settings(max_examples=2000, deadline=None, database=None, derandomize=False)
    @given(TEXTS)
    def run(text: str) -> None:
        try:
            entries = parse(text, "x", words=WORDS)
        except RouteError as error:
            str(error).encode()
            assert not is_right(text)
            lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
            location = error.location
            assert 1 <= location.column <= len(lines[location.line - 1]) + 1
            return
        assert is_right(text)
        assert parse(unparse(entries), "x", words=WORDS) == entries

    _fuzz(FUZZ_SECONDS / 2, run)


@pytest.mark.slow
def test_files(tmp_path: Path) -> None:
    file, other = tmp_path / "routes.conf", tmp_path / "x.conf"

    @settings(
        max_examples=2000,
        deadline=None,
        database=None,
        derandomize=False,  # a CI profile would try the same inputs again and again
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(_INPUTS, _INPUTS)
    def run(first: bytes, second: bytes) -> None:
        file.write_bytes(first)
        other.write_bytes(second)
        try:
            entries = load(file, words=WORDS)
        except RouteError as error:
            str(error).encode()
            return
        assert all(
            entry.location.file in (str(file), str(other)) and entry.chain for entry in entries
        )
        assert b"include" in first or is_right(first.decode())

    _fuzz(FUZZ_SECONDS / 2, run)
