"""Jobs of several stages: warm start, training that goes on from it, evaluation, resuming."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve
from run_support import (
    assert_same,
    block,
    comparable,
    copy_of,
    metrics,
    rollouts,
    run,
    run_new,
    tiny,
    train,
    undisturbed,
)

from rlc.data.errors import DataError
from rlc.explanation.job import written
from rlc.plan.records import Plan
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.runtime.summary import Observer

pytestmark = pytest.mark.plain

SFT = {
    "model": "policy",
    "data": "demonstrations(guess, n = 10)",
    "batch": "4",
    "steps": "4",
    "optimizer": "adam(1e-3)",
    "save": "every(2)",
}
EVAL = {
    "model": "main",
    "env": "guess",
    "tasks": "4",
    "samples": "2",
    "metrics": "[pass_at(1), pass_at(2), any_at(1), mean_reward()]",
}


def sft(**fields: str) -> str:
    return block("sft", "warmup", SFT | fields)


def evaluation(name: str = "heldout", **fields: str) -> str:
    return block("eval", name, EVAL | fields)


def results(path: Path, name: str = "heldout") -> dict[int, dict[str, float]]:
    """What an evaluation gave, by the step that it was done after."""
    return {
        record["step"]: {k: v for k, v in record.items() if k.startswith(f"eval/{name}/")}
        for record in metrics(path, name)
    }


@pytest.mark.engine
def test_demonstrations_of_an_oracle_are_imitated(tmp_path: Path) -> None:
    data = "demonstrations(spell, n = 40)"
    summary = run_new(tmp_path / "run", tiny(sft(data=data, steps="12", optimizer="adam(5e-3)")))
    (stage,) = summary.stages
    assert (stage.measure, summary.state) == ("loss", "finished")
    first, last = stage.window(last=False), stage.window(last=True)
    assert first is not None
    assert last is not None
    assert last < 0.6 * first


def test_only_what_the_model_is_to_write_is_taught(tmp_path: Path) -> None:
    run_new(tmp_path / "run", tiny(sft(data="demonstrations(spell, n = 3)", steps="1")))
    lines = (tmp_path / "run" / "examples-warmup.jsonl").read_text().splitlines()
    for line in lines:
        (sequence,) = json.loads(line)["sequences"]
        assert len(sequence["turns"]) == len(sequence["tokens"])
        taught = [turn >= 0 for turn in sequence["turns"]]
        assert taught == sorted(taught)  # the prompt, then the reply
        assert 0 < sum(taught) < len(taught)


def test_the_models_own_good_episodes_are_imitated(tmp_path: Path) -> None:
    data = "demonstrations(guess, n = 6, policy = model, min_reward = 1.0)"
    run_new(tmp_path / "run", tiny(sft(data=data, steps="1")))
    lines = (tmp_path / "run" / "examples-warmup.jsonl").read_text().splitlines()
    assert len(lines) == 6
    assert all(json.loads(line)["reward"] >= 1.0 for line in lines)


def test_too_few_good_episodes_is_a_clear_end(tmp_path: Path) -> None:
    data = "demonstrations(spell, n = 2, policy = model, min_reward = 5.0)"
    with pytest.raises(RunError, match="only 0 of 40 episodes of `spell` reached the reward of 5"):
        run_new(tmp_path / "run", tiny(sft(data=data, steps="1")))


def write_jsonl(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_csv(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path: Path, rows: list[dict[str, str]]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)


@pytest.mark.parametrize(
    ("suffix", "write"),
    [("jsonl", write_jsonl), ("csv", write_csv), ("parquet", write_parquet)],
)
def test_rows_of_a_file_are_imitated_and_not_needed_again(
    tmp_path: Path, suffix: str, write: Callable[[Path, list[dict[str, str]]], None]
) -> None:
    rows = [{"question": f"What is {n} + {n}?", "said": f"\\boxed{{{2 * n}}}"} for n in range(5)]
    path = tmp_path / f"rows.{suffix}"
    write(path, rows)
    data = f'rows("{path}", prompt = "question", reply = "said")'
    job = tiny(sft(data=data, steps="4", optimizer="adam(3e-3)"))
    first, *_, last = metrics(undisturbed(job))
    assert last["loss/mean"] < first["loss/mean"]
    run_new(tmp_path / "parts", job, stop_after=("warmup", 2))
    path.unlink()
    run(RunFolder.resume(tmp_path / "parts"))
    assert comparable(tmp_path / "parts") == comparable(undisturbed(job))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"prompt": "a", "reply": "b"}\n{"prompt": "a"}\n',
            ":2: the row has no field `reply`; it has `prompt`",
        ),
        ('{"prompt": "a", "reply": 7}\n', ":1: the field `reply` holds a number, and not text"),
        ('{"prompt": "a", "reply": "b"}\nnot json\n', ":2:1: the line is not JSON"),
        ("[1, 2]\n", ":1: the row has no named fields"),
        ("", "has no rows"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        run_new(tmp_path / "run", tiny(sft(data=f'rows("{path}")')))


def chats(path: Path, *lengths: int) -> str:
    """A file of chats of two turns, the last reply of so many words each; its path."""
    rows = [
        {
            "messages": [
                {"role": "user", "content": "Say hello."},
                {"role": "assistant", "content": "hello"},
                {"role": "user", "content": f"Again, {length} times."},
                {"role": "assistant", "content": " ".join(["hello"] * length)},
            ]
        }
        for length in lengths
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.engine
def test_chats_of_a_file_are_imitated(tmp_path: Path) -> None:
    data = f'chats("{chats(tmp_path / "chats.jsonl", 1, 2, 3)}", train_on = last)'
    run_new(tmp_path / "run", tiny(sft(data=data, batch="3", steps="6", optimizer="adam(5e-3)")))
    first, *_, last = metrics(tmp_path / "run")
    assert last["loss/mean"] < 0.7 * first["loss/mean"]
    for line in (tmp_path / "run" / "examples-warmup.jsonl").read_text().splitlines():
        (sequence,) = json.loads(line)["sequences"]
        taught = [turn >= 0 for turn in sequence["turns"]]
        assert taught == sorted(taught)  # the last reply alone


def test_rows_that_are_too_long_are_counted(tmp_path: Path) -> None:
    file = chats(tmp_path / "chats.jsonl", 1, 400, 2, 300)
    data = f'chats("{file}", max_tokens = 200)'
    what = r"2 of 4 rows of .* have more than 200 tokens; the first is .*chats.jsonl:2 with"
    with pytest.raises(RunError, match=what) as caught:
        run_new(tmp_path / "stopped", tiny(sft(data=data)))
    assert caught.value.hint == "`too_long = drop` leaves such rows out"
    notes = Notes()
    dropped = tiny(sft(data=data.replace(")", ", too_long = drop)"), batch="2", steps="1"))
    run_new(tmp_path / "dropped", dropped, observer=notes)
    assert any("left out, 2 of 4 rows" in text for text in notes.texts)
    assert len((tmp_path / "dropped" / "examples-warmup.jsonl").read_text().splitlines()) == 2


def test_no_stage_pays_for_the_rows_of_a_later_one(tmp_path: Path) -> None:
    data = f'chats("{chats(tmp_path / "chats.jsonl", 1, 400)}", max_tokens = 200)'
    with pytest.raises(RunError, match="1 of 2 rows"):
        run_new(tmp_path / "run", tiny(train(steps="1"), sft(model="main", data=data)))
    assert not metrics(tmp_path / "run")


def test_a_split_of_the_rows_is_imitated(tmp_path: Path) -> None:
    file = chats(tmp_path / "chats.jsonl", *range(1, 11))
    for split, count in (("first(80%)", 8), ("last(20%)", 2)):
        folder = tmp_path / split
        run_new(folder, tiny(sft(data=f'chats("{file}", split = {split})', batch="2", steps="1")))
        assert len((folder / "examples-warmup.jsonl").read_text().splitlines()) == count


class Notes(Observer):
    def __init__(self) -> None:
        self.texts = list[str]()

    def note(self, text: str) -> None:
        self.texts.append(text)


def test_each_epoch_takes_every_example_once_in_another_order(tmp_path: Path) -> None:
    data = "demonstrations(spell, n = 6)"
    job = tiny(sft(data=data, batch="2", steps="9", optimizer="adam(0.0)"))
    run_new(tmp_path / "run", job)
    tokens = [record["examples/tokens"] for record in metrics(tmp_path / "run")]
    epochs = [tokens[0:3], tokens[3:6], tokens[6:9]]
    assert len({sum(epoch) for epoch in epochs}) == 1
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.engine
def test_training_goes_on_from_the_weights_of_the_stage_before(tmp_path: Path) -> None:
    warm = tiny(
        sft(data="demonstrations(spell, n = 40)", steps="15", optimizer="adam(5e-3)"),
        train(model="warmup", env="spell", steps="1", batch="groups(8, group_size = 4)"),
    )
    cold = tiny(train(env="spell", steps="1", batch="groups(8, group_size = 4)"))
    run_new(tmp_path / "warm", warm)
    run_new(tmp_path / "cold", cold)
    first = {name: metrics(tmp_path / name, "main")[0] for name in ("warm", "cold")}
    assert first["warm"]["reward/mean"] > first["cold"]["reward/mean"] + 0.1


def test_training_starts_from_a_saved_state(tmp_path: Path) -> None:
    before = copy_of(undisturbed(tiny(train())), tmp_path / "run")
    saved = str(run(RunFolder.resume(before)).stages[0].checkpoint)
    folder = RunFolder.create(tmp_path / "next", job_from(saved))
    (tmp_path / "next" / "checkpoints").symlink_to(before / "checkpoints")
    run(folder)
    fresh, went_on = metrics(before)[0], metrics(tmp_path / "next")[0]
    assert fresh["reward/mean"] != went_on["reward/mean"]
    assert abs(went_on["kl/sample_train"]) < 1e-4


def job_from(weights: str) -> Plan:
    job = tiny(train(steps="1"))
    stage = job.stages[0]
    return evolve(job, stages=(evolve(stage, model=evolve(stage.model, weights=weights)),))


def test_an_evaluation_is_done_when_the_recipe_says(tmp_path: Path) -> None:
    job = tiny(
        train(steps="5"),
        evaluation(every="2", first="true"),
        evaluation("end"),
        evaluation("untrained", model="policy", sampling="sample(max_tokens = 12)"),
    )
    summary = run_new(tmp_path / "run", job)
    assert list(results(tmp_path / "run")) == [0, 2, 4, 5]
    assert list(results(tmp_path / "run", "end")) == [5]
    assert list(results(tmp_path / "run", "untrained")) == [0]
    done = [(e.name, e.step) for e in summary.evaluations]
    assert done == [
        ("heldout", 0),
        ("heldout", 2),
        ("heldout", 4),
        ("heldout", 5),
        ("end", 5),
        ("untrained", 0),
    ]


FROZEN = tiny(train(optimizer="adam(0.0)", steps="2"), evaluation(every="1", first="true"))


def test_every_evaluation_has_the_same_tasks() -> None:
    digests: dict[int, list[str]] = {}
    for record in rollouts(undisturbed(FROZEN), "heldout"):
        digests.setdefault(record["step"], []).append(record["digest"])
    assert list(digests) == [0, 1, 2]
    assert digests[0] == digests[1] == digests[2]
    assert len(digests[0]) == 4 * 2


def test_an_evaluation_leaves_the_training_alone(tmp_path: Path) -> None:
    run_new(tmp_path / "with", tiny(train(), evaluation(every="1", first="true")))
    with_ones = [r for r in comparable(tmp_path / "with") if r["stage"] == "main"]
    assert with_ones == comparable(undisturbed(tiny(train())))


def test_without_a_learning_rate_nothing_changes() -> None:
    one, two, three = results(undisturbed(FROZEN)).values()
    assert one == two == three


def test_the_metrics_of_an_evaluation_are_those_of_its_episodes() -> None:
    path = undisturbed(tiny(train(steps="1"), evaluation()))
    played = rollouts(path, "heldout")
    solved = [record["reward"] >= 1 for record in played]
    pairs = list(zip(solved[::2], solved[1::2], strict=True))
    (found,) = results(path).values()
    assert found["eval/heldout/pass@1"] == pytest.approx(sum(solved) / 8)
    assert found["eval/heldout/pass@2"] == pytest.approx(sum(map(any, pairs)) / 4)
    assert found["eval/heldout/any@1"] == pytest.approx(sum(a for a, _ in pairs) / 4)
    rewards = [record["reward"] for record in played]
    assert found["eval/heldout/mean_reward"] == pytest.approx(sum(rewards) / 8)


WHOLE_JOB = tiny(
    sft(steps="3"),
    train(model="warmup", steps="3"),
    evaluation(every="1", first="true"),
    evaluation("after_warmup", model="warmup", sampling="sample(max_tokens = 12)"),
)


@pytest.mark.parametrize("stop", [("warmup", 1), ("warmup", 3), ("main", 2), ("main", 3)])
def test_a_job_of_several_stages_is_resumed_to_the_same_end(
    tmp_path: Path, stop: tuple[str, int]
) -> None:
    assert run_new(tmp_path / "run", WHOLE_JOB, stop_after=stop).state == "interrupted"
    assert run(RunFolder.resume(tmp_path / "run")).state == "finished"
    assert_same(tmp_path / "run", undisturbed(WHOLE_JOB))


def test_a_killed_evaluation_is_done_again(tmp_path: Path) -> None:
    """The journal knows of a step that its evaluation did not follow any more."""
    run_new(tmp_path / "run", WHOLE_JOB, stop_after=("main", 2))
    folder = RunFolder.resume(tmp_path / "run")
    folder.journal.rewind("heldout", 1)
    run(folder)
    assert comparable(tmp_path / "run") == comparable(undisturbed(WHOLE_JOB))


def test_stages_that_are_done_are_not_run_again(tmp_path: Path) -> None:
    path = copy_of(undisturbed(WHOLE_JOB), tmp_path / "run")
    before = (path / "metrics.jsonl").read_text()
    again = run(RunFolder.resume(path))
    assert (path / "metrics.jsonl").read_text() == before
    assert [len(stage.values) for stage in again.stages] == [3, 3]
    assert len(again.evaluations) == 5


def test_explain_names_every_file_of_a_run(tmp_path: Path) -> None:
    demonstrations = sft(data="demonstrations(spell, n = 3)", steps="1")
    job = tiny(demonstrations, train(model="warmup", steps="1"))
    run_new(tmp_path / "run", job)
    said = " ".join(written(job))
    left = {path.name for path in (tmp_path / "run").iterdir() if not path.name.startswith(".")}
    assert not {name for name in left if name not in said}


def test_an_evaluation_that_is_done_is_not_paid_for_again(tmp_path: Path) -> None:
    own = {"model": "policy", "sampling": "sample(max_tokens = 8)"}
    job, path = tiny(evaluation("before", **own) + train(steps="2")), tmp_path / "run"
    run_new(path, job, ("main", 1))
    before = [record for record in metrics(path) if record["stage"] == "before"]
    run(RunFolder.resume(path))
    assert [record for record in metrics(path) if record["stage"] == "before"] == before
