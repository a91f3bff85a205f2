"""One's own code that raises: each cause is kept once, with its line, wherever it ran."""

from __future__ import annotations

import json
import pickle
import textwrap
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from run_support import metrics, rollouts, run_new, tiny, train

import rlc
from rlc.cli.main import main
from rlc.compile.variants import rehearse
from rlc.runtime.journal.runs import read_run
from rlc.runtime.records import failure_of, read_failures

ENV = """\
import json
from rlc.chat.turns import Observation

class Episode:
    first = Observation("Say 1.")

    def __init__(self, seed):
        self.seed = seed

    def step(self, action):
        return Observation("", reward=self.grade(action), done=True)

    def grade(self, action):
        raise KeyError(f"number {self.seed}")  # here

class Source:
    def group(self, seed, size):
        return [Episode(seed + member) for member in range(size)]

def make():
    return Source()

def pool():
    from concurrent.futures import ThreadPoolExecutor
    return ThreadPoolExecutor(2)
"""
LINE = 1 + ENV[: ENV.index("# here")].count("\n")


def raised(function: Any, *args: Any) -> BaseException:
    try:
        function(*args)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def own_code(path: Path, text: str) -> dict[str, Any]:
    """Run the text of a file, so that its frames have the name of the file."""
    path.write_text(text)
    found: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), found)
    return found


def test_the_place_is_in_ones_own_code(tmp_path: Path) -> None:
    text = "import json\ndef parse(text):\n    return json.loads(text)\n"
    parse = own_code(tmp_path / "own.py", text)["parse"]
    failure = failure_of(raised(parse, "{"))
    assert failure.place == f"{tmp_path / 'own.py'}:3"
    assert failure.error.startswith("JSONDecodeError: Expecting property name")
    assert str(failure) == f"{failure.error} ({failure.place})"
    assert "json/decoder.py" in failure.traceback
    only_a_library = failure_of(raised(json.loads, "{"))
    assert only_a_library.place is not None


def test_what_differs_in_numbers_and_quotes_is_one_cause(tmp_path: Path) -> None:
    text = "def fail(error):\n    raise error\ndef other(error):\n    raise error\n"
    own = own_code(tmp_path / "own.py", text)

    def key(name: str, error: Exception) -> str:
        return failure_of(raised(own[name], error)).key

    same = {key("fail", ValueError(f"row {n} has no 'field {n}'")) for n in range(3)}
    assert len(same) == 1
    others = {
        key("other", ValueError("row 1 has no 'field 1'")),
        key("fail", TypeError("row 1 has no 'field 1'")),
        key("fail", ValueError("row 1 is empty")),
    }
    assert len(others | same) == 4


def test_an_error_without_a_message_has_a_line() -> None:
    failure = failure_of(raised(pickle.loads, b""))
    assert failure.error.startswith("EOFError")

    def check() -> None:
        assert not "a tokenizer that does not fit"

    halved = failure_of(ValueError("\ud800 is read"))
    assert halved.error == "ValueError: \\ud800 is read"  # can be written to a file
    bare = failure_of(AssertionError())
    assert (bare.error, bare.place, bare.traceback) == ("AssertionError", None, "AssertionError\n")
    assert failure_of(raised(check)).place is not None


def failing() -> None:
    raise RuntimeError("in a worker")


@pytest.mark.slow
def test_tracebacks_cross_threads_and_processes() -> None:
    for pool in (ThreadPoolExecutor(1), ProcessPoolExecutor(1, mp_context=get_context("spawn"))):
        with pool:
            failure = failure_of(raised(pool.submit(failing).result))
        assert failure.place is not None
        assert failure.place.rpartition(":")[0].endswith("tests/runtime/test_failed_rollouts.py")
        assert 'raise RuntimeError("in a worker")' in failure.traceback
        assert "concurrent" not in failure.traceback


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / f"{tmp_path.name.replace('-', '_')}.py").write_text(ENV)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def failing_run(project: Path, workers: str = "", **fields: str) -> rlc.Summary:
    module = project.name.replace("-", "_")
    workers = workers.replace("MODULE", module)
    env = f'env mine = python("{module}:make"){workers}\n'
    stage = train(env="mine", batch="groups(2, group_size = 2)", steps="2", **fields)
    return run_new(project / "run", tiny(env, stage))


