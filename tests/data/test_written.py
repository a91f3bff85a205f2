"""Functions of the user's own are looked at without being run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlc.data.errors import DataError
from rlc.data.written import takes, written_function

CODE = """\
raise SystemExit("this file is not run")
from elsewhere import imported as renamed
import package.module
made = partial(two, 1)


def two(a, b): ...
def one(a): ...
def three(a, b, c=1, *, d=2): ...
def any_number(*args): ...
def needs_more(a, b, *, c): ...
async def awaited(a, b, /): ...
@wrapped
def decorated(): ...
class Called:
    def method(self, a, b): ...
if made:
    def sometimes(a): ...
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(CODE, encoding="utf-8")
    return str(tmp_path / "own.py")


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        *[("two", True), ("three", True), ("any_number", True), ("awaited", True)],
        *[("one", False), ("needs_more", False)],
    ],
)
def test_what_a_function_takes(file: str, name: str, fits: bool) -> None:
    function = written_function(file, name)
    assert function is not None
    assert takes(function, 2) == fits


@pytest.mark.parametrize("name", ["made", "renamed", "package", "decorated", "Called", "sometimes"])
def test_what_only_running_the_file_would_tell(file: str, name: str) -> None:
    assert written_function(file, name) is None


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (CODE, "own.py has no `tow`"),
        ("def tow(a, b):\nreturn 1", r"own.py:2:1: this is not Python: expected an indented"),
        ("\0", "is not Python|this is not Python"),
    ],
)
def test_what_is_not_there(file: str, code: str, said: str) -> None:
    Path(file).write_text(code, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        written_function(file, "tow")


def test_a_module_may_get_its_names_from_elsewhere(file: str) -> None:
    for code in ("from elsewhere import *", "def __getattr__(name): ..."):
        Path(file).write_text(code, encoding="utf-8")
        assert written_function(file, "reward") is None
