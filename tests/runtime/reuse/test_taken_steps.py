"""A run takes what an earlier one has finished, and comes to the same end as a fresh one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve
from run_support import assert_same, block, comparable, metrics, run, tiny, train, undisturbed

import rlc
from rlc.compile.variants import rehearse
from rlc.plan.paths import JOURNAL_FILE
from rlc.plan.records import Plan
from rlc.runtime.journal.database import NOTHING, Journal
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.reuse import take
from rlc.runtime.reuse.index import INDEX_FILE, journalled_keys
from rlc.runtime.reuse.store import find_reuse, whole_stages
from rlc.runtime.reuse.take import begin_with
from rlc.runtime.start import open_run
from rlc.runtime.summary import Observer, Summary

pytestmark = pytest.mark.plain
SFT = block(
    "sft",
    "warmup",
    {
        "model": "policy",
        "data": "demonstrations(guess, n = 4)",
        "batch": "2",
        "steps": "3",
        "optimizer": "adam(1e-3)",
    },
)
ADVANTAGE = """\
def centred(rewards_N):
    return rewards_N - rewards_N.mean() - 0.0
"""
MAIN = {"model": "warmup", "save": "every(2, keep = 2)"}


class Notes(Observer):
    def __init__(self) -> None:
        self.texts = list[str]()

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def done(plan: Plan, name: str, fresh: bool = False) -> tuple[Path, Summary, list[str]]:
    """Run a plan in `runs/NAME`; return the folder, the summary, and what was reused."""
    notes, path = Notes(), Path("runs", name)
    summary = run(open_run(plan, path, fresh=fresh), observer=notes)
    return path, summary, [text for text in notes.texts if text.startswith("reused")]


def taken(plan: Plan) -> dict[str, int]:
    """The number of steps that a run of a plan would take, by stage."""
    return {one.stage: len(one.steps.steps) for one in find_reuse(plan).parts}


def test_a_longer_run_takes_the_steps_of_a_shorter_one_and_ends_as_a_fresh_one() -> None:
    done(tiny(train(steps="4")), "short")
    long = tiny(train(steps="6"))
    path, summary, notes = done(long, "long")
    assert (len(notes), summary.state) == (1, "finished")
    assert notes[0].startswith("reused: the first 4 of 6 steps of `main` from runs/short")
    fresh, _, nothing = done(long, "fresh", fresh=True)
    assert not nothing
    assert_same(path, fresh)
    assert RunFolder.resume(path).journal.checkpoints("main").keys() == {4, 6}


def test_only_the_stage_that_changed_is_trained_again() -> None:
    done(tiny(SFT, train(**MAIN)), "first")
    other = tiny(SFT, train(**MAIN, loss="cispo()"))
    path, _, notes = done(other, "second")
    assert [text.partition(" from")[0] for text in notes] == ["reused: all 3 steps of `warmup`"]
    assert_same(path, undisturbed(other))


def test_a_run_of_the_same_plan_computes_nothing() -> None:
    heldout = block(
        "eval",
        "heldout",
        {"model": "main", "env": "spell", "tasks": "2", "every": "2", "first": "true"},
    )
    plan = tiny(train(), heldout)
    done(plan, "first")
    path, summary, notes = done(plan, "second")
    assert summary.state == "finished"
    assert len(notes) == 2
    assert "3 evaluations of `heldout`" in notes[1]
    assert_same(path, undisturbed(plan))
    assert metrics(path, "heldout")


HELDOUT = block("eval", "heldout", {"model": "main", "env": "spell", "tasks": "2", "every": "2"})
# What an edit leaves to be taken, of three steps of `warmup`, four of `main` and two evaluations.
EDITED: list[tuple[dict[str, str], dict[str, str], dict[str, int]]] = [
    ({}, {"steps": "5"}, {"warmup": 3, "main": 4, "heldout": 2}),
    ({}, {"steps": "2"}, {"warmup": 3, "main": 2, "heldout": 1}),
    ({}, {"optimizer": "adam(1e-3, schedule = linear())"}, {"warmup": 3}),
    ({"optimizer": "adam(2e-3)"}, {}, {"warmup": 0}),  # the demonstrations alone
]
OTHERS: list[tuple[dict[str, str], dict[str, str], dict[str, int]]] = [
    ({}, {"save": "every(4)"}, {"warmup": 3, "main": 4, "heldout": 2}),
    ({}, {"budget": "limit(tokens = 1_000_000)"}, {"warmup": 3, "main": 4, "heldout": 2}),
    ({}, {"optimizer": "adam(2e-3)"}, {"warmup": 3}),
    ({}, {"sampling": "sample(max_tokens = 6)"}, {"warmup": 3}),
    ({"steps": "4"}, {}, {"warmup": 3}),
]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a finished run of the recipe that is edited."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done(edited({}, {}), "first")
    return folder


def edited(warmup: dict[str, str], main: dict[str, str]) -> Plan:
    sft = {"model": "policy", "data": "demonstrations(guess, n = 4)", "batch": "2"}
    sft |= {"steps": "3", "optimizer": "adam(1e-3)", **warmup}
    return tiny(block("sft", "warmup", sft), train(**MAIN | main), HELDOUT)


@pytest.mark.parametrize(("warmup", "main", "expected"), EDITED)
def test_an_edited_recipe_ends_as_a_fresh_run_of_it(
    warmup: dict[str, str],
    main: dict[str, str],
    expected: dict[str, int],
    first: Path,
    tmp_path: Path,
) -> None:
    shutil.copytree(first / "runs", "runs")
    plan = edited(warmup, main)
    assert taken(plan) == expected
    path, _, notes = done(plan, "edited")
    assert len(notes) == len(expected)
    assert_same(path, undisturbed(plan))
    made = [run / "examples-warmup.jsonl" for run in (path, undisturbed(plan))]
    assert made[0].read_bytes() == made[1].read_bytes()


@pytest.mark.parametrize(("warmup", "main", "expected"), OTHERS)
def test_other_edits_leave_as_much_as_they_can(
    warmup: dict[str, str],
    main: dict[str, str],
    expected: dict[str, int],
    first: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(first)
    assert taken(edited(warmup, main)) == expected


def test_what_is_taken_is_not_counted_as_spent(first: Path) -> None:
    shutil.copytree(first / "runs", "runs")
    path, _, _ = done(edited({}, {"steps": "5"}), "longer")
    with closing(Journal(path / JOURNAL_FILE, read_only=True)) as journal:
        assert journal.used("warmup") == NOTHING
        assert journal.used("main") == journal.used("main", 5) != NOTHING


def test_a_run_goes_on_from_an_interrupted_one() -> None:
    plan = tiny(SFT, train(**MAIN))
    run(open_run(plan, Path("runs/begun")), stop_after=("main", 3))
    assert taken(plan) == {"warmup": 3, "main": 3}
    path, _, _ = done(plan, "second")
    assert_same(path, undisturbed(plan))


def test_a_longer_run_of_overlapping_steps_goes_on_where_all_weights_are_there() -> None:
    lagged = {"overlap": "asynchronous(max_staleness = 1)", "loss": "cispo()"}
    done(tiny(train(steps="4", **lagged)), "short")
    long = tiny(train(steps="6", **lagged))
    assert taken(long) == {"main": 2}  # step 5 samples from step 3, whose weights were not kept
    path, _, _ = done(long, "long")
    assert_same(path, undisturbed(long))


def test_a_finished_stage_has_the_states_that_the_plan_keeps() -> None:
    done(tiny(train()), "first")
    assert taken(tiny(train(save="every(1, keep = 3)"))) == {"main": 2}  # none after step 3 is kept
    assert taken(tiny(train(save="every(2, keep = 1)"))) == {"main": 4}


def test_two_runs_at_once_take_only_what_lasts() -> None:
    plan = tiny(SFT, train(**MAIN))

    class Second(Observer):
        counts = list[dict[str, int]]()

        def step(self, step: int, metrics: Mapping[str, object]) -> None:
            self.counts.append(taken(plan))

    run(open_run(plan, Path("runs/first")), observer=Second())
    # The running stage may delete each state as soon as there is a newer one.
    assert [set(count) for count in Second.counts[-4:]] == [{"warmup"}] * 4
    assert taken(plan) == {"warmup": 3, "main": 4}


@pytest.mark.parametrize("how", ["index", "journal", "gone", "moved"])
def test_what_is_damaged_or_gone_is_not_taken(how: str, first: Path) -> None:
    shutil.copytree(first / "runs", "runs")
    plan = edited({}, {"steps": "5"})
    whole = {"warmup": 3, "main": 4, "heldout": 2}
    assert taken(plan) == whole  # and there is an index now
    expected: dict[str, int] = {}
    if how == "index":
        Path("runs", INDEX_FILE).write_bytes(b"no index at all" * 1000)
        expected = whole
    elif how == "journal":
        Path("runs/first", JOURNAL_FILE).write_bytes(b"no journal")
    elif how == "gone":
        next(Path("runs/first").rglob("main-000004.safetensors")).unlink()
        expected = {"warmup": 3, "main": 2, "heldout": 1}
    else:
        Path("runs").rename("elsewhere")
    assert taken(plan) == taken(plan) == expected


def test_a_state_that_turns_out_to_be_damaged_is_computed_anew(first: Path) -> None:
    shutil.copytree(first / "runs", "runs")
    plan = edited({}, {"steps": "5"})
    for state in Path("runs/first").rglob("main-*.safetensors"):
        state.write_bytes(b"no state")
    Path("runs/first/rollouts.jsonl").unlink()
    path, summary, _ = done(plan, "second")
    assert summary.state == "finished"
    assert comparable(path) == comparable(undisturbed(plan))


def test_a_process_that_dies_before_it_has_taken_all_leaves_a_run_that_goes_on(
    first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(first / "runs", "runs")
    plan = edited({}, {"steps": "5"})
    for number, place in enumerate(["take_files", "append_blocks"]):
        path = Path("runs", f"killed{number}")
        found = find_reuse(plan)
        with monkeypatch.context() as patch, closing(RunFolder.create(path, plan)) as folder:
            patch.setattr(take, place, interrupt)
            with pytest.raises(KeyboardInterrupt):
                take.begin_with(folder, found)
        run(RunFolder.resume(path))
        assert_same(path, undisturbed(plan))


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_run_that_cannot_take_anything_leaves_no_folder(
    first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(first / "runs", "runs")
    monkeypatch.setattr(take, "append_blocks", interrupt)
    with pytest.raises(KeyboardInterrupt):
        open_run(edited({}, {}), Path("runs/second"))
    assert not Path("runs/second").exists()


def test_code_that_changes_while_a_run_goes_on_is_not_taken(tmp_path: Path) -> None:
    Path("adv.py").write_text(ADVANTAGE)
    plan = tiny(train(advantage='python("adv.py:centred")'))

    class Editor(Observer):
        def step(self, step: int, metrics: Mapping[str, object]) -> None:
            Path("adv.py").write_text(ADVANTAGE.replace("0.0", "0.5"))

    run(open_run(plan, Path("runs/first")), observer=Editor())
    Path("adv.py").write_text(ADVANTAGE)
    assert taken(plan) == {}
    done(plan, "second", fresh=True)
    assert taken(plan) == {"main": 4}
    Path("adv.py").write_text(f"# commented\n{ADVANTAGE}")
    assert taken(plan) == {"main": 4}
    Path("adv.py").write_text(ADVANTAGE.replace("0.0", "0.25"))
    assert taken(plan) == {}


def test_what_comes_of_code_that_changed_for_a_while_is_not_taken() -> None:
    Path("adv.py").write_text(ADVANTAGE)

    class Editor(Observer):
        def step(self, step: int, metrics: Mapping[str, object]) -> None:
            Path("adv.py").write_text(ADVANTAGE.replace("0.0", "0.5"))

        def waiting(self, what: str) -> None:
            if what.startswith("evaluating"):
                Path("adv.py").write_text(ADVANTAGE)

    at_end = block("eval", "heldout", {"model": "main", "env": "spell", "tasks": "2"})
    plan = tiny(train(advantage='python("adv.py:centred")', steps="1"), at_end)
    run(open_run(plan, Path("runs/first")), observer=Editor())
    assert journalled_keys(Path("runs/first")) == {}


def test_a_stage_of_other_data_that_a_sweep_goes_on_with_has_no_key() -> None:
    Path("rows.jsonl").write_text('{"prompt": "1", "reply": "1"}\n' * 2)
    fields = {"model": "policy", "data": 'rows("rows.jsonl")', "batch": "2", "steps": "1"}
    shared = block("sft", "warmup", {**fields, "optimizer": "adam(1e-2)"})
    plan = tiny(shared, train(model="warmup", steps="1"))
    path, _, _ = done(plan, "first")
    for name, known in (("same", {"warmup", "main"}), ("other", set())):
        if name == "other":
            Path("rows.jsonl").write_text('{"prompt": "1", "reply": "2"}\n' * 2)
        parts = tuple(whole_stages(plan, path, ["warmup"]))
        with closing(RunFolder.create(Path("runs", name), plan)) as folder:
            begin_with(folder, evolve(find_reuse(plan, fresh=True), parts=parts))
        assert journalled_keys(Path("runs", name)).keys() == known


@pytest.mark.parametrize("late", [True, False])
def test_evaluations_of_two_kinds_are_not_taken(late: bool) -> None:
    Path("rows.jsonl").write_text('{"prompt": "1", "answer": "1"}\n')
    graded = 'env sums = problems("rows.jsonl", question = "prompt", grader = exact)\n'
    fields = {"model": "main", "env": "sums", "tasks": "1", "first": "true"}
    plan = tiny(graded, train(steps="2"), block("eval", "heldout", fields))

    class Editor(Observer):
        def evaluated(self, *_: object) -> None:
            Path("rows.jsonl").write_text('{"prompt": "1", "answer": "2"}\n')

    begun = open_run(plan, Path("runs/first"))
    if late:
        run(begun, observer=Editor())
    else:
        run(begun, ("main", 1))
        Path("rows.jsonl").write_text('{"prompt": "1", "answer": "2"}\n')
        rlc.resume("runs/first")
    assert journalled_keys(Path("runs/first")).keys() == {"main"}


def test_a_rehearsal_tries_everything(first: Path) -> None:
    shutil.copytree(first / "runs", "runs")
    assert not find_reuse(rehearse(edited({}, {}))).parts


def test_a_shared_folder_is_named_by_an_option_or_a_variable(
    first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = edited({}, {})
    assert taken(plan) == {}
    assert len(find_reuse(plan, [first / "runs"]).parts) == 3
    monkeypatch.setenv("RLC_REUSE_FROM", str(first / "runs"))
    assert taken(plan) == {"warmup": 3, "main": 4, "heldout": 2}
    with pytest.raises(rlc.Error, match="there is no folder nowhere to take from"):
        open_run(plan, roots=[Path("nowhere")])
    assert not Path("runs").exists()


def test_scores_of_held_out_data_are_those_that_are_due() -> None:
    lines = [f'{{"prompt": "{n}", "reply": "{n}{n}"}}\n' for n in range(6)]
    Path("rows.jsonl").write_text("".join(lines))
    fields = {
        "model": "policy",
        "data": 'rows("rows.jsonl", split = first(50%))',
        "heldout": 'rows("rows.jsonl", split = last(50%))',
        "batch": "2",
        "optimizer": "adam(1e-2)",
        "save": "every(1)",
    }
    done(tiny(block("sft", "main", {**fields, "steps": "3"})), "first")
    longer = tiny(block("sft", "main", {**fields, "steps": "4"}))
    path, _, _ = done(longer, "longer")
    assert ["heldout/loss" in row for row in metrics(path)] == [False] * 3 + [True]
    left, fresh = comparable(path), comparable(undisturbed(longer))
    for row in (*left, *fresh):
        del row["tokens/prefill"]  # what the scores took there
    assert left == fresh
    # The last step has scores: the one that has none is run again.
    assert taken(tiny(block("sft", "main", {**fields, "steps": "2"}))) == {"main": 1}


def test_samples_are_played_once_whatever_learns_from_them() -> None:
    def plan(rate: str, more: str = "") -> Plan:
        how = f"keep = all, sampling = sample(max_tokens = 8){more}"
        data, optimizer = f"samples(policy, env = spell, n = 3, {how})", f"adam({rate})"
        fields = {"model": "policy", "data": data, "batch": "2", "steps": "2"}
        return tiny(block("sft", "main", {**fields, "optimizer": optimizer}))

    done(plan("1e-3"), "first")
    assert taken(plan("2e-3", ", tries = 3")) == {}
    path, _, notes = done(plan("2e-3"), "second")
    assert notes[0].startswith("reused: the examples of `main` from runs/first")
    with closing(Journal(path / JOURNAL_FILE, read_only=True)) as journal:
        assert journal.used("main", 0) == NOTHING
    assert_same(path, undisturbed(plan("2e-3")))
