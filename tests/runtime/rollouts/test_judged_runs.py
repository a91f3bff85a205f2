"""Runs whose rewards come from judges: on the engine, behind an endpoint, and where they fail."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from http_testing import running_server
from run_support import (
    assert_same,
    block,
    compiled,
    copy_of,
    metrics,
    rollouts,
    run,
    run_new,
    train,
    undisturbed,
)
from scripted_judge import Answer, ScriptedJudge, counts, judged_text, scripted_judge

from rlc.envs import responders as endpoints
from rlc.plan.records import Plan
from rlc.runtime.job import Job
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.runtime.start import require_runnable, run_plan
from rlc.runtime.summary import Observer
from rlc.service.hosted.connect import connect_service

pytestmark = [pytest.mark.plain, pytest.mark.server]

KEY = "sk-secret-of-the-judge"
MODEL = 'model policy { base = "tiny" lora_rank = 4 }\n'


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "FIRST_PAUSE", 0.0)


def job(where: Path, judge: str, env: str, *more: str, **fields: str) -> Plan:
    """A stage whose environment ``essays`` is made of two prompts."""
    path = where / "prompts.jsonl"
    if not path.exists():
        path.write_text('{"prompt": "say ee"}\n{"prompt": "say oo"}\n', encoding="utf-8")
    stage = {"env": "essays", "batch": "groups(2, group_size = 3)", "steps": "2"} | fields
    text = f'{MODEL}judge likes = {judge}\nenv essays = rows("{path}") |> {env}\n'
    return compiled(text + train(**stage) + "".join(more))


def at(judge: ScriptedJudge, **more: str) -> str:
    """A judge behind that endpoint."""
    given = "".join(f", {name} = {value}" for name, value in more.items())
    return (
        f'rubric("Many e.", model = endpoint("{judge.url}", model = "{judge.model}", '
        f"prompt_price = $1, reply_price = $10), scale = [0, 10]{given})"
    )


def test_a_judge_behind_an_endpoint_rewards_each_reply(tmp_path: Path) -> None:
    with scripted_judge(counts("e")) as judge:
        run_new(tmp_path / "run", job(tmp_path, at(judge), "judged(likes)"))
    records = rollouts(tmp_path / "run")
    assert len(records) == 12
    for record in records:
        (turn,) = record["turns"]
        share = round(10 * turn["action"].count("e") / max(len(turn["action"]), 1), 3) / 10
        assert record["reward"] == turn["metrics"]["likes"] == pytest.approx(share)
        (verdict,) = turn["verdicts"]
        assert verdict["judge"] == "likes"
        assert verdict["score"] == pytest.approx(share)
        assert re.fullmatch(r"\d+\.", verdict["reason"])
    different = {(r["turns"][0]["observation"], r["turns"][0]["action"]) for r in records}
    assert len(judge.asked) == len(different)  # the same reply is judged once
    assert {body["temperature"] for body in judge.asked} == {0.0}
    folder = RunFolder.resume(tmp_path / "run")
    usd = folder.journal.spent_usd()
    folder.close()
    assert usd == pytest.approx(len(judge.asked) * (100 * 1 + 10 * 10) / 1e6)


def test_a_run_that_is_stopped_asks_nothing_twice(tmp_path: Path) -> None:
    with scripted_judge(counts("e")) as judge:
        plan = job(tmp_path, at(judge), "judged(likes)")
        whole = undisturbed(plan)
        asked = len(judge.asked)
        run_new(tmp_path / "run", plan, stop_after=("main", 1))
        run(RunFolder.resume(tmp_path / "run"))
        assert len(judge.asked) == 2 * asked
        assert [strip(r) for r in rollouts(tmp_path / "run")] == [strip(r) for r in rollouts(whole)]
        again = copy_of(tmp_path / "run", tmp_path / "again")
        folder = RunFolder.resume(again)
        folder.journal.rewind("main", 0)
        for step in folder.journal.checkpoints("main"):
            folder.journal.drop_checkpoint("main", step)
        folder.close()
        run(RunFolder.resume(again))
        assert len(judge.asked) == 2 * asked  # every answer was there


def strip(record: dict[str, Any]) -> dict[str, Any]:
    """A rollout without the number of the question, which the server counts."""
    for turn in record["turns"]:
        for verdict in turn["verdicts"]:
            verdict["reason"] = re.sub(r"\d+", "", verdict["reason"])
    return record


def no_verdict_at_first(body: dict[str, Any], number: int) -> Answer:
    return counts("e")(body, number) if body["temperature"] > 0 else "I like it."


def test_a_judge_without_a_verdict_is_asked_again_and_warmer(tmp_path: Path) -> None:
    with scripted_judge(no_verdict_at_first) as judge:
        run_new(tmp_path / "run", job(tmp_path, at(judge), "judged(likes)", steps="1"))
    warm = [body for body in judge.asked if body["temperature"] > 0]
    assert len(judge.asked) == 2 * len(warm)
    assert len({body["seed"] for body in judge.asked}) == len(judge.asked)
    assert all(record["error"] is None for record in rollouts(tmp_path / "run"))


def test_no_verdict_is_a_failure_and_never_a_reward(tmp_path: Path) -> None:
    def script(body: dict[str, Any], number: int) -> str:
        good = len(judged_text(body)[0]) % 2
        return "<score>5</score>" if good else "<score>eleven</score> <score>99</score>"

    with scripted_judge(script) as judge:
        run_new(tmp_path / "run", job(tmp_path, at(judge, attempts="2"), "judged(likes)"))
    failed = [record for record in rollouts(tmp_path / "run") if record["error"]]
    assert failed
    for record in failed:
        assert record["cause"] == "judge"
        assert "gave no verdict in 2 attempts" in record["error"]
        assert record["reward"] == 0
        assert record["turns"] == []


@pytest.mark.parametrize("trouble", [429, 503, 408])
def test_an_endpoint_that_is_busy_is_asked_again(trouble: int, tmp_path: Path) -> None:
    def script(body: dict[str, Any], number: int) -> Answer:
        if number % 2:
            return (trouble, {"retry-after": "0"}, "busy")
        return "<score>5</score>"

    with scripted_judge(script) as judge:
        run_new(tmp_path / "run", job(tmp_path, at(judge, concurrency="1"), "judged(likes)"))
    assert judge.most == 1
    assert {record["reward"] for record in rollouts(tmp_path / "run")} == {0.5}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((400, {}, "no such parameter"), "refuses: 400 no such parameter"),
        ((500, {}, "oh"), "did not answer in 6 tries; the last: 500 oh"),
        ((200, {}, "no json"), "answered no JSON"),
        ((200, {}, '{"choices": []}'), "answered in another form"),
    ],
)
def test_an_endpoint_that_fails_is_what_on_error_is_for(
    answer: Answer, says: str, tmp_path: Path
) -> None:
    with scripted_judge(lambda *_: answer) as judge:
        plan = job(tmp_path, at(judge), "judged(likes)", steps="1", on_error="stop")
        with pytest.raises(RunError, match=re.escape(says)):
            run_new(tmp_path / "run", plan)


def test_a_newer_name_of_max_tokens_is_used_where_it_is_asked_for(tmp_path: Path) -> None:
    def script(body: dict[str, Any], number: int) -> Answer:
        if "max_tokens" in body:
            return (400, {}, "use max_completion_tokens")
        return "<score>5</score>"

    with scripted_judge(script) as judge:
        run_new(tmp_path / "run", job(tmp_path, at(judge), "judged(likes)", steps="1"))
    assert any(body.get("max_completion_tokens") == 512 for body in judge.asked)


def test_the_key_is_sent_and_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_judge(counts("e"), key=KEY) as judge:
        plan = job(
            tmp_path,
            f'rubric("Many e.", model = endpoint("{judge.url}", model = "judge-1", '
            'key = "JUDGE_KEY"), scale = [0, 10])',
            "judged(likes)",
            steps="1",
            on_error="stop",
        )
        monkeypatch.delenv("JUDGE_KEY", raising=False)
        with pytest.raises(RunError, match="needs JUDGE_KEY in the environment"):
            require_runnable(plan)
        monkeypatch.setenv("JUDGE_KEY", "sk-wrong")
        with pytest.raises(RunError, match="refuses the key in JUDGE_KEY"):
            require_runnable(plan)
        with pytest.raises(RunError) as raised:
            run_new(tmp_path / "wrong", plan)
        assert "sk-wrong" not in str(raised.value)
        monkeypatch.setenv("JUDGE_KEY", KEY)
        require_runnable(plan)
        run_new(tmp_path / "run", plan)
    assert set(judge.keys) == {"Bearer sk-wrong", f"Bearer {KEY}", None} - {None}
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file():
            assert KEY.encode() not in file.read_bytes(), file
    for file in (tmp_path / "wrong").rglob("*"):
        if file.is_file():
            assert b"sk-wrong" not in file.read_bytes(), file


def test_what_cannot_be_reached_is_said_before_anything_is_paid(tmp_path: Path) -> None:
    with scripted_judge(counts("e")) as judge:
        other = job(tmp_path, at(judge).replace("judge-1", "judge-2"), "judged(likes)")
        with pytest.raises(RunError, match="has no model `judge-2`"):
            require_runnable(other)
        plan = job(tmp_path, at(judge), "judged(likes)")
        require_runnable(plan)
    with pytest.raises(RunError, match="cannot be reached"):
        run_plan(plan, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Comparisons


def ranks(body: dict[str, Any], number: int) -> str:
    replies = judged_text(body)
    best = sorted(range(len(replies)), key=lambda at: -replies[at].count("e"))
    return f"by e. <ranking>{' > '.join(str(at + 1) for at in best)}</ranking>"


def pairs(body: dict[str, Any], number: int) -> str:
    first, second = (reply.count("e") for reply in judged_text(body))
    word = "A" if first > second else "B" if second > first else "tie"
    return f"by e. <better>{word}</better>"


def prefers_the_first(body: dict[str, Any], number: int) -> str:
    return "<better>A</better>"


def groups_of(path: Path) -> list[list[tuple[str, float]]]:
    found: dict[tuple[int, int], list[tuple[str, float]]] = {}
    for record in rollouts(path):
        said = record["turns"][0]["action"]
        found.setdefault((record["step"], record["task"]), []).append((said, record["reward"]))
    return list(found.values())


def test_a_group_is_ranked_in_one_question(tmp_path: Path) -> None:
    with scripted_judge(ranks) as judge:
        run_new(tmp_path / "run", job(tmp_path, at(judge), "compared(likes)"))
    groups = groups_of(tmp_path / "run")
    assert len(judge.asked) <= len(groups) == 4
    for group in groups:
        assert len(group) == 3
        for said, reward in group:
            assert all(reward == other for text, other in group if text == said)
            for text, other in group:
                if said.count("e") > text.count("e"):
                    assert reward > other
        if len({said for said, _ in group}) == 3:
            assert sorted(reward for _, reward in group) == [0, 0.5, 1]


def test_a_reward_is_shaped_by_what_the_judge_has_said_of_all(tmp_path: Path) -> None:
    shaped = "compared(likes) |> reward(total - max(likes, over = group))"
    with scripted_judge(ranks) as judge:
        run_new(tmp_path / "run", job(tmp_path, at(judge), shaped, steps="1"))
    records = rollouts(tmp_path / "run")
    for task in {record["task"] for record in records}:
        group = [record for record in records if record["task"] == task]
        best = max(record["turns"][-1]["metrics"]["likes"] for record in group)
        assert [one["reward"] for one in group] == [one["raw_reward"] - best for one in group]


def test_pairs_are_shown_in_both_orders(tmp_path: Path) -> None:
    with scripted_judge(pairs) as judge:
        plan = job(tmp_path, at(judge), "compared(likes, by = pairwise)")
        run_new(tmp_path / "run", plan)
    asked = [tuple(judged_text(body)) for body in judge.asked]
    assert {(second, first) for first, second in asked} == set(asked)
    for group in groups_of(tmp_path / "run"):
        different = {said for said, _ in group}
        for said, reward in group:
            if len(different) == 1:
                assert reward == 0.5
                continue
            beaten = [said.count("e") - other.count("e") for other in different - {said}]
            won = sum(1.0 if by > 0 else 0.5 if by == 0 else 0.0 for by in beaten)
            assert reward == pytest.approx(won / len(beaten))


def test_a_judge_that_prefers_the_first_decides_nothing(tmp_path: Path) -> None:
    with scripted_judge(prefers_the_first) as judge:
        plan = job(tmp_path, at(judge), "compared(likes, by = pairwise)", steps="1")
        run_new(tmp_path / "run", plan)
    assert {reward for group in groups_of(tmp_path / "run") for _, reward in group} == {0.5}


def test_an_order_of_replies_is_drawn_and_repeats(tmp_path: Path) -> None:
    with scripted_judge(ranks) as judge:
        plan = job(tmp_path, at(judge), "compared(likes)")
        run_new(tmp_path / "one", plan)
        first, judge.asked[:] = list(judge.asked), []
        run_new(tmp_path / "two", plan)
    key = lambda body: json.dumps(body, sort_keys=True)  # noqa: E731
    assert sorted(map(key, first)) == sorted(map(key, judge.asked))
    assert_same(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("then", ["drop", "penalise(-1)"])
def test_a_comparison_that_fails_takes_its_group_along(then: str, tmp_path: Path) -> None:
    def script(body: dict[str, Any], number: int) -> str:
        return ranks(body, number) if "say ee" in judged_text(body, "task")[0] else "no idea"

    with scripted_judge(script) as judge:
        plan = job(
            tmp_path, at(judge, attempts="1"), "compared(likes)", on_error=f"retry(1) then {then}"
        )
        run_new(tmp_path / "run", plan)
    for record in rollouts(tmp_path / "run"):
        if record["about"]["place"].endswith(":1"):
            assert record["error"] is None
        else:
            assert "gave no verdict" in record["error"]
            assert record["reward"] == (0 if then == "drop" else -1)


def test_the_others_are_compared_where_one_fails(tmp_path: Path) -> None:
    """Two judges: the first scores each alone, and fails for some."""

    def script(body: dict[str, Any], number: int) -> str:
        if "Compare" in body["messages"][-1]["content"]:
            return ranks(body, number)
        return "none" if len(judged_text(body)[0]) % 2 else "<score>0</score>"

    with scripted_judge(script) as judge:
        plan = job(
            tmp_path,
            at(judge, attempts="1"),
            "judged({ alone = likes }) |> compared(likes)",
            batch="groups(3, group_size = 6)",
            on_error="drop",
        )
        run_new(tmp_path / "run", plan)
    records = rollouts(tmp_path / "run")
    failed = [record for record in records if record["error"]]
    assert 0 < len(failed) < len(records)
    played = [record for record in records if not record["error"]]
    assert all(set(r["turns"][0]["metrics"]) == {"alone", "likes"} for r in played)
    sizes = {len(judged_text(b)) for b in judge.asked if "Compare" in b["messages"][-1]["content"]}
    assert min(sizes) < 6


@pytest.mark.parametrize(
    "overlap", ["streamed(minibatches = 2)", "asynchronous(max_staleness = 1)"]
)
def test_comparisons_go_with_every_overlap(overlap: str, tmp_path: Path) -> None:
    with scripted_judge(ranks) as judge:
        plan = job(tmp_path, at(judge), "compared(likes)", overlap=overlap, loss="ppo()")
        run_new(tmp_path / "run", plan)
    assert all(record["error"] is None for record in rollouts(tmp_path / "run"))


@pytest.mark.engine
def test_the_samples_of_an_evaluation_are_compared(tmp_path: Path) -> None:
    held = block(
        "eval",
        "held",
        {
            "model": "main",
            "env": "essays",
            "tasks": "2",
            "samples": "4",
            "metrics": "[mean_reward()]",
        },
    )
    with scripted_judge(ranks) as judge:
        run_new(tmp_path / "run", job(tmp_path, at(judge), "compared(likes)", held, steps="1"))
    records = [record for record in rollouts(tmp_path / "run") if record["stage"] == "held"]
    assert len(records) == 8
    assert metrics(tmp_path / "run", "held")[0]["eval/held/mean_reward"] == pytest.approx(0.5)


@pytest.mark.engine
def test_the_projects_own_server_is_an_endpoint(tmp_path: Path) -> None:
    """The tiny model answers there, and is no judge."""
    with running_server(tmp_path / "served") as url:
        model = f'endpoint("{url}/v1", model = "tiny")'
        judge = f'rubric("Many e.", model = {model}, attempts = 2, max_tokens = 24)'
        plan = job(tmp_path, judge, "judged(likes)", steps="1", on_error="stop")
        require_runnable(plan)
        with pytest.raises(RunError, match="gave no verdict in 2 attempts"):
            run_new(tmp_path / "run", plan)
    folder = RunFolder.resume(tmp_path / "run")
    assert folder.journal.used("main").tokens > 0
    folder.close()


# Judges on the engine

TAUGHT = """\
model policy {{ base = "tiny" lora_rank = 8 }}
sft grader {{
  model = policy  data = rows("{folder}/verdicts.jsonl")  batch = 8
  optimizer = adam(1e-2)  steps = 60
}}
judge likes = rubric("x", model = grader, prompt = "{folder}/judge.j2", max_tokens = 24)
env essays = rows("{folder}/prompts.jsonl") |> judged(likes)
"""


def taught(where: Path) -> Plan:
    """A judge that a stage has taught to say `<score>4</score>`, whatever it is shown."""
    (where / "judge.j2").write_text("{{ rubric }}{{ task }}{{ reply }}", encoding="utf-8")
    (where / "prompts.jsonl").write_text('{"prompt": "a"}\n', encoding="utf-8")
    rows = [{"prompt": f"xa{end}", "reply": "<score>4</score>"} for end in ("b", "hallo", "e", "")]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (where / "verdicts.jsonl").write_text(lines, encoding="utf-8")
    stage = {"env": "essays", "batch": "groups(2, group_size = 3)", "steps": "2"}
    return compiled(TAUGHT.format(folder=where) + train(**stage))


@pytest.mark.engine
def test_a_stage_of_the_same_job_judges_and_repeats_to_the_bit(tmp_path: Path) -> None:
    plan = taught(tmp_path)
    run_new(tmp_path / "one", plan)
    records = rollouts(tmp_path / "one", "main")
    assert {record["reward"] for record in records if not record["error"]} == {3 / 9}
    run_new(tmp_path / "two", plan, stop_after=("main", 1))
    run(RunFolder.resume(tmp_path / "two"))
    assert_same(tmp_path / "one", tmp_path / "two")


@pytest.mark.engine
@pytest.mark.slow
def test_a_judge_teaches(tmp_path: Path) -> None:
    with scripted_judge(counts("e")) as judge:
        plan = job(
            tmp_path,
            at(judge),
            "judged(likes)",
            batch="groups(2, group_size = 12)",
            sampling="sample(max_tokens = 12)",
            optimizer="adam(6e-3)",
            steps="14",
        )
        run_new(tmp_path / "run", plan)
    rewards = [record["reward/mean"] for record in metrics(tmp_path / "run", "main")]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.3


def test_a_run_that_is_cancelled_in_a_question_goes_on(tmp_path: Path) -> None:
    """Ctrl-C for the second time."""
    with scripted_judge(counts("e")) as judge:
        plan = job(tmp_path, at(judge), "judged(likes)")
        folder = RunFolder.create(tmp_path / "run", plan)

        async def work() -> None:
            service = connect_service(plan, tmp_path / "run/checkpoints")
            task = asyncio.ensure_future(Job(folder, service, Observer()).run())
            loop = asyncio.get_running_loop()

            def script(body: dict[str, Any], number: int) -> Answer:
                loop.call_soon_threadsafe(task.cancel)
                return counts("e")(body, number)

            judge.script = script
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 60)

        asyncio.run(work())
        folder.close()
        judge.script = counts("e")
        run(RunFolder.resume(tmp_path / "run"))
        assert [strip(r) for r in rollouts(tmp_path / "run")] == [
            strip(r) for r in rollouts(undisturbed(plan))
        ]
