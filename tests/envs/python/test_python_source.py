"""Environments of one's own: what a factory may give, and what is said where it is wrong."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from paths import RECIPES

from rlc.chat.turns import Observation
from rlc.data.code import load_attribute, search_beside
from rlc.envs.base import AsyncSource, TaskKey, make_source
from rlc.envs.workers.async_adapter import make_async
from rlc.errors import Error

OWN = """
from rlc.chat.turns import EnvError, Observation

class One:
    def __init__(self, text):
        self.first = Observation(text)
    def step(self, action):
        return Observation("", reward=float(action == "yes"), done=True)

class Drawn:
    def group(self, seed, size):
        return [One(f"seed {seed}") for _ in range(size)]

class Listed:
    def numbered(self, order, number, size):
        return [One(f"number {number}") for _ in range(size)]

class Awaited:
    async def open(self, task, members):
        return [One(f"task {task.number}") for _ in members]
    async def close(self):
        pass

def drawn(): return Drawn()
def listed(): return Listed()
def awaited(): return Awaited()
def with_words(word, again="no"): return Drawn()
def anything(**kwargs): return Drawn()
def refuses(size): raise EnvError(f"{size} is too large a board")
def breaks(): return {}["missing"]
def gives_class(): return Drawn
def gives_number(): return 7
number = 7
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Writes a module beside a recipe that is elsewhere."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    search_beside(str(tmp_path / "recipe.rl"))

    def write(name: str, text: str) -> None:
        monkeypatch.delitem(sys.modules, name, raising=False)
        (tmp_path / f"{name}.py").write_text(text)

    write("own_tasks", OWN)
    return write


def first_text(target: str, **args: Any) -> str:
    made = make_source(target, args)
    source = made if isinstance(made, AsyncSource) else make_async(made)

    async def opened() -> str:
        episodes = await source.open(TaskKey(order=0, number=4, seed=9, size=2), [0, 1])
        await source.close()
        assert len(episodes) == 2
        return episodes[0].first.text

    return asyncio.run(opened())


@pytest.mark.parametrize(
    ("factory", "text"), [("drawn", "seed 9"), ("listed", "number 4"), ("awaited", "task 4")]
)
def test_a_factory_may_give_any_kind_of_source(module: Any, factory: str, text: str) -> None:
    assert first_text(f"own_tasks:{factory}") == text


def test_arguments_are_handed_on(module: Any) -> None:
    make_source("own_tasks:with_words", {"word": "a", "again": "b"})
    make_source("own_tasks:anything", {"whatever": 1})


@pytest.mark.parametrize(
    ("target", "args", "message"),
    [
        ("own_task:drawn", {}, "no module `own_task` among .*; did you mean `own_tasks`"),
        ("own_tasks:drown", {}, r"own_tasks\.py has no `drown`; did you mean `drawn`"),
        ("own_tasks:number", {}, "`own_tasks:number` is of the type int, which cannot be called"),
        (
            "own_tasks:with_words",
            {"wrod": 1},
            "does not take `wrod`; it takes .*; did you mean `word`",
        ),
        ("own_tasks:drawn", {"size": 1}, "does not take `size`; it takes nothing"),
        ("own_tasks:with_words", {}, r"needs `word`: `args = {word = …}`"),
        ("own_tasks:refuses", {"size": 9}, "^9 is too large a board$"),
        ("own_tasks:breaks", {}, r"failed: KeyError: 'missing' \(.*own_tasks.py:\d+\)"),
        ("own_tasks:gives_class", {}, "gave a class, not a source"),
        (
            "own_tasks:gives_number",
            {},
            r"gave a thing of the type int, not a source: it needs .*`group\(seed, size\)`",
        ),
    ],
)
def test_what_can_be_wrong(module: Any, target: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises(Error, match=message):
        make_source(target, args)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("1 / 0", r"cannot be imported: ZeroDivisionError: division by zero \(.*:1\)"),
        ("def broken(:", "cannot be imported: SyntaxError"),
    ],
)
def test_a_module_that_fails_says_where(
    module: Callable[[str, str], None], text: str, message: str
) -> None:
    module("broken_tasks", text)
    with pytest.raises(Error, match=message):
        make_source("broken_tasks:make", {})


def test_nothing_beside_a_recipe_takes_the_place_of_a_library(
    module: Callable[[str, str], None],
) -> None:
    module("fractions", "make = None")
    assert load_attribute("fractions:Fraction")(1, 2) == 0.5


def test_many_threads_may_ask_for_a_module_at_once(tmp_path: Path) -> None:
    """The slow beginning gives the others time to find it half imported."""
    file = tmp_path / "fractions.py"  # not the library's: it is imported by its path
    file.write_text("for _ in range(1_000_000):\n    pass\ndef make(): ...\n")
    together = threading.Barrier(8)

    def load(_: int) -> str:
        together.wait()
        name: str = load_attribute(f"{file}:make").__name__
        return name

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(load, range(8))) == {"make"}


def test_the_worked_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    search_beside(str(RECIPES / "python_environment.rl"))
    source: Any = make_source("letters:make", {"letters": "xyz"})
    first, second = source.group(5, 2)
    assert first.first == second.first
    assert len({source.group(seed, 1)[0].first.text for seed in range(20)}) == 3
    after: Observation = first.step(f"{first.letter}a{first.letter}b")
    assert (after.reward, after.done) == (0.5, True)
    with pytest.raises(Error, match="must be letters"):
        make_source("letters:make", {"letters": "x1"})


def test_each_recipe_finds_the_modules_beside_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("one", "other"):
        (tmp_path / name / "same_parts").mkdir(parents=True)
        (tmp_path / name / "same_parts" / "__init__.py").write_text("")
        (tmp_path / name / "same_parts" / "own.py").write_text(f"def of(): return {name!r}\n")
        (tmp_path / name / "same_name.py").write_text("from same_parts.own import of\n")
    for name in ("one", "other", "one"):
        search_beside(str(tmp_path / name / "recipe.rl"))
        assert load_attribute("same_name:of")() == name
    assert str(tmp_path / "other") not in sys.path
