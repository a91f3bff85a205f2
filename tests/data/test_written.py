"""Functions of the user's own are looked at without being run."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from rlc.data.calls import Code
from rlc.data.code import require_fits, returned_numbers, returns_text, written_signature
from rlc.data.errors import CodeError, DataError

CODE = """\
raise SystemExit("this file is not run")
from elsewhere import imported as renamed
import package.module
made = partial(two, 1)


def two(a, b): return 1.0
def one(a): ...
def three(a, b, c=1, *, d=2): return 1.0
def any_number(*args): return 1.0
def needs_more(a, b, *, c): ...
async def awaited(a, b, /): return 1.0
@wrapped
def decorated(): ...
def forgets(a, b):
    def inner(): return 1.0
    inner()
    return
def streams(a, b): yield 1.0
class Board:
    def __init__(self, size, *, colour="white"): ...
    def tow(self, a, b): ...
class Plain: ...
class Derived(Board): ...
def twice(a): ...
twice = wrapped(twice)
def sets():
    global late
    late = 1
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
def test_what_a_reward_takes(file: str, name: str, fits: bool) -> None:
    signature = written_signature(file, name)
    assert signature is not None
    with nullcontext() if fits else pytest.raises(CodeError, match="not take two arguments"):
        require_fits(Code(f"own.py:{name}", "reward"), signature)


def test_a_reward_without_a_return_is_known_before_it_is_called(file: str) -> None:
    signature = written_signature(file, "forgets")
    with pytest.raises(CodeError, match=r"`own\.py:forgets` returns nothing"):
        require_fits(Code("own.py:forgets", "reward"), signature)
    require_fits(Code("own.py:streams", "reward"), written_signature(file, "streams"))


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("three", {"a": 1, "b": 2, "d": 3}, None),
        ("three", {"a": 1}, "`own.py:three` needs `b`: `args = {b = …}`"),
        ("Board", {"size": 9, "colour": "red"}, None),
        ("Board", {"seize": 9}, "does not take `seize`; it takes .*; did you mean `size`"),
        ("Plain", {"size": 9}, "does not take `size`; it takes nothing"),
    ],
)
def test_what_a_factory_takes(file: str, name: str, args: dict[str, object], said: str) -> None:
    code = Code(f"own.py:{name}", "factory", args)
    with nullcontext() if said is None else pytest.raises(CodeError, match=said):
        require_fits(code, written_signature(file, name))


def test_what_other_parts_of_a_recipe_decide_is_passed_and_not_given(file: str) -> None:
    decided = {"a": "groups", "elsewhere": "model"}
    signature = written_signature(file, "two")
    require_fits(Code("own.py:two", "factory", {"b": 1}, decided), signature)
    with pytest.raises(CodeError, match=r"leave `a` out .*: it comes from the recipe's groups"):
        require_fits(Code("own.py:two", "factory", {"a": 1, "b": 1}, decided), signature)


NOT_JUDGED = ["made", "renamed", "package", "decorated", "Derived", "sometimes", "twice", "late"]


@pytest.mark.parametrize("name", NOT_JUDGED)
def test_what_only_running_the_file_would_tell(file: str, name: str) -> None:
    assert written_signature(file, name) is None


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (CODE, "own.py has no `tow`; did you mean `two`"),
        (CODE.replace("def two", "def method"), "own.py has no `tow`"),  # a method does not count
        ("def tow(a, b):\nreturn 1", r"own.py:2:1: this is not Python: expected an indented"),
        ("\0", "is not Python|this is not Python"),
    ],
)
def test_what_is_not_there(file: str, code: str, said: str) -> None:
    Path(file).write_text(code, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        written_signature(file, "tow")


@pytest.mark.parametrize(
    "code",
    [
        "from elsewhere import *",
        "def __getattr__(name): ...",
        "globals()['reward'] = 1",
        "import sys\nsetattr(sys.modules[__name__], 'reward', 1)",
    ],
)
def test_a_module_may_get_its_names_from_elsewhere(file: str, code: str) -> None:
    Path(file).write_text(code, encoding="utf-8")
    assert written_signature(file, "reward") is None


@pytest.mark.parametrize(
    ("body", "constants", "keys"),
    [
        ("return 0.5", {"": 0.5}, ("",)),
        ("if a: return 1\n    return a - b", {}, ("",)),
        ("return 1.0 if a else 0.0", {}, ("",)),
        ("score = 0.5\n    return score", {"": 0.5}, None),
        ("return {'x': a, 'y': 0}", {"y": 0.0}, ("x", "y")),
        ("if a: return {'x': 1}\n    return {'x': 1, 'y': a}", {"x": 1.0}, ("x", "y")),
        ("found = {'x': a}\n    found['y'] = b\n    return found", {}, None),
        ("return {'x': a, **b}", {}, None),
        ("return graded(a)", {}, None),
    ],
)
def test_what_a_function_returns(
    tmp_path: Path, body: str, constants: dict[str, float], keys: tuple[str, ...] | None
) -> None:
    path = tmp_path / "own.py"
    for decorated in ("", "@wrapped\n"):
        path.write_text(f"{decorated}def f(a, b):\n    {body}\n", encoding="utf-8")
        found = returned_numbers(str(path), "f")
        assert found[0] == constants
        assert {*(found[1] or ())} == {*(() if decorated else keys or ())}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[("f'{run}'", True), ("'yes'", True), ("str(run)", True), ("' '.join(run)", True)],
        *[("run.task['prompt']", True), ("run.task['level']", False), ("run.score", False)],
        *[("float(run)", False), ("ask(run)", False)],
    ],
)
def test_a_function_that_returns_text(tmp_path: Path, value: str, text: bool) -> None:
    path = tmp_path / "own.py"
    path.write_text(f"def f(run):\n    said = {value}\n    return said\n", encoding="utf-8")
    assert returns_text(str(path), "f", {"prompt"}) is text
    path.write_text(f"def f(run):\n    if run: return 1.0\n    return {value}\n", encoding="utf-8")
    assert not returns_text(str(path), "f", {"prompt"})
