"""Jobs as folders: what is in them, and that they are the same wherever they are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from attrs import evolve
from paths import RECIPES, ROOT

from rlc.api import Recipe
from rlc.catalog.packages import TASKSETS
from rlc.compile.saved import load_plan
from rlc.compile.sweeps import find_sweep
from rlc.emit.errors import EmitError
from rlc.emit.job import entry
from rlc.emit.job.folder import WrittenJob, emit_job
from rlc.emit.job.needs import newest_python, rlc_requirements, write_wheel
from rlc.explanation.summary import summary_text
from rlc.lang.diagnostics import Diagnostics
from rlc.plan.records import Plan
from rlc.version import __version__

pytestmark = pytest.mark.slow

SHIPPED = sorted([*RECIPES.glob("*.rl"), *RECIPES.glob("yardstick/*.rl")])
POLICY = 'model policy { base = "tiny"  lora_rank = 8 }\n'
STAGE = """
train main {
  model = policy  env = words  batch = groups(4, group_size = 4)  advantage = grpo()
  sampling = sample(max_tokens = 8)  loss = importance_sampling()
  optimizer = adam(1e-3)  steps = 2
}
"""
ROWS = "".join(json.dumps({"prompt": f"Say {word}."}) + "\n" for word in ("one", "two", "three"))


def written(
    recipe: Path, folder: Path, *include: Path, sweep: bool = False
) -> tuple[WrittenJob, Plan]:
    asked = Recipe(str(recipe))
    compiled = asked.compile()
    assert compiled.plan is not None, [item.message for item in compiled.diagnostics]
    chosen = find_sweep(compiled.sweeps, None, compiled.plan.recipe) if sweep else None
    return emit_job(compiled, folder, asked.options(), chosen, include), compiled.plan


def run_job(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "run.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("recipe", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_recipe_is_written_as_a_job(recipe: Path, tmp_path: Path) -> None:
    job, plan = written(recipe, tmp_path / "job")
    (tmp_path / "job").rename(tmp_path / "moved")
    loaded = load_plan(tmp_path / "moved" / "plan.json")
    assert evolve(loaded, recipe=plan.recipe, data=()) == evolve(plan, data=())
    assert {file.path for file in plan.data} <= {file.path for file in loaded.data}
    for path in (tmp_path / "moved" / name for name in job.files):
        if path.suffix not in (".whl", ".arrow"):
            text = path.read_text(encoding="utf-8")
            assert str(ROOT) not in text
            assert str(tmp_path) not in text
    page = (tmp_path / "moved" / "README.md").read_text(encoding="utf-8")
    price = re.search(r"  tokens .*\n  cost .*\n", summary_text(plan, Diagnostics()))
    assert price is not None
    assert price[0] in page
    needed = (tmp_path / "moved" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    extras = re.fullmatch(r"\./wheels/rlc-.+\.whl\[([\w,]+)\]", needed[1])
    assert extras is not None, needed
    known = set(re.findall(r'extra == "(\w+)"', "\n".join(rlc_requirements())))
    assert set(extras[1].split(",")) <= known


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose recipe reads files in several places, by code of its own too."""
    root, away = tmp_path / "home" / "project", tmp_path / "home" / "away"
    files = {
        "recipes/job.rl": f"""import "lib/policy.rl"
env words = rows("../data/prompts.jsonl", grader = grade_with("own/rewards.py:reward"))
{STAGE}""",
        "recipes/lib/policy.rl": POLICY,
        "recipes/own/rewards.py": "from lists import known\nimport shared.text\n\n\n"
        "def reward(reply, row):\n    return float(shared.text.plain(reply) in known())\n",
        "recipes/own/lists.py": "from pathlib import Path\n\n\ndef known():\n"
        '    return (Path(__file__).parent / "known.txt").read_text().split()\n',
        "recipes/own/known.txt": "one two three\n",
        "recipes/shared/__init__.py": "",
        "recipes/shared/text.py": "def plain(text):\n    return text.strip()\n",
        "data/prompts.jsonl": ROWS,
        "data/unread.jsonl": ROWS,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    away.mkdir()
    (away / "prompts.jsonl").write_text(ROWS, encoding="utf-8")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.chdir(root)
    return root


def test_a_job_has_the_files_that_the_recipe_and_its_code_read(project: Path) -> None:
    notes = project / "notes.md"
    notes.write_text("by hand\n")
    job, _ = written(project / "recipes" / "job.rl", project / "job", notes)
    assert [name for name in job.files if name.startswith("recipe/")] == [
        "recipe/data/prompts.jsonl",
        "recipe/notes.md",
        "recipe/recipes/job.rl",
        "recipe/recipes/lib/policy.rl",
        "recipe/recipes/own/known.txt",
        "recipe/recipes/own/lists.py",
        "recipe/recipes/own/rewards.py",
        "recipe/recipes/shared/__init__.py",
        "recipe/recipes/shared/text.py",
    ]
    assert {file.path for file in load_plan(project / "job" / "plan.json").data} >= {
        "../data/prompts.jsonl",
        "own/rewards.py",
        "own/lists.py",
        "own/known.txt",
    }


def test_a_job_has_the_files_of_its_agent(project: Path) -> None:
    recipe = project / "recipes" / "job.rl"
    (project / "recipes" / "own" / "agent.py").write_text("def solve(run):\n    return 1.0\n")
    agent = 'env words = agent(PROGRAM, tasks = rows("../data/prompts.jsonl"))\n'
    text = f'import "lib/policy.rl"\n{agent}{STAGE}'
    recipe.write_text(text.replace("PROGRAM", '"own/agent.py:solve"'))
    job, _ = written(recipe, project / "called")
    assert [name for name in job.files if name.startswith("recipe/recipes/")] == [
        "recipe/recipes/job.rl",
        "recipe/recipes/lib/policy.rl",
        "recipe/recipes/own/agent.py",
    ]
    needed = (project / "called" / "requirements.txt").read_text()
    assert "[local,serve]" in needed
    # A program may read whatever is in the folder that it is run in.
    recipe.write_text(text.replace("PROGRAM", 'command = ["node", "agent.js"], folder = "own"'))
    job, _ = written(recipe, project / "started")
    assert {"recipe/recipes/own/lists.py", "recipe/recipes/own/known.txt"} <= {*job.files}
    for page in ("README.md", "Dockerfile"):
        assert "node" in (project / "started" / page).read_text()
        assert "node" not in (project / "called" / page).read_text()


def test_a_file_from_elsewhere_is_copied_and_named_anew(project: Path) -> None:
    recipe, away = project / "recipes" / "job.rl", project.parent / "away" / "prompts.jsonl"
    recipe.write_text(recipe.read_text().replace("../data/prompts.jsonl", str(away)))
    job, _ = written(recipe, project / "job")
    (stage,) = load_plan(project / "job" / "plan.json").stages
    assert "recipe/elsewhere/prompts.jsonl" in job.files
    assert stage.environments[0].id == "./elsewhere/prompts.jsonl"
    assert str(project.parent) not in (project / "job" / "plan.json").read_text()


def test_a_sweep_refuses_what_its_recipe_would_not_find(project: Path) -> None:
    recipe, away = project / "recipes" / "job.rl", project.parent / "away" / "prompts.jsonl"
    sweep = "sweep rates { of = main  over = { main.optimizer.learning_rate = [1e-3, 3e-3] } }\n"
    text = recipe.read_text() + sweep
    recipe.write_text(text)
    (project / "rlc.toml").touch()  # its models and prices are read where the sweep is run
    job, _ = written(recipe, project / "job", sweep=True)
    assert {"recipe/data/prompts.jsonl", "recipe/rlc.toml"} <= {*job.files}
    command = json.loads((project / "job" / "job.json").read_text())["command"]
    assert command == ["sweep", "recipe/recipes/job.rl", "rates"]
    recipe.write_text(text.replace("../data/prompts.jsonl", str(away)))
    with pytest.raises(EmitError) as refused:
        written(recipe, project / "other", sweep=True)
    assert [item.code for item in refused.value.diagnostics] == ["RL0825"]
    assert not (project / "other").exists()


def test_modules_of_the_working_directory_are_found_again(project: Path) -> None:
    (project / "mine").mkdir()
    (project / "mine" / "words.py").write_text("def reward(reply, row):\n    return 1.0\n")
    recipe = project / "recipes" / "job.rl"
    recipe.write_text(recipe.read_text().replace("own/rewards.py:reward", "mine.words:reward"))
    job, _ = written(recipe, project / "job")
    assert "recipe/mine/words.py" in job.files
    told = json.loads((project / "job" / "job.json").read_text())
    assert (told["command"], told["folder"]) == (["run", "../plan.json"], "recipe")


@pytest.mark.parametrize("name", ["recipe/data/prompts.jsonl", "plan.json", "job.json"])
def test_a_changed_or_lost_file_is_refused_by_its_hash(name: str, project: Path) -> None:
    written(project / "recipes" / "job.rl", project / "job")
    path = project / "job" / name
    path.write_text(path.read_text() + " ", encoding="utf-8")
    done = run_job(project / "job", "--here")
    assert done.returncode == 2
    assert f"error: {name} has changed since the job was written: its SHA-256 was" in done.stderr
    path.unlink()
    done = run_job(project / "job", "--here")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, f"error: {name} is gone")


