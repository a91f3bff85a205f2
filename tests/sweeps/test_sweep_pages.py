"""What `rlc report`, `rlc runs` and `rlc sweep --dry-run` say of a sweep, without an engine."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve
from sweep_support import sweep_in, write

from rlc.cli.main import main
from rlc.plan.sweeps import Trial
from rlc.report.diagrams import parallel
from rlc.report.sweep_page import build, sweep_html
from rlc.runtime.journal.folder import RunFolder
from rlc.sweeps.folder import SweepFolder, read_sweep
from rlc.sweeps.trials import TrialState

SWEEP = "sweep rates { of = main  over = { rate = [1e-4, 1e-2]  policy.lora_rank = [2, 4] }  %s }\n"
# The metric of each configuration's two seeds.
VALUES = {1: (0.25, 0.75), 2: (0.5, 0.5), 3: (0.75, 1.0), 4: (0.25, None)}


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    """A sweep that has ended, with made-up results."""
    base, sweep = sweep_in(write(tmp_path, SWEEP % "seeds = 2"))
    folder = SweepFolder.create(tmp_path / "swept", sweep, base, {})
    with closing(folder):
        for number, configuration in enumerate(sweep.configurations(), 1):
            for seed, value in zip(sweep.seeds, VALUES[number], strict=True):
                trial = Trial(number, configuration, seed)
                folder.journal.add([trial])
                state: TrialState = "failed" if value is None else "finished"
                cause = "" if value else "it <broke>"
                folder.journal.set_state(trial, state, cause, value)
                plan = sweep.plan_of(configuration, seed)
                with closing(RunFolder.create(folder.of_trial(trial), plan)) as run:
                    for step in (1, 2, 3):
                        run.append(
                            "metrics.jsonl",
                            [
                                {"stage": "main", "step": step, "reward/mean": step / 10},
                                {"stage": "held", "step": step, "eval/held/mean_reward": 0.1},
                            ],
                        )
                    run.set_state("finished")
        folder.set_state("finished")
    return tmp_path / "swept"


def test_the_page_compares_the_trials(swept: Path) -> None:
    page = build(read_sweep(swept))
    assert [row.number for row in page.results] == [3, 1, 2, 4]  # 4 is not complete
    assert page.best is not None
    assert (page.best.mean, list(page.best.configuration.values())) == (0.875, ["1e-2", "2"])
    assert "--set 'rate=1e-2' --set 'policy.lora_rank=2' --seed 1" in page.command
    assert {chart.title for chart in page.charts} == {"held.mean_reward", "main: reward"}
    assert all(len(chart.curves) == 4 for chart in page.charts)
    text = sweep_html(swept)
    assert ">rate</td><td" in text
    assert ">policy.lora_rank</td><td" in text.replace("<wbr>", "")
    assert "it &lt;broke&gt;" in text
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", text)  # nothing is fetched


def test_lines_lie_where_the_values_are(swept: Path) -> None:
    sweep = read_sweep(swept)
    drawn = parallel(sweep.plan, sweep.results)
    assert drawn is not None
    assert ["".join(axis.name) for axis in drawn.axes] == [
        "rate",
        "policy.lora_rank",
        "held.mean_reward",
    ]
    best = drawn.lines[-1]
    assert (best.best, best.shade) == (True, 1.0)
    # The upper end is the last value of a list, the lower one the first.
    assert best.path == "M90 46L500 352L910 46"
    assert parallel(sweep.plan, sweep.results[:1]) is None
    less = evolve(sweep.plan, metric=evolve(sweep.plan.metric, more_is_better=False))
    turned = parallel(less, sweep.results)
    assert turned is not None
    assert turned.lines[-1].shade == 0.0


def test_runs_say_what_differs(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(swept), "--json"]) == 0
    *rows, _ = json.loads(capsys.readouterr().out)  # the last is the sweep itself
    assert len(rows) == 8
    assert {(*row["differs"].items(),) for row in rows} == {
        (("rate", rate), ("policy.lora_rank", rank), ("seed", seed))
        for rate in ("1e-4", "1e-2")
        for rank in "24"
        for seed in "12"
    }
    assert main(["runs", str(swept.parent), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["kind"], row["path"], row["state"]) == ("sweep", str(swept), "finished")
    assert row["trials"] == {"finished": 7, "failed": 1}
    assert row["best"] == {"value": 0.875, "values": {"rate": "1e-2", "policy.lora_rank": "2"}}
    assert main(["runs", str(swept.parent)]) == 0
    told = capsys.readouterr().out
    assert "sweep rates finished: 7 finished, 1 failed; best held.mean_reward 0.8750" in told
    assert main(["report", str(swept)]) == 0
    assert (swept / "report.html").is_file()


def test_a_sweep_whose_process_is_gone_is_interrupted(tmp_path: Path) -> None:
    base, sweep = sweep_in(write(tmp_path, SWEEP % ""))
    with closing(SweepFolder.create(tmp_path / "swept", sweep, base, {})) as folder:
        trial = Trial(1, next(iter(sweep.configurations())), 1)
        folder.journal.add([trial])
        folder.journal.set_state(trial, "running")
        assert read_sweep(tmp_path / "swept").state == "running"
    info = read_sweep(tmp_path / "swept")
    assert (info.state, info.trials[0].state, info.best) == ("interrupted", "interrupted", None)
    assert build(info).parallel is None


@pytest.mark.parametrize(
    ("words", "says"), [(["show"], "rlc runs"), (["run", "--resume"], "rlc sweep")]
)
def test_a_sweep_is_no_run(
    words: list[str], says: str, swept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, str(swept)]) > 0
    told = capsys.readouterr().err
    assert f"{swept} is a sweep" in told
    assert says in told


def test_a_dry_run_lists_trials_and_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = str(write(tmp_path, SWEEP % "seeds = 2"))
    assert main(["sweep", recipe, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert len(re.findall(r"seed [12]  [0-9a-f]{10}  rate = ", told)) == 8
    assert "cost of all trials" in told
    assert main(["sweep", recipe, "--dry-run", "--rehearse"]) == 0
    assert len(re.findall(r"seed [12]  [0-9a-f]{10}", capsys.readouterr().out)) == 4


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sweep"], "give a recipe"),
        (["sweep", "RECIPE", "--jobs", "0"], "--jobs is at least 1"),
        (["sweep", "RECIPE", "other"], "has no sweep `other`"),
        (["sweep", "RECIPE"], "has several sweeps: name one of rates, again"),
        (["sweep", "PLAIN"], "declares no sweep"),
        (["sweep", "RECIPE", "--resume", "x"], "give --resume alone"),
        (["sweep", "--resume", "nowhere"], "is not the folder of a sweep"),
    ],
)
def test_wrong_use_is_explained(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = SWEEP % "" + SWEEP.replace("sweep rates", "sweep again") % ""
    paths = {"RECIPE": str(write(tmp_path, two)), "PLAIN": "recipes/quickstart.rl"}
    status = main([paths.get(word, word) for word in words])
    told = capsys.readouterr().err
    assert says.replace("several sweeps: ", "several sweeps\n  help: ") in told
    assert status == (1 if "nowhere" in words else 2)


def test_the_page_has_the_verdicts_with_every_seed(tmp_path: Path) -> None:
    """A dot for each pair of runs, on the side of the limit on which it is."""
    swept = "sweep rates { of = main  over = { rate = [1e-4, 1e-2] }  seeds = 3  %s }\n"
    claim = "claim c { of = rates  that = at(rate == 1e-2) > at(rate == 1e-4) + 10% }\n"
    text = swept % "metric = held.pass_at_1" + claim
    base, sweep = sweep_in(write(tmp_path, text))
    folder = SweepFolder.create(tmp_path / "swept", sweep, base, {})
    values = {1: (0.25, 0.5, 0.5), 2: (0.5, 0.5, None)}
    with closing(folder):
        for number, configuration in enumerate(sweep.configurations(), 1):
            for seed, value in zip(sweep.seeds, values[number], strict=True):
                trial = Trial(number, configuration, seed)
                folder.journal.add([trial])
                state: TrialState = "failed" if value is None else "finished"
                folder.journal.set_state(trial, state, "it <broke>" if value is None else "", value)
        folder.set_state("finished")
    (drawn,) = build(read_sweep(tmp_path / "swept")).claims
    first, second = drawn.marks
    assert (first.tip, second.tip) == ("seed 1: 25%", "seed 2: 0%")
    assert second.x < drawn.limit < first.x
    assert drawn.claimed[0] == drawn.limit
    text = sweep_html(tmp_path / "swept")
    assert '<b class="warn">cannot tell</b>: c' in text
    assert "without seed 3: trial 2 failed: it &lt;broke&gt;" in text
    assert text.count("<circle") == 3