@pytest.mark.plain
@pytest.mark.parametrize(
    "workers",
    ["", " |> workers(processes, count = 1)", ' |> workers(executor = "MODULE:pool")'],
    ids=["threads", "processes", "executor"],
)
def test_a_run_in_which_everything_fails(project: Path, workers: str) -> None:
    summary = failing_run(project, workers)
    place = f"{project.name.replace('-', '_')}.py:{LINE}"
    (stage,) = summary.stages
    assert (stage.done, stage.updates, summary.state) == (2, 0, "nothing learnt")
    assert summary.cause.startswith("none of the 2 steps of `main` changed its weights: all 8 ")
    assert place in summary.cause
    assert (read_run(project / "run").state, read_run(project / "run").resumable) == (
        "nothing learnt",
        False,
    )
    (failure,) = read_failures(project / "run")
    assert (failure.place, failure.stage, failure.step) == (place, "main", 1)
    assert 'raise KeyError(f"number {self.seed}")' in failure.traceback
    assert {record["failure"] for record in rollouts(project / "run")} == {failure.key}
    assert len(metrics(project / "run", "main")) == 2
    with pytest.raises(rlc.Error, match="nothing was learnt"):
        rlc.resume(project / "run")
    assert len(read_failures(project / "run")) == 1


@pytest.mark.plain
def test_a_failure_that_stops_the_run_is_kept(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"{project.name.replace('-', '_')}.py:{LINE}"
    with pytest.raises(rlc.Error, match=rf"KeyError: 'number \d+' \({place}\)"):
        failing_run(project, on_error="stop")
    assert main(["show", "run"]) == 1  # there are no episodes, but a cause
    shown = capsys.readouterr().out
    assert f"raised at {place}" in shown
    assert "in grade" in shown


@pytest.mark.plain
def test_the_command_line_says_what_failed(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = project.name.replace("-", "_")
    recipe = f"""
    model policy {{ base = "tiny" lora_rank = 4 }}
    env mine = python("{module}:make")
    {train(env="mine", batch="groups(2, group_size = 2)", steps="2")}
    """
    Path("r.rl").write_text(textwrap.dedent(recipe))
    assert main(["run", "r.rl", "--run-dir", "a run", "--quiet"]) == 1
    shown = capsys.readouterr().out
    for part in (
        "main: 2 of 2 steps in ",
        "none of them with an update",
        "(the weights that it began with)",
        f"({module}.py:{LINE})",
        "in grade",
        "warning   100% of the rollouts failed in the last 2 steps of main: 8 KeyError",
        "nothing was learnt: none of the 2 steps",
        "rlc show 'a run'",
        "rlc report 'a run'",
    ):
        assert part in shown
    assert "--resume" not in shown
    assert main(["show", "a run", "--failed"]) == 0
    assert capsys.readouterr().out.count("Traceback") == 1
    assert main(["report", "a run"]) == 0
    assert f"{module}.py:{LINE}" in Path("a run/report.html").read_text()


@pytest.mark.plain
def test_equal_rewards_teach_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "always_the_same.py").write_text(
        ENV.replace("raise KeyError", "return float(1) or")
    )
    env = 'env same = python("always_the_same:make")\n'
    job = tiny(
        env, train(env="same", batch="groups(1, group_size = 5)", steps="1", save="every(1)")
    )
    summary = run_new(tmp_path / "run", job)
    assert summary.state == "nothing learnt"
    assert summary.cause == (
        "the one step of `main` changed no weights: no group was left with rewards that differ"
    )
    assert run_new(tmp_path / "small", rehearse(job)).state == "finished"
