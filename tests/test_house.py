"""The house: which room may know which, and what the light commands may import."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
from paths import ROOT

import rlc
from rlc.catalog.index import names_of
from rlc.catalog.records import Role

# From the ground floor up. A room may import the rooms named here, and nothing else of rlc.
MAY_IMPORT = {
    "lang": "",
    "algo": "lang",
    "plan": "algo",
    "data": "plan",
    "catalog": "lang algo plan data",
    "pricing": "plan data catalog",
    "check": "lang algo plan data catalog pricing",
    "compile": "lang algo plan data catalog pricing check",
    "explanation": "lang algo plan catalog pricing check compile",
    "chat": "data catalog",
    "envs": "algo plan data catalog chat",
    "service": "algo plan catalog chat",
    "runtime": "algo plan data catalog pricing chat envs service",
    "sweeps": "algo plan data catalog pricing compile service runtime",
    "proof": "lang algo plan data catalog pricing check compile chat envs service runtime",
    "report": "lang plan catalog pricing check compile explanation service runtime sweeps",
    "replays": "lang algo plan catalog check compile service runtime report",
    "models": "lang plan data catalog check compile chat envs service runtime report",
    "emit": "lang algo plan data catalog pricing compile explanation chat envs models",
    "imports": "lang catalog",
    "lsp": "lang algo plan data catalog pricing check compile explanation",
    "projects": "",
    "cli": "lang algo plan data catalog pricing check compile explanation chat envs service "
    "runtime sweeps proof report replays models emit imports lsp projects api",
}
# Modules by which a room is entered, beside its own sign (`rlc/doors.py`).
DOORS = dict.fromkeys(MAY_IMPORT, "") | {
    "lang": "render syntax",
    "plan": "leaves",
    "catalog": "packages requirements kept.content",
    "pricing": "critical_path assumptions",
    "check": "analyse",
    "service": "engine tiny",
    "report": "findings episodes measures",
    "models": "model",
    "emit": "errors job.folder script.program",
    "imports": "convert settings",
    "lsp": "server",
    "cli": "main",
}
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
MOST_LINES = 600  # of a Python file
MOST_FILES = 17  # Python files in one folder, its `__init__.py` included
HEAVY = {"torch", "transformers", "tinker", "gem", "numpy", "reasoning_gym", "tinker_cookbook"}

# What a check of most recipes does without: each takes a part of its 100 ms.
SLOW = {
    "cattrs",
    "glob",
    "jinja2",
    "pathlib",
    "rich",
    "shlex",
    "shutil",
    "sqlite3",
    "urllib",
    "zlib",
}


@cache
def modules() -> dict[str, Path]:
    """Every module of rlc by its dotted name, without the leading ``rlc.``."""
    found = {}
    for path in sorted((ROOT / "rlc").rglob("*.py")):
        if path.is_relative_to(ROOT / "rlc" / "projects" / "templates"):  # files for a user
            continue
        parts = path.relative_to(ROOT / "rlc").with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__").removesuffix("__init__")] = path
    return found


@cache
def tree_of(path: Path) -> ast.Module:
    """A file, parsed once for all tests."""
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True, scope="module")
def _trees_are_let_go() -> Iterator[None]:
    """They are a million objects, which each garbage collection would visit."""
    yield
    tree_of.cache_clear()


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Modules of rlc that a file imports; ``rlc`` itself, which stands above most, as it is."""
    found, known = set[str](), modules()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module == "rlc":
            found.add("rlc")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlc."):
            module = str(node.module).removeprefix("rlc.")
            names = [f"{module}.{alias.name}" for alias in node.names]
            found |= {name if name in known else module for name in names}
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("rlc.")]
            found |= {name.removeprefix("rlc.") for name in names}
    return frozenset(found)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may_know(room: str) -> None:
    known = modules()
    allowed = {room, "doors", "errors", "records", "seeds", "version", *MAY_IMPORT[room].split()}
    for name, path in known.items():
        if name.split(".")[0] == room:
            for module in imports_of(path):
                assert module.split(".")[0] in allowed, f"rlc.{name} imports rlc.{module}"


@cache
def signs() -> dict[str, dict[str, set[str]]]:
    """What each room shows at its door: the names of each module."""
    found: dict[str, dict[str, set[str]]] = {}
    for room in MAY_IMPORT:
        text = (ROOT / "rlc" / room / "__init__.py").read_text(encoding="utf-8")
        if sign := re.search(r'door\(\n +__name__,\n +"""(.*?)"""', text, re.DOTALL):
            shown = re.findall(r"(\S+):((?:\s+\w+(?![\w.]*:))+)", sign[1])
            found[room] = {module: set(names.split()) for module, names in shown}
    return found