@pytest.mark.parametrize(
    ("name", "says", "python", "found"),
    [
        ("quickstart", "Python 3.11 or later", (3, 14, 1), True),
        ("quickstart", "Python 3.11 or later", (3, 10, 13), False),
        ("sudoku", "Python 3.11 to 3.12.0", (3, 12, 0), True),
        ("sudoku", "Python 3.11 to 3.12.0", (3, 12, 1), False),
    ],
)
def test_a_job_looks_for_a_python_that_has_its_packages(
    name: str,
    says: str,
    python: tuple[int, ...],
    found: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written(RECIPES / f"{name}.rl", tmp_path / "job")
    assert f"- {says}, or [uv]" in (tmp_path / "job" / "README.md").read_text()
    monkeypatch.setattr(entry, "HERE", tmp_path / "job")
    monkeypatch.setattr("sys.version_info", python)
    monkeypatch.setattr("shutil.which", "/bin/{}".format)
    assert entry.maker() == [sys.executable if found else "/bin/python3.11", "-m", "venv"]


@pytest.mark.parametrize(("wrong", "newest"), [("0.3.1 here", [3, 13]), (None, [])])
def test_only_versions_of_verifiers_with_tasksets_are_for_later_pythons(
    wrong: str | None, newest: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlc.emit.job.needs.lacking", {TASKSETS: wrong}.get)
    assert newest_python([Recipe(str(RECIPES / "verifiers.rl")).plan()]) == newest


def test_the_wheel_asks_for_an_extra_where_it_installs() -> None:
    assert (
        "gem-llm==0.1.0; (python_full_version <= '3.12.0') and extra == \"gem\""
        in rlc_requirements()
    )


def test_a_folder_with_content_is_left_alone(project: Path) -> None:
    with pytest.raises(EmitError, match="already has content"):
        written(project / "recipes" / "job.rl", project / "data")
    assert sorted(path.name for path in project.iterdir()) == ["data", "recipes"]


def test_the_wheel_is_whole_and_always_the_same(tmp_path: Path) -> None:
    name = write_wheel(tmp_path)
    first = (tmp_path / name).read_bytes()
    write_wheel(tmp_path)
    assert (tmp_path / name).read_bytes() == first
    with zipfile.ZipFile(tmp_path / name) as wheel:
        assert wheel.testzip() is None
        names = set(wheel.namelist())
        (record,) = (n for n in names if n.endswith("RECORD"))
        listed = {line.split(",")[0] for line in wheel.read(record).decode().splitlines()}
    assert listed == names
    assert {"rlc/lang/syntax/rl.lark", "rlc/emit/constraints.txt", "rlc/py.typed"} <= names
    tracked = subprocess.run(
        ["git", "ls-files", "rlc"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(filter(lambda path: (ROOT / path).is_file(), tracked)) <= names


def test_a_run_that_was_killed_as_it_began_is_begun_again(tmp_path: Path) -> None:
    from rlc.emit.job.entry import begun
    from rlc.runtime.journal.database import Journal

    folder = tmp_path / "run"
    assert not begun(folder)
    folder.mkdir()
    (folder / ".lock").touch()
    Journal(folder / "journal.sqlite").close()
    assert not begun(folder)
    assert os.listdir(folder) == []  # in a container it is one that is mounted
    (folder / "mine.txt").touch()
    assert not begun(folder)
    assert (folder / "mine.txt").exists()
    journal = Journal(folder / "journal.sqlite")
    journal.set_meta(plan_hash="1")
    journal.close()
    assert begun(folder)
    assert os.listdir(folder)


def test_what_a_job_has_to_reach_is_in_its_page(tmp_path: Path) -> None:
    (tmp_path / "words.jsonl").write_text(ROWS)
    asked = 'endpoint("http://10.0.0.7:8000/v1", model = "tiny")'
    judged = f'env words = rows("words.jsonl") |> judged(rubric("Is it right?", model = {asked}))\n'
    (tmp_path / "a.rl").write_text(POLICY + judged + STAGE)
    written(tmp_path / "a.rl", tmp_path / "job")
    page = (tmp_path / "job" / "README.md").read_text(encoding="utf-8")
    assert "- the endpoint http://10.0.0.7:8000/v1, as it is reached from there\n" in page


@pytest.mark.parametrize("status", [1, 3])
def test_only_a_job_that_has_not_ended_goes_on(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(*_: object, **__: object) -> None:
        raise SystemExit(status)

    job = {"rlc": __version__, "command": ["run", "plan.json"], "folder": "."}
    (tmp_path / "job.json").write_text(json.dumps(job))
    monkeypatch.setattr(entry, "HERE", tmp_path)
    monkeypatch.setattr("runpy.run_module", ends)
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    with pytest.raises(SystemExit):
        entry.run(tmp_path / "run", [])
    assert ("goes on with it" in capsys.readouterr().err) is (status == 1)
