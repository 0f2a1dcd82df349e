"""Owns: tests of reading routes from files: what may be included, and files that are none."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest
from route_texts import WORDS

from torch_fl.routing.errors import Location, RouteError
from torch_fl.routing.files import DEEPEST, LARGEST, load


def _patterns(file: Path) -> list[str]:
    return [entry.pattern for entry in load(file, words=WORDS)]


def _error(file: Path | str) -> RouteError:
    with pytest.raises(RouteError) as caught:
        load(file, words=WORDS)
    return caught.value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inside" / "below").mkdir(parents=True)
    (tmp_path / "outside.conf").write_text("mm = cpu\n")
    return tmp_path / "inside"


@pytest.fixture
def main(folder: Path) -> Path:
    """The file that the tests load; it lies in `folder`."""
    return folder / "main.conf"


def test_an_included_file_stands_in_its_place(folder: Path, main: Path) -> None:
    main.write_text('add = cpu\ninclude "below/x.conf"  # more\nmul = cpu\n')
    (folder / "below" / "x.conf").write_text('sub = cpu\ninclude "y.conf"\n')
    (folder / "below" / "y.conf").write_text("\ufeffdiv = cpu\r\n", encoding="utf-8")
    entries = load(str(main), words=WORDS)
    assert [entry.pattern for entry in entries] == [
        "aten::add",
        "aten::sub",
        "aten::div",
        "aten::mul",
    ]
    assert entries[0].location == Location(str(main), 1, 1)
    assert entries[2].location == Location(str(folder / "below" / "y.conf"), 1, 1)


def test_what_is_included_may_be_said_again(folder: Path, main: Path) -> None:
    (folder / "base.conf").write_text("mm = native\n")
    main.write_text('include "base.conf"\nmm = cpu\n')
    assert [entry.chain for entry in load(main, words=WORDS)] == [("native",), ("cpu",)]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing.conf", "cannot be read: No such file or directory"),
        ("below", "cannot be read: it is a folder, not a file"),
        (".", "cannot be read: it is a folder, not a file"),
        ("../outside.conf", "leads out of the folder"),
        ("below/../../outside.conf", "leads out of the folder"),
        ("link.conf", "leads out of the folder"),
        ("links/outside.conf", "leads out of the folder"),
        ("circle.conf", "cannot be read: Too many levels of symbolic links"),
        ("main.conf", "includes itself: main.conf -> main.conf"),
        ("below/../main.conf", "includes itself"),
        ("/etc/hostname", "is not a relative path"),
        ("", "is not a relative path"),
        ("pipe", "cannot be read: it is a pipe, a socket or a device, not a file"),
        ("device", "leads out of the folder"),
        ("x" * 5000, "cannot be read: File name too long"),
        ("big.conf", "cannot be read: it is larger than 1 MiB"),
    ],
)
def test_what_cannot_be_included(folder: Path, main: Path, name: str, problem: str) -> None:
    (folder / "link.conf").symlink_to("../outside.conf")
    (folder / "links").symlink_to("..")
    (folder / "circle.conf").symlink_to("circle.conf")
    (folder / "device").symlink_to("/dev/zero")
    (folder / "big.conf").write_bytes(b"#" * (LARGEST + 1))
    os.mkfifo(folder / "pipe")
    main.write_text(f'mm = cpu\n  include "{name}"\n')
    error = _error(main)
    assert problem in error.problem
    assert error.location == Location(str(main), 2, 11)
    assert error.source[error.caret] == '"'


def test_a_missing_file_has_a_neighbour(folder: Path, main: Path) -> None:
    (folder / "gemm.conf").write_text("")
    main.write_text('include "gem.conf"')
    assert _error(main).nearest == "gemm.conf"


def test_links_within_the_folder_are_followed(folder: Path, main: Path) -> None:
    (folder / "below" / "x.conf").write_text("mm = cpu\n")
    (folder / "link.conf").symlink_to("below/x.conf")
    main.write_text('include "link.conf"')
    assert _patterns(main) == ["aten::mm"]


def test_the_folder_is_that_of_the_real_file(folder: Path, main: Path, tmp_path: Path) -> None:
    (folder / "x.conf").write_text("mm = cpu\n")
    main.write_text('include "x.conf"')
    link = tmp_path / "link.conf"
    link.symlink_to(main)
    assert _patterns(link) == ["aten::mm"]


def test_a_folder_below_includes_nothing_above(folder: Path, main: Path) -> None:
    (folder / "x.conf").write_text("mm = cpu\n")
    (folder / "below" / "y.conf").write_text('include "../x.conf"\n')
    main.write_text('include "below/y.conf"\n')
    assert _error(main).location == Location(str(folder / "below" / "y.conf"), 1, 9)


def test_a_circle_is_shown(folder: Path, main: Path) -> None:
    main.write_text('include "a.conf"')
    (folder / "a.conf").write_text('include "b.conf"')
    (folder / "b.conf").write_text('include "a.conf"')
    assert "a.conf -> b.conf -> a.conf" in _error(main).problem


def test_a_file_is_included_once(folder: Path, main: Path) -> None:
    (folder / "x.conf").write_text("mm = cpu\n")
    main.write_text('include "x.conf"\ninclude "below/../x.conf"\n')
    error = _error(main)
    assert f"is included already, by {main}:1:9" in error.problem
    assert error.location.line == 2


@pytest.mark.parametrize(("depth", "fits"), [(DEEPEST, True), (DEEPEST + 1, False)])
def test_depth(folder: Path, main: Path, depth: int, fits: bool) -> None:
    main.write_text('include "1.conf"')
    for level in range(1, depth):
        (folder / f"{level}.conf").write_text(f'include "{level + 1}.conf"')
    (folder / f"{depth}.conf").write_text("mm = cpu\n")
    if fits:
        assert _patterns(main) == ["aten::mm"]
    else:
        assert f"by more than {DEEPEST} files in a row" in _error(main).problem


def test_a_mistake_in_an_included_file_names_it(folder: Path, main: Path) -> None:
    (folder / "x.conf").write_text("\nmm = cp\n")
    main.write_text('include "x.conf"\n')
    assert _error(main).location == Location(str(folder / "x.conf"), 2, 6)


def test_files_that_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in (tmp_path / "pipe", tmp_path / "socket", "/dev/zero", "/dev/tty"):
            assert "it is a pipe, a socket or a device" in str(_error(name))
    assert "it is a folder" in str(_error(tmp_path))
    assert "No such file" in str(_error(tmp_path / "missing"))
    assert "null" in str(_error("a\0b"))
    assert _error("x\udc80").location.line == 0
    str(_error("x\udc80\n")).encode()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "big.conf"
    with file.open("wb") as stream:
        stream.truncate(100 * 2**20)
    assert "it is larger than 1 MiB" in str(_error(file))
    file.write_bytes(b"#" * LARGEST)
    assert load(file, words=WORDS) == ()


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, flags: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    file = tmp_path / "secret.conf"
    file.touch()
    monkeypatch.setattr(os, "open", refuse)  # no mode keeps root out
    assert "Permission denied" in str(_error(file))


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (b"mm = cpu\n# \xe9t\xe9\n", 2, 3),
        (b"\xff\xfem\0m\0", 1, 1),
        ("\ufeff# \u00e9".encode() + b"\xc3", 1, 4),
        (b"# \xed\xa0\x80", 1, 3),
    ],
)
def test_bytes_that_are_not_utf8(tmp_path: Path, data: bytes, line: int, column: int) -> None:
    file = tmp_path / "x.conf"
    file.write_bytes(data)
    error = _error(file)
    assert "is not UTF-8" in error.problem
    assert error.location == Location(str(file), line, column)
    assert error.source[error.caret] == "\ufffd"