def test_a_room_is_entered_by_its_doors() -> None:
    """Others and users import what is on its sign, or one of at most three modules beside it."""
    entered: dict[str, set[str]] = {}
    asked: dict[str, set[str]] = {}
    for name, path in modules().items():
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith("rlc."):
                continue
            module = str(node.module).removeprefix("rlc.")
            room = module.split(".")[0]
            if name and room in MAY_IMPORT and room != name.split(".")[0]:
                entered.setdefault(room, set()).add(module)
                if module == room:
                    asked.setdefault(room, set()).update(alias.name for alias in node.names)
    for room, doors in DOORS.items():
        assert entered.get(room, set()) <= {room, *(f"{room}.{one}" for one in doors.split())}
        assert len(doors.split()) <= 3
    for path in (*ROOT.glob("docs/**/*.md"), *ROOT.glob("rlc/projects/templates/**/*.py")):
        for room, names in re.findall(
            r"^from rlc\.(\w+) import ([\w, ]+)$", path.read_text(), re.M
        ):
            asked.setdefault(room, set()).update(names.split(", "))  # what users import
    for room, shown in signs().items():
        assert asked[room] == set().union(*shown.values()), f"the sign of {room}"


@pytest.mark.engine
@pytest.mark.parametrize("room", MAY_IMPORT)
def test_what_a_sign_shows_is_there(room: str) -> None:
    package = import_module(f"rlc.{room}")
    for module, names in signs().get(room, {}).items():
        inside = import_module(f"rlc.{room}.{module}")
        for name in names:
            assert getattr(package, name) is getattr(inside, name)
            assert not name.startswith("_")
            assert f"rlc.{room}.{name}" not in sys.modules, f"{name} is also a module"


def test_every_room_has_its_law() -> None:
    rooms = {path.name for path in (ROOT / "rlc").iterdir() if (path / "__init__.py").is_file()}
    assert rooms == MAY_IMPORT.keys()


def test_rooms_stand_one_above_the_other() -> None:
    below = set[str]()
    for room, known in MAY_IMPORT.items():
        assert set(known.split()) - {"api"} <= below, f"{room} knows a room above it"
        below.add(room)


def builtin_names() -> set[str]:
    """The names of sources, wrappers, trackers, losses and aggregations, but those that are also a
    role of a wrapper, a kind of data or a word of something else."""
    kinds = ("env", "wrapper", "tracker", "loss", "aggregate")
    names = {name for kind in kinds for name in names_of(kind)}
    return names - {
        *get_args(Role),
        *names_of("data"),
        "track",
        "rollouts",
        "reward",
        "play",
        "python",
        "cookbook",
    }


# Where names may stand: the catalogue, the tables that map a name to what does it, the rooms of one
# system, what writes recipes, and programs that know no catalogue.
MAY_NAME = (
    "catalog",
    "data.harbor",  # `agent` is a table of its task.toml
    "projects",  # `agent` is a template
    "algo.aggregate",
    "algo.losses",
    "algo.served",
    "envs.build",
    "envs.gem",
    "envs.openreward",
    "service.engine.losses",
    "emit.pieces",
    "runtime.trackers",
    "imports",
    "cli",
)


def test_facts_stand_on_the_builtin() -> None:
    """What is true of some builtins is a trait, not a list of their names."""
    names = builtin_names()
    for module, path in modules().items():
        if module.startswith(MAY_NAME):
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and node.value in names:
                raise AssertionError(f"rlc.{module}:{node.lineno} names the builtin {node.value}")


# Whose attributes may be looked for: objects of other libraries and of users, and errors.
MAY_LACK = {
    "envs.cookbook": ("made", "type(self.builder)", "tokenizer"),
    "envs.games": ("env", "error", "game", "self.game"),
    "envs.gem": ("base", "env", "tokenizer"),
    "envs.mcp": ("exceptions",),
    "envs.openreward_client": ("error", "one", "tries[-1]"),
    "envs.verifiers": ("env", "module", "rubric"),
    "envs.workers.processes": ("executor",),
    "envs.workflows": ("found", "episode", "reply"),
    "runtime.rollouts.player": ("error",),
    "runtime.stages": ("self.renderer",),
}


def test_what_episodes_and_sources_offer_is_declared() -> None:
    for module, path in modules().items():
        if not module.startswith(("envs.", "runtime.")):
            continue
        may_lack = {name for room in MAY_LACK if module.startswith(room) for name in MAY_LACK[room]}
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.Call(ast.Name("getattr" | "hasattr"), [thing, ast.Constant(name), *_]):
                    if ast.unparse(thing) not in may_lack:
                        raise AssertionError(f"rlc.{module}:{node.lineno} looks for `{name!r}`")


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_the_folders_of_a_room_stand_one_above_the_other(room: str) -> None:
    """Its folders, and the files beside them, import each other in one direction only."""

    def place(name: str) -> str:
        """The folder of a module, or the module itself where it stands in the room."""
        path = known[name].relative_to(ROOT / "rlc")
        return name if len(path.parts) == 2 else ".".join(path.parts[:-1])

    known = modules()
    inside = {name for name in known if name.startswith(f"{room}.")}
    above: dict[str, set[str]] = {}
    for name in inside:
        below = {place(other) for other in imports_of(known[name]) & inside}
        above.setdefault(place(name), set()).update(below - {place(name)})
    TopologicalSorter(above).prepare()  # raises CycleError, which names a circle


