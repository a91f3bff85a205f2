"""Reading recipes from disk: what cannot be read is one clear diagnostic."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from rlc.lang.read import MAX_BYTES, read_source, write_text
from rlc.lang.render import render_human, render_json

TEXT = 'env x = gem("easy")\n'


def refusal(path: Path) -> tuple[str, str]:
    source, found = read_source(path)
    assert source is None
    (error,) = found
    assert error.file_name == str(path)
    assert str(path) in render_human(found, color=False)
    assert render_json(found)
    return error.code, error.message


def test_a_recipe_is_its_text(tmp_path: Path) -> None:
    path = tmp_path / "a.rl"
    path.write_text(TEXT)
    source, found = read_source(path)
    assert source is not None
    assert (source.name, source.text, found) == (str(path), TEXT, [])


def test_a_byte_order_mark_and_windows_lines_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "a.rl"
    path.write_bytes(b"\xef\xbb\xbfenv x = 1\r\nenv y = 2\r\n")
    source, _ = read_source(path)
    assert source is not None
    assert source.text == "env x = 1\nenv y = 2\n"


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", "RL0005", "empty"),
        (b" \n\t\n", "RL0005", "empty"),
        (b"env x = 1\nenv \xff = 2", "RL0003", "0xff"),
        ("env x = 1".encode("utf-16"), "RL0003", "UTF-16"),
        (b"\x7fELF\x00\x01\xff", "RL0003", "binary"),
        (b"# big\n" * (MAX_BYTES // 6 + 1), "RL0004", "1 MB"),
    ],
    ids=["empty", "blank", "not UTF-8", "UTF-16", "binary", "large"],
)
def test_what_is_no_recipe_is_refused(tmp_path: Path, data: bytes, code: str, words: str) -> None:
    path = tmp_path / "a.rl"
    path.write_bytes(data)
    found, message = refusal(path)
    assert found == code
    assert words in message


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_what_is_not_text_is_shown_where_it_is(tmp_path: Path, mark: bytes) -> None:
    path = tmp_path / "a.rl"
    path.write_bytes(mark + "# für\nenv ü\xff = 2".encode("latin-1").replace(b"\xfc", b"\xc3\xbc"))
    span = read_source(path)[1][0].span
    assert span is not None
    assert (span.line, span.column, span.text) == (2, 6, "\N{REPLACEMENT CHARACTER}")


def test_a_path_without_a_file_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.rl")[0] == "RL0001"
    assert refusal(tmp_path)[0] == "RL0002"
    assert refusal(tmp_path / ("x" * 300))[0] == "RL0002"
    assert read_source("a\0b.rl")[1][0].code == "RL0002"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.rl"
    path.write_text(TEXT)
    path.chmod(0)
    assert "permission" in refusal(path)[1]


def test_no_permission_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: object) -> bytes:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("rlc.lang.read._read", deny)
    assert "permission" in refusal(tmp_path / "a.rl")[1]


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    source, _ = read_source("-")
    assert source is not None
    assert (source.name, source.text) == ("<stdin>", TEXT)


def test_writing_keeps_line_ends_mark_and_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a.rl"
    path.write_bytes(b"\xef\xbb\xbfenv x=1\r\n")
    path.chmod(0o640)
    assert not write_text(str(path), "env x = 1\n")
    assert path.read_bytes() == b"\xef\xbb\xbfenv x = 1\r\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_one_diagnostic(tmp_path: Path) -> None:
    (error,) = write_text(str(tmp_path / "none" / "a.rl"), TEXT)
    assert error.code == "RL0006"
