"""Agents in whole runs on the embedded engine: what their requests become, how they are rewarded,
and what becomes of one that fails."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import agent_programs
import pytest
from paths import RECIPES
from run_support import assert_resumes, assert_same, compiled, metrics, rollouts, run_new, train

from rlc.plan.records import Plan
from rlc.pricing.cost import plan_cost
from rlc.runtime.records import RunError, read_failures

pytestmark = [pytest.mark.plain, pytest.mark.server]

PROMPTS = ("Spell this word backward: sun", "Say e.", "Another.")
EACH_ONCE = {"batch": "groups(3, group_size = 1)", "advantage": "reinforce()"}
PROGRAM = str(Path(agent_programs.__file__))


@pytest.fixture(autouse=True)
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    agent_programs.FIRST_TRIES.clear()
    rows = ({"prompt": prompt, "answer": "e"} for prompt in PROMPTS)
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def job(agent: str, *more: str, wrapped: str = "", **fields: str) -> Plan:
    """A job whose environment ``shop`` is an agent."""
    text = (
        'model policy { base = "tiny" lora_rank = 4 }\n'
        f'env shop = agent({agent}, tasks = rows("rows.jsonl")){wrapped}\n'
    )
    own = {"env": "shop", "batch": "groups(2, group_size = 3)", "steps": "1", "save": "every(1)"}
    return compiled(text + train(**own | fields) + "".join(more))


def python(name: str, *more: str) -> str:
    return ", ".join([f'"agent_programs:{name}"', *more])


def command(how: str, *more: str) -> str:
    words = json.dumps([sys.executable, PROGRAM, how])
    return ", ".join([f"command = {words}", *more])


def played(path: Path, plan: Plan) -> list[dict[str, Any]]:
    run_new(path / "run", plan)
    return rollouts(path / "run")


def test_requests_of_one_conversation_are_the_turns_of_one_sequence(tmp_path: Path) -> None:
    for rollout in played(tmp_path, job(python("two_turns"))):
        first, second = rollout["turns"]
        assert (first["observation"], second["observation"]) == (
            rollout["about"]["fields"].get("prompt", first["observation"]),
            "Another one.",
        )
        said = first["action"] + second["action"]
        assert rollout["reward"] == pytest.approx(agent_programs.share(said))
        assert second["metrics"] == {"conversations": 1.0, "rewritten": 0.0}
        assert second["prompt_tokens"] > first["prompt_tokens"] + first["tokens"]
        assert rollout["ended"] == "done"
    (record,) = metrics(tmp_path / "run")
    assert record["env/shop/rewritten"] == 0
    assert record["optim/datums"] <= 6  # one an episode
    assert record["kl/sample_train_k2"] < 1e-10  # the trainer's logprobs are those of the endpoint


def test_an_async_agent_may_give_numbers_beside_its_reward(tmp_path: Path) -> None:
    for rollout in played(tmp_path, job(python("awaited"))):
        (turn,) = rollout["turns"]
        assert turn["metrics"]["asked"] == 1
        assert rollout["reward"] == pytest.approx(agent_programs.share(turn["action"]))


def test_an_agent_that_asks_without_a_client_is_given_the_same_turns(tmp_path: Path) -> None:
    agent_programs.SAID.clear()
    inside = job(python("two_turns_inside"))
    run_new(tmp_path / "inside", inside)
    run_new(tmp_path / "served", job(python("two_turns")))
    assert_same(tmp_path / "inside", tmp_path / "served")
    assert len(agent_programs.SAID) == 2 * 6


def test_a_workflow_of_rllm_is_an_agent_that_rewards_itself(tmp_path: Path) -> None:
    grader = 'grader = grade_with("agent_programs:shared")'
    plan = job(python("TwoSolvers", "args = { n_solutions = 2 }", grader))
    for rollout in played(tmp_path, plan):
        values = [agent_programs.share(turn["action"]) for turn in rollout["turns"]]
        numbers = rollout["turns"][-1]["metrics"]
        assert (numbers["conversations"], numbers["said"], numbers["is_correct"]) == (3, 2, 0)
        assert numbers["reward_solver"] == pytest.approx(sum(values[:2]) / 2)
        assert numbers["reward_judge"] == pytest.approx(values[2])
        assert rollout["reward"] == pytest.approx(sum(values) / 3)


def test_a_workflow_may_end_early_with_what_it_has_done(tmp_path: Path) -> None:
    own = 'args = { reward_function = "agent_programs:rewarded" }'
    for rollout in played(tmp_path, job(python("Endless", own))):
        assert (len(rollout["turns"]), rollout["reward"]) == (1, 0.5)
        assert rollout["turns"][0]["metrics"]["is_correct"] == 1


def test_an_agent_without_a_client_may_not_go_on_beyond_a_limit(tmp_path: Path) -> None:
    few = " |> rollouts(max_turns = 2)"
    for rollout in played(tmp_path, job(python("stubborn"), wrapped=few)):
        assert (len(rollout["turns"]), rollout["ended"], rollout["reward"]) == (2, "turns", 0)


def test_requests_under_way_are_answered_where_a_limit_ends_their_episode(tmp_path: Path) -> None:
    few = " |> rollouts(max_turns = 2)"
    plan = job(python("at_once"), wrapped=few, on_error="drop", batch="groups(1, group_size = 2)")
    run_new(tmp_path / "run", plan)
    assert 400 in agent_programs.STATUSES
    assert 500 not in agent_programs.STATUSES


def test_an_agent_without_a_client_hears_what_cannot_be_shown(tmp_path: Path) -> None:
    for rollout in played(tmp_path, job(python("unshown"))):
        assert (len(rollout["turns"]), rollout["reward"]) == (1, 2)


def test_a_grader_reads_the_answer_and_the_conversation(tmp_path: Path) -> None:
    grader = 'grader = grade_with("agent_programs:first_letter")'
    for rollout in played(tmp_path, job(python("answers", grader))):
        (turn,) = rollout["turns"]
        right = float(turn["action"] == "e")
        assert (turn["metrics"]["said"], turn["metrics"]["right"]) == (2, right)
        assert rollout["reward"] == 2 + right


def test_a_rewritten_history_is_another_sequence_and_counted(tmp_path: Path) -> None:
    for rollout in played(tmp_path, job(python("rewrites"))):
        assert rollout["turns"][-1]["metrics"] == {"conversations": 1.0, "rewritten": 1.0}
    assert metrics(tmp_path / "run")[0]["env/shop/rewritten"] == 1


def test_an_agent_that_fails_without_the_form_that_it_asks_for_has_a_reward_of_0(
    tmp_path: Path,
) -> None:
    once = {"wrapped": " |> rollouts(max_turns = 1)", "on_error": "drop"}
    plan = job(python("must_call"), **once)
    for rollout in played(tmp_path, plan):
        assert (rollout["ended"], rollout["reward"], rollout["error"]) == ("form", 0.0, None)
        (turn,) = rollout["turns"]
        assert 0 < turn["tokens"] <= 8
    (record,) = metrics(tmp_path / "run")
    assert record["rollouts/cut_short"] == 6  # and no episode is tried again
    assert record["rollouts/form_retries"] == 6 * 4
    sampled = sum(
        turn["tokens"] for rollout in rollouts(tmp_path / "run") for turn in rollout["turns"]
    )
    assert sampled < record["tokens/sampled"] <= 6 * 5 * 8
    (cost,) = plan_cost(plan)
    assert cost.step_tokens["high"].sample == 6 * 5 * 8


def test_replies_that_are_sampled_again_count_as_tokens_of_the_episode(tmp_path: Path) -> None:
    Path("rows.jsonl").write_text('{"prompt": "Say e."}\n')
    retries, limit = [], 0
    for folder in (tmp_path / "any", tmp_path / "few"):
        limited = f", max_episode_tokens = {limit}" if limit else ""
        sampling, batch = f"sample(max_tokens = 8{limited})", "groups(1, group_size = 3)"
        for rollout in played(folder, job(python("must_call"), sampling=sampling, batch=batch)):
            (turn,) = rollout["turns"]
            assert rollout["ended"] == "form"
        limit = turn["prompt_tokens"] + 8  # with a reply there is no room for another
        retries.append(metrics(folder / "run")[0]["rollouts/form_retries"])
    assert retries == [3 * 4, 0]


def test_a_reply_without_the_form_is_trained_behind_the_opening_of_the_call(tmp_path: Path) -> None:
    plan = job(python("must_call_or_settle"), **EACH_ONCE)
    for rollout in played(tmp_path, plan):
        assert (rollout["ended"], rollout["reward"], len(rollout["turns"])) == ("done", 0.5, 1)
    (record,) = metrics(tmp_path / "run")
    assert record["optim/datums"] == 3
    assert record["kl/sample_train_k2"] < 1e-10  # sampled under the prompt that is trained on


def test_branches_at_once_are_all_kept(tmp_path: Path) -> None:
    """Four ways from one answer, and a helper: the answer is trained once, with one of them."""
    plan = job(python("branches"), advantage="reinforce()", batch="groups(1, group_size = 2)")
    for rollout in played(tmp_path, plan):
        _, *others = rollout["turns"]
        said = {turn["observation"] for turn in others}
        assert said == {*(f"Way {number}." for number in range(4)), "A helper."}
        assert others[-1]["metrics"] == {"conversations": 2.0, "rewritten": 0.0}
    (record,) = metrics(tmp_path / "run")
    assert record["optim/datums"] == 2 * 5


def test_an_agent_that_raises_is_tried_again(tmp_path: Path) -> None:
    plan = job(python("crashes_once"), on_error="retry(2) then drop", **EACH_ONCE)
    records = played(tmp_path, plan)
    assert [record["error"] for record in records] == [None] * 3
    assert {*PROMPTS} == agent_programs.FIRST_TRIES  # each was met, and failed, before


def test_the_line_that_raised_is_kept(tmp_path: Path) -> None:
    plan = job(python("crashes_once"), on_error="penalise(-1)", **EACH_ONCE)
    assert {record["cause"] for record in played(tmp_path, plan)} == {"KeyError"}
    (failure,) = read_failures(tmp_path / "run")
    text = Path(PROGRAM).read_text()
    line = 1 + text[: text.index("# here")].count("\n")
    assert failure.place is not None
    assert failure.place.endswith(f"agent_programs.py:{line}")


def test_an_agent_that_hangs_is_overdue_and_its_endpoint_closed(tmp_path: Path) -> None:
    plan = job(
        python("hangs"),
        wrapped=" |> rollouts(step_timeout = 1s)",
        on_error="penalise(-1)",
        batch="groups(1, group_size = 2)",
    )
    records = played(tmp_path, plan)
    assert {(record["cause"], record["reward"]) for record in records} == {("timeout", -1.0)}


def test_an_agent_is_refused_what_cannot_be_shown(tmp_path: Path) -> None:
    for rollout in played(tmp_path, job(python("unshown_to_it"))):
        (turn,) = rollout["turns"]
        assert turn["metrics"]["status"] == 400


def test_what_no_agent_may_do_is_said(tmp_path: Path) -> None:
    for name, said in (
        ("asks_nobody", "ended without an answered request"),
        ("gives_nothing", "gave no reward"),
    ):
        plan = job(python(name), on_error="stop", **EACH_ONCE)
        with pytest.raises(RunError, match=said):
            run_new(tmp_path / name, plan)


def test_turns_end_an_episode_and_a_full_context_is_refused(tmp_path: Path) -> None:
    most = played(tmp_path, job(python("goes_on"), wrapped=" |> rollouts(max_turns = 3)"))
    assert {(len(one["turns"]), one["ended"], one["reward"]) for one in most} == {(3, "turns", 0)}
    sampling = "sample(max_tokens = 8, max_prompt_tokens = 60)"
    (tmp_path / "short").mkdir()
    short = played(tmp_path / "short", job(python("goes_on"), sampling=sampling))
    assert {one["ended"] for one in short} == {"prompt"}


def test_no_episode_is_answered_with_the_key_of_another(tmp_path: Path) -> None:
    plan = job(python("two_episodes_mixed_up"), advantage="reinforce()")
    assert {record["reward"] for record in played(tmp_path, plan)} == {1.0}


def test_another_program_is_rewarded_by_what_it_writes(tmp_path: Path) -> None:
    for rollout in played(tmp_path, job(command("result"))):
        (turn,) = rollout["turns"]
        assert turn["metrics"]["length"] == len(turn["action"])
        assert rollout["reward"] == pytest.approx(agent_programs.share(turn["action"]))


def test_another_program_is_rewarded_by_its_exit_status(tmp_path: Path) -> None:
    for rollout in played(tmp_path, job(command("status", "reward = exit_status"))):
        assert rollout["reward"] == float("e" in rollout["turns"][0]["action"])


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("dies", "was killed by SIGKILL"),
        ("fails", "ended with the exit status 3: no such thing"),
        ("result", None),
    ],
)
def test_a_program_that_fails_is_a_failed_rollout(
    tmp_path: Path, how: str, said: str | None
) -> None:
    plan = job(command(how), on_error="penalise(-1)", batch="groups(1, group_size = 2)")
    for rollout in played(tmp_path, plan):
        assert (rollout["error"] is None) == (said is None)
        assert said is None or said in rollout["error"]
        assert rollout["cause"] == (None if said is None else "program")


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")
def test_the_agent_of_the_recipe_is_a_program_for_node_too(tmp_path: Path) -> None:
    for name in ("doors.mjs", "data/doors.jsonl"):
        shutil.copy(RECIPES / name, tmp_path)
    text = 'command = ["node", "doors.mjs"]'
    for rollout in played(tmp_path, job(text, batch="groups(1, group_size = 2)")):
        assert rollout["error"] is None
        assert rollout["turns"]


def test_runs_repeat_to_the_bit_and_go_on_where_they_stopped(tmp_path: Path) -> None:
    plan = job(python("two_turns"), steps="3")
    assert_resumes(plan, ("main", 1), tmp_path / "stopped")
    run_new(tmp_path / "again", plan)
    assert_same(tmp_path / "again", tmp_path / "stopped")
