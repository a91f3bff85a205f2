"""Five hundred edits of plans, recipes, data, code and environment: what can change a number
changes the key of each stage that it can change, and nothing else does."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from rlc.catalog.kept import content
from rlc.compile.recipe import load
from rlc.data import Reader, load_attribute
from rlc.lang.formatter import format_text
from rlc.lang.source import Source
from rlc.lang.syntax import parse
from rlc.plan.codec import PlanFormatError, plan_from_dict, plan_to_dict
from rlc.plan.graph import build_graph
from rlc.plan.records import Plan
from rlc.runtime.reuse import identity
from rlc.runtime.reuse.identity import identities, needs_of

RECIPE = """\
model policy { base = "tiny" lora_rank = 4 }
env sums = rows("sums.jsonl", prompt = "question", grader = grade_with("grade.py:reward"))
env words = python("words.py:make", args = { size = 3 })
sft warmup {
  model = policy  data = rows("shown.jsonl", prompt = "question", reply = "answer")
  batch = 2  steps = 3  optimizer = adam(1e-3)
}
train main {
  model = warmup  env = 2 * sums + 1 * words  batch = groups(2, group_size = 2)
  sampling = sample(max_tokens = 8)  advantage = grpo()  loss = importance_sampling()
  optimizer = adam(1e-3)  steps = 4  save = every(2)  on_error = retry(1) then drop
}
train more {
  model = main  env = words  batch = groups(2, group_size = 2)  sampling = sample(max_tokens = 8)
  advantage = rloo()  loss = ppo()  kl = reference(warmup, coef = 0.01)  steps = 4
  optimizer = adam(1e-3, schedule = linear())
}
eval heldout { model = main  env = sums  tasks = 2  every = 2 }
eval untrained { model = policy  env = words  tasks = 2  sampling = sample(max_tokens = 8) }
"""
GRADE = '''\
"""Grades."""
import os
from helper import scale

def reward(reply, row):
    # as it is written
    return scale * float(reply.strip() == row["answer"]) * float(os.environ.get("SCALE_OF_X", 1))
'''
WORDS = """\
import os
import random
from pathlib import Path

from rlc.envs.base import Observation

WORDS = (Path(__file__).parent / "list.txt").read_text().split()

class Word:
    def __init__(self, word):
        self.word = word
        self.first = Observation(f"Say {word}.")
    def step(self, action):
        return Observation("", reward=float(self.word in action), done=True)

class Words:
    def __init__(self, size):
        self.words = WORDS[:size]
    def group(self, seed, size):
        word = random.Random(seed).choice(self.words)
        return [Word(word) for _ in range(size)]

def make(size=3):
    return Words(size)