def test_the_map_shows_the_law() -> None:
    rows = re.findall(
        r"^\| `(\w+)/` \|.*\| (.*?) ?\|$", CONTRIBUTING.read_text("utf-8"), re.MULTILINE
    )
    law = {room: " ".join(known.split()) for room, known in MAY_IMPORT.items()}
    assert [room for room, _ in rows] == list(law)
    for room, known in rows:
        assert known == "everything" or known.replace(",", "") == law[room]


def test_the_parser_shows_two_functions() -> None:
    known = modules()
    for name, path in known.items():
        if not name.startswith("lang"):
            inside = {m for m in imports_of(path) if m.startswith("lang.syntax.")}
            assert not inside, f"rlc.{name} imports {inside}"


def test_no_file_imports_itself_over_others() -> None:
    known = modules()
    graph = {name: imports_of(path) & known.keys() for name, path in known.items()}
    done = set[str]()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"a circle: {' -> '.join([*above[above.index(name) :], name])}"
        if name not in done:
            for module in sorted(graph[name]):
                visit(module, (*above, name))
            done.add(name)

    for name in graph:
        visit(name, ())


SAME_NAMES = {"Recipe"}  # of a file for users, and of its syntax
# Nouns that end like participles.
NOUNS = {
    "AuditFinding",
    "Finding",
    "Halving",
    "Sampling",
    "SharedFinding",
    "String",
    "Training",
}


def test_a_class_has_a_name_of_its_own() -> None:
    """No two rooms name a class alike, and none is a bare participle. What `emit` writes out for
    users has short names of its own."""
    rooms: dict[str, set[str]] = {}
    for path in modules().values():
        room = path.relative_to(ROOT / "rlc").parts[0]
        if path.is_relative_to(ROOT / "rlc" / "emit" / "pieces"):
            continue
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                rooms.setdefault(node.name, set()).add(room)
    shared = {name for name, found in rooms.items() if len(found) > 1}
    assert shared == SAME_NAMES
    bare = {name for name in rooms if re.search(r"(ed|wn|ing)$", name)}
    assert bare == NOUNS


@pytest.mark.engine
def test_every_error_derives_from_one() -> None:
    """Private ones aside, which their own module catches."""
    for name, path in modules().items():
        text = path.read_text(encoding="utf-8")
        if not re.search(r"^class \w+\(.*(Error|Exception|Refused)\b", text, re.MULTILINE):
            continue
        for error in vars(import_module(f"rlc.{name}")).values():
            if not (isinstance(error, type) and issubclass(error, BaseException)):
                continue
            if error.__module__ != f"rlc.{name}" or issubclass(error, rlc.Error):
                continue
            caught = re.search(rf"^ +except .*\b{error.__name__}\b", text, re.MULTILINE)
            assert error.__name__.startswith("_"), f"{error} does not derive from rlc.Error"
            assert caught, f"rlc.{name} does not catch {error.__name__}"


def test_no_room_is_crowded() -> None:
    for folder in {path.parent for path in modules().values()}:
        count = len(list(folder.glob("*.py")))
        assert count <= MOST_FILES, f"{folder.relative_to(ROOT)} holds {count} files"


def test_no_file_is_long() -> None:
    for path in modules().values():
        count = len(path.read_text(encoding="utf-8").splitlines())
        assert count <= MOST_LINES, f"{path.relative_to(ROOT)} has {count} lines"


def modules_after(arguments: list[str]) -> set[str]:
    """Top-level modules that a command has imported when it ends."""
    code = (
        "import sys, json\n"
        "from rlc.cli.main import main\n"
        f"assert main({arguments!r}) == 0\n"
        "print('\\n' + json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT
    )
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.mark.parametrize("recipe", ["quickstart", "sudoku"])
def test_check_is_light(recipe: str) -> None:
    loaded = modules_after(["check", f"recipes/{recipe}.rl"])
    assert not loaded & (HEAVY | SLOW)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("main(['run', 'recipes/quickstart.rl'])", "pip install 'rlc[local]'"),
        ("main(['show', 'nowhere'])", "error: "),
        ("main(['report', 'nowhere'])", "error: "),
        ("main(['serve'])", "pip install 'rlc[serve]'"),
        ("main(['replay', 'nowhere'])", "pip install 'rlc[local]'"),
        ("print(pydoc.render_doc(rlc), file=sys.stderr)", "rlc.runtime.summary.Summary"),
    ],
)
def test_a_base_install_says_what_is_missing(call: str, says: str) -> None:
    code = (
        "import pydoc, sys\n"
        f"sys.modules.update(dict.fromkeys({HEAVY | {'safetensors', 'starlette'}}))\n"
        f"import rlc\nfrom rlc.cli.main import BROKEN, main\nassert {call} != BROKEN"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert says in result.stderr


def test_explain_needs_neither_engine_nor_environments() -> None:
    assert not modules_after(["explain", "recipes/quickstart.rl"]) & HEAVY