"""
FILES = {
    "recipe.rl": RECIPE,
    "grade.py": GRADE,
    "helper.py": "scale = 1.0\n",
    "words.py": WORDS,
    "list.txt": "one two three\n",
    "sums.jsonl": "".join(f'{{"question": "{n} + 1?", "answer": "{n + 1}"}}\n' for n in range(6)),
    "shown.jsonl": "".join(f'{{"question": "{n}?", "answer": "{n}"}}\n' for n in range(6)),
    "unrelated.py": "x = 1\n",
}
ALL = {"warmup", "main", "more", "heldout", "untrained"}
OF_SUMS, OF_WORDS = {"main", "more", "heldout"}, {"main", "more", "heldout", "untrained"}
AFTER = {  # the stages that can change with one
    "warmup": {"warmup", "main", "more", "heldout"},
    "main": {"main", "more", "heldout"},
    "more": {"more"},
    "heldout": {"heldout"},
    "untrained": {"untrained"},
}
# What no number of a step can depend on, by the beginning of its path in a stage.
NO_NUMBER = ("save", "budget", "track", "deadlines", "epochs", "every", "first")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    return folder


def planned(path: str = "recipe.rl", **options: Any) -> Plan:
    result = load(path, reader=Reader(), **options)
    assert result.plan is not None, list(result.diagnostics)
    return result.plan


def keys(plan: Plan) -> dict[str, str | None]:
    found = identities(plan)
    assert all(one.steps for one in found.values()), {k: v.why for k, v in found.items()}
    return {name: one.steps for name, one in found.items()}


def changed(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(node, dict):
        for name, part in node.items():
            yield from leaves(part, (*path, name))
    elif isinstance(node, list):
        for at, part in enumerate(node):
            yield from leaves(part, (*path, at))
    else:
        yield path, node


def another(value: Any, draw: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + draw.randint(1, 5)
    if isinstance(value, float):
        return value + draw.choice([0.5, 1e-9, 2.0])
    return None if value is None else f"{value}x"


def test_a_value_of_the_plan_changes_the_stages_that_it_can_change(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("code_digest", "package_version"):  # no file is changed here
        monkeypatch.setattr(identity, name, cache(getattr(identity, name)))
    plan, draw = planned(), random.Random(0)
    data, before, tried = plan_to_dict(plan), keys(plan), 0
    while tried < 400:
        at = draw.randrange(len(plan.stages))
        stage = plan.stages[at]
        path, value = draw.choice([*leaves(data["stages"][at])])
        fixed = path[-1] in ("kind", "name", "after", "base", "service", "function", "renderer")
        text = isinstance(value, str)
        if fixed or value is None or (text and path[-1] not in ("observation", "instruction")):
            continue
        new: Any = plan_to_dict(plan)
        spot = new["stages"][at]
        for name in path[:-1]:
            spot = spot[name]
        spot[path[-1]] = another(value, draw)
        try:
            edited = plan_from_dict(new)
            after = keys(evolve(edited, graph=build_graph(edited.stages)))
        except PlanFormatError:  # no run begins with it
            continue
        tried += 1
        expected = AFTER[stage.name]
        if path[0] in NO_NUMBER or path[:2] == ("source", "give_up"):
            expected = set()
        elif path[0] == "steps" and stage.name != "more":  # which has a schedule
            same = {stage.name} | ({"heldout"} if stage.name == "main" else set())
            expected = expected - same  # their steps are those that they were
        assert changed(before, after) == expected, (stage.name, path, value)


Edit = Callable[[Path, random.Random], set[str]]  # what can change


def rewritten(name: str, old: str, new: str, *others: str) -> None:
    path = Path(name)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def comment(_: Path, draw: random.Random) -> set[str]:
    name = draw.choice(["recipe.rl", "grade.py", "words.py", "helper.py"])
    lines = Path(name).read_text().splitlines(keepends=True)
    at = draw.randrange(len(lines) + 1)
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())] if at < len(lines) else ""
    Path(name).write_text("".join([*lines[:at], f"{indent}# {draw.random()}\n", *lines[at:]]))
    return set()


def blank_lines(_: Path, draw: random.Random) -> set[str]:
    name = draw.choice(["recipe.rl", "words.py"])
    rewritten(name, "\n", "\n" * draw.randint(2, 4))
    return set()


def _formatted(text: str) -> str:
    source = Source("recipe.rl", text)
    return format_text(source, parse(source)[0])


def formatted(_: Path, draw: random.Random) -> set[str]:
    text = Path("recipe.rl").read_text()
    Path("recipe.rl").write_text(_formatted(text))
    return set()


def other_name(_: Path, draw: random.Random) -> set[str]:
    name = draw.choice(["sums.jsonl", "shown.jsonl", "grade.py", "words.py"])
    new = f"file{draw.randrange(10**6)}{Path(name).suffix}"
    Path(name).rename(new)
    rewritten("recipe.rl", f'"{name}', f'"{new}')
    return set()


def moved(project: Path, draw: random.Random) -> set[str]:
    return set()  # the test does it


def spelt(_: Path, draw: random.Random) -> set[str]:
    old, new = draw.choice([("1e-3", "0.001"), ("1e-3", "10e-4"), ("= 0.01", "= 1e-2")])
    rewritten("recipe.rl", old, new)
    return set()


def unused(_: Path, draw: random.Random) -> set[str]:
    text = Path("recipe.rl").read_text()
    Path("recipe.rl").write_text(f"param other: int = {draw.randrange(100)}\n{text}")
    return set()


def no_number(_: Path, draw: random.Random) -> set[str]:
    new = draw.choice(["save = every(1, keep = 2)", "save = every(2, ttl = 7d)"])
    rewritten("recipe.rl", "save = every(2)", f"{new} budget = $5")
    return set()


def of_no_stage(_: Path, draw: random.Random) -> set[str]:
    Path("unrelated.py").write_text(f"x = {draw.random()}\n")
    Path("notes.txt").write_text(str(draw.random()))
    return set()


def row(_: Path, draw: random.Random) -> set[str]:
    name = draw.choice(["sums.jsonl", "shown.jsonl"])
    lines = Path(name).read_text().splitlines(keepends=True)
    at = draw.randrange(len(lines))
    how = draw.choice(["other", "more", "fewer", "order"])
    new = f'{{"question": "{draw.random()}?", "answer": "1"}}\n'
    if how == "other":
        lines[at] = new
    elif how == "more":
        lines.insert(at, new)
    elif how == "fewer":
        del lines[at]
    else:
        lines.append(lines.pop(0))
    Path(name).write_text("".join(lines))
    return OF_SUMS if name == "sums.jsonl" else AFTER["warmup"]


def code(_: Path, draw: random.Random) -> set[str]:
    name, old, new, stages = draw.choice(
        [
            ("grade.py", "float(reply.strip()", "0.5 * float(reply.strip()", OF_SUMS),
            ("grade.py", 'row["answer"]', 'row["answer"].strip()', OF_SUMS),
            ("helper.py", "1.0", "2.0", OF_SUMS),
            ("words.py", "self.words = WORDS", "self.words = WORDS[::-1]", OF_WORDS),
            ("words.py", "size=3", "size=4", OF_WORDS),
            ("list.txt", "two", "deux", OF_WORDS),
        ]
    )
    rewritten(name, old, new)
    if draw.random() < 0.5:
        rewritten(name, "\n", f"\n# {draw.random()}\n") if name == "helper.py" else None
    return set(stages)


def in_recipe(_: Path, draw: random.Random) -> set[str]:
    old, new, stages = draw.choice(
        [
            ("advantage = grpo()", "advantage = rloo()", AFTER["main"]),
            ("loss = importance_sampling()", "loss = cispo()", AFTER["main"]),
            ("loss = ppo()", "loss = ppo(clip_low = 0.7)", AFTER["more"]),
            ("2 * sums", "3 * sums", AFTER["main"]),
            ("size = 3", "size = 2", OF_WORDS),
            ("lora_rank = 4", "lora_rank = 8", ALL),
            ("steps = 3", "steps = 5", AFTER["main"]),
            ("tasks = 2  every = 2", "tasks = 3  every = 2", {"heldout"}),
            ("coef = 0.01", "coef = 0.02", {"more"}),
            ("retry(1)", "retry(2)", AFTER["main"]),
        ]
    )
    rewritten("recipe.rl", old, new)
    return set(stages)


EDITS: dict[str, tuple[Edit, int]] = {
    "comment": (comment, 20),
    "blank lines": (blank_lines, 4),
    "format": (formatted, 1),
    "name": (other_name, 8),
    "moved": (moved, 1),
    "spelling": (spelt, 6),
    "unused": (unused, 2),
    "no number": (no_number, 3),
    "of no stage": (of_no_stage, 4),
    "row": (row, 16),
    "code": (code, 18),
    "recipe": (in_recipe, 17),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_a_file_changes_the_stages_that_it_can_change(
    name: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit, times = EDITS[name]
    before = keys(planned())
    for number in range(times):
        for file in project.iterdir():
            file.unlink()
        for file_name, text in FILES.items():
            (project / file_name).write_text(text)
        expected = edit(project, random.Random(number))
        if name == "moved":
            project = project.rename(tmp_path / f"elsewhere{number}")
            monkeypatch.chdir(project)
        assert changed(before, keys(planned())) == expected, number


@pytest.mark.parametrize(
    ("variable", "stages"),
    [("SCALE_OF_X", OF_SUMS), ("RLC_DTYPE", ALL), ("OMP_NUM_THREADS", ALL), ("OTHER", set[str]())],
)
def test_an_edit_of_the_environment(
    variable: str, stages: set[str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keys(planned())
    for value in ("3", "5"):
        monkeypatch.setenv(variable, value)
        content.machine.cache_clear()
        after = keys(planned())
        assert changed(before, after) == stages
        before = after
    content.machine.cache_clear()


def test_another_version_of_what_computes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned()
    before = keys(plan)
    versions = metadata.version
    for name, stages in {"torch": ALL, "tinker-cookbook": ALL, "pytest": set[str]()}.items():
        for find in (content.package_version, content.machine, content.rlc_digest):
            find.cache_clear()
        newer = lambda known, n=name: "99" if known == n else versions(known)  # noqa: E731
        monkeypatch.setattr(metadata, "version", newer)
        assert changed(before, keys(plan)) == stages, name
    content.package_version.cache_clear()


@pytest.mark.parametrize("editable", [True, False])
def test_a_package_of_a_folder_is_known_by_content(
    editable: bool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (known := project / "at" / "spelling-1.0.dist-info").mkdir(parents=True)
    (known / "METADATA").write_text("Metadata-Version: 2.1\nName: spelling\nVersion: 1.0\n")
    (known / "direct_url.json").write_text(f'{{"dir_info": {{"editable": {editable}}}}}'.lower())
    (code := project / "at" / "spelling").mkdir()
    monkeypatch.syspath_prepend(project / "at")
    versions = set[str]()
    for text in ("x = 1", "x = 2"):
        (code / "__init__.py").write_text(text)
        if not editable:
            (known / "RECORD").write_text(f"spelling/__init__.py,sha256={text}")
        content.package_version.cache_clear()
        versions.add(content.package_version("spelling>=1"))
    content.package_version.cache_clear()
    assert len(versions) == 2
    assert all(version.startswith("spelling 1.0 ") for version in versions)


def test_a_seed_changes_all_and_a_server_what_it_computes(project: Path) -> None:
    before = keys(planned())
    assert changed(before, keys(planned(seed=2))) == ALL
    served = planned(service="tinker", overrides={"policy.base": '"Qwen/Qwen3-8B"'})
    one, other = identities(served, "http://one"), identities(served, "http://two")
    assert {n for n in ALL if one[n].steps != other[n].steps} == ALL


def test_code_that_runs_more_than_it_imports_depends_on_all_beside_it(project: Path) -> None:
    rewritten("grade.py", "import os\n", "import os, importlib\n")
    rewritten("grade.py", "    # as it is written\n", '    importlib.import_module("un" + "x")\n')
    before = keys(planned())
    Path("unrelated.py").write_text("x = 2\n")
    assert changed(before, keys(planned())) == OF_SUMS


def test_a_text_of_code_may_be_half_of_a_surrogate_pair(project: Path) -> None:
    rewritten(
        "grade.py", "    # as it is written\n", '    assert "\\ud800" not in os.environ.values()\n'
    )
    assert "grade.py" not in identities(planned())["main"].why


def test_code_that_cannot_be_read_is_never_reused(project: Path) -> None:
    plan = planned()
    Path("helper.py").write_text("this is no Python")
    found = identities(plan)
    assert "helper.py" in found["main"].why
    assert [name for name, one in found.items() if one.steps] == ["warmup", "untrained"]
    assert needs_of(plan.stages[2]) == ("main", "warmup")


@pytest.mark.parametrize(
    ("line", "files", "other"),
    [
        ("from lib import one", {"lib/one.py": "x = 1\n"}, "lib/one.py"),  # without __init__.py
        ("import lib.one as one", {"lib/one.py": "x = 1\n", "lib/__init__.py": ""}, "lib/one.py"),
        (
            "from lib import one",
            {"lib/__init__.py": "from .util import y", "lib/one.py": "from two.util import x\n"}
            | {"lib/util.py": "y = 1\n", "two/util.py": "x = 1\n"},
            "two/util.py",
        ),
    ],
)
def test_modules_are_followed_from_file_to_file(
    line: str, files: dict[str, str], other: str, project: Path
) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    rewritten("grade.py", "import os\n", f"import os\n{line}\n")
    before = keys(planned())
    rewritten(other, "1", "2")
    assert changed(before, keys(planned())) == OF_SUMS


@pytest.mark.parametrize("named", ["run lists/a.txt", "lists", "lists/a.txt"])
def test_files_in_commands_and_arguments_are_known(named: str, project: Path) -> None:
    rewritten("recipe.rl", "size = 3", f'size = 3, script = "{named}"')
    Path("lists").mkdir()
    Path("lists/a.txt").write_text("one")
    rewritten("words.py", "def make(size=3)", "def make(size=3, script='')")
    before = keys(planned())
    Path("lists/a.txt").write_text("two")
    assert changed(before, keys(planned())) == OF_WORDS


READS = "HERE = os.path.dirname(__file__)\nwith open({}) as opened:\n    _ = opened.read()\n"
FOUND_IN_CODE = [
    (READS.format('f"{HERE}/data/one.txt"'), "data/one.txt"),
    (READS.format("f\"{HERE}/data/{'one'}.txt\""), "data/one.txt"),
    (READS.format("'data/%s.txt' % 'one'"), "data/one.txt"),
    ("from pathlib import Path\nfound = [*Path(__file__).parent.glob('*.csv')]\n", "one.csv"),
    ("from subprocess import run\nrun(['python', 'data/one.py'])\n", "data/one.py"),
    ("from dotenv import load_dotenv\nload_dotenv()\n", ".env"),
]


@pytest.mark.parametrize(("lines", "file"), FOUND_IN_CODE)
def test_paths_that_code_puts_together_are_known(lines: str, file: str, project: Path) -> None:
    Path("data").mkdir()
    Path(file).write_text("one = 1\n")
    rewritten("grade.py", "import os\n", f"import os\n{lines}")
    before = keys(planned())
    Path(file).write_text("one = 2\n")
    assert changed(before, keys(planned())) == OF_SUMS


def test_a_variable_is_known_that_another_module_reads(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("settings.py").write_text("import os\ndef read(name):\n    return os.environ.get(name)\n")
    rewritten("grade.py", 'os.environ.get("SCALE_OF_X", 1)', 'settings.read("SCALE_OF_X") or 1')
    rewritten("grade.py", "import os\n", "import settings\n")
    before = keys(planned())
    monkeypatch.setenv("SCALE_OF_X", "2")
    assert changed(before, keys(planned())) == OF_SUMS


def test_variables_that_a_server_is_given_are_known(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = 'python("words.py:make", args = { size = 3 })'
    server = '|> chat() |> mcp_tools("npx search", secrets = ["INDEX_OF_X"])'
    rewritten("recipe.rl", given, f"{given} {server}")
    before = keys(planned())
    monkeypatch.setenv("INDEX_OF_X", "2")
    assert changed(before, keys(planned())) == OF_WORDS


def test_code_that_was_edited_after_it_was_imported_has_no_key(project: Path) -> None:
    Path("imported_once.py").write_text("scale = 1\n")
    rewritten("grade.py", "from helper import scale", "from imported_once import scale")
    load_attribute(f"{project / 'grade.py'}:reward")
    before = keys(planned())
    Path("imported_once.py").write_text("# as it was\nscale = 1\n")
    assert keys(planned()) == before
    Path("imported_once.py").write_text("scale = 2\n")
    assert "has changed since this process imported it" in identities(planned())["heldout"].why


def test_a_folder_is_known_with_what_it_links_to(project: Path) -> None:
    (folder := project / "folder").mkdir()
    (other := project / "other").mkdir()
    (folder / "linked").symlink_to(other, target_is_directory=True)
    (other / "around").symlink_to(folder, target_is_directory=True)
    digests = [content.folder_digest(folder)]
    for file in (other / "one.txt", folder / ".two.txt"):
        file.write_text("x")
        digests.append(content.folder_digest(folder))
    assert len({*digests}) == 3
    (folder / ".one.txt.swp").write_text("x")
    assert content.folder_digest(folder) == digests[-1]


def test_modules_that_only_the_code_itself_can_find_are_never_reused(project: Path) -> None:
    Path("elsewhere").mkdir()
    Path("elsewhere/far_away.py").write_text("x = 1\n")
    there = "import sys\nsys.path.append(os.path.join(os.getcwd(), 'else' + 'where'))\n"
    rewritten("grade.py", "import os\n", f"import os\n{there}import far_away\n")
    found = identities(planned())["heldout"]
    assert found.steps is None
    assert "changes sys.path, and `far_away`" in found.why


@pytest.mark.parametrize("name", ["sums.jsonl", "grade.py"])
def test_a_change_is_seen_that_leaves_size_and_time(name: str, project: Path) -> None:
    before, known = keys(planned()), Path(name).stat()
    Path(name).write_text(Path(name).read_text().replace("answer", "reswan"))
    os.utime(name, ns=(known.st_atime_ns, known.st_mtime_ns))
    assert Path(name).stat().st_size == known.st_size
    assert changed(before, keys(planned()))


def test_an_address_is_looked_for_as_a_run_does(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = planned(service="tinker", overrides={"policy.base": '"Qwen/Qwen3-8B"'})
    usual, named = identities(served), identities(served, "http://127.0.0.1:1")
    Path(".env").write_text("TINKER_BASE_URL=http://127.0.0.1:1/\n")
    assert identities(served) == named != usual
    monkeypatch.setenv("TINKER_BASE_URL", "http://127.0.0.1:2")
    assert identities(served) not in (named, usual)
