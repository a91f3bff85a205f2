"""Students that learn from teachers, in runs: without a reward, in views of their own, resumed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from attrs import evolve
from http_testing import running_server
from run_support import (
    TINY,
    assert_resumes,
    comparable,
    compiled,
    metrics,
    rollouts,
    run_new,
    tiny,
    train,
    undisturbed,
)

import rlc
from rlc.chat.histories import ViewChange
from rlc.plan.records import Plan
from rlc.pricing.cost import plan_cost
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import Rollout, Turn, TurnView, Usage
from rlc.runtime.updates.scorers import TEACHER_VIEW, LogprobScorer

pytestmark = pytest.mark.plain

# What is left out of the train stage that the other tests have.
STUDENT = {"teacher": "reverse_kl(expert)", "sampling": "sample(max_tokens = 16)"}


def student(**fields: str) -> str:
    return train("student", **{**STUDENT, **fields}).replace("  advantage = grpo()\n", "")


EXPERT = train(
    "expert",
    env="spell",
    batch="groups(6, group_size = 6)",
    sampling="sample(max_tokens = 16)",
    optimizer="adam(8e-3)",
    steps="8",
)
BRIEF = train("expert", steps="2", optimizer="adam(3e-2)")
LEARNS = {"env": "spell", "batch": "groups(24, group_size = 1)", "optimizer": "adam(8e-3)"}


# What `reverse_kl` adds to the advantages, as an advantage.
NEARER = "advantage nearer() { token = teacher - logq }\n"


@pytest.mark.engine
def test_an_advantage_that_reads_the_teacher_is_distillation(tmp_path: Path) -> None:
    """To the bit: the same tokens with the same advantages, step by step."""
    run_new(tmp_path / "named", tiny(BRIEF, student(steps="2")))
    own = train("student", **{**STUDENT, "teacher": "reverse_kl(expert, coef = 0)"}, steps="2")
    own = own.replace("advantage = grpo()", "advantage = nearer()")
    run_new(tmp_path / "own", tiny(BRIEF, NEARER, own))
    named, mine = (
        [row for row in comparable(tmp_path / run) if row["stage"] == "student"]
        for run in ("named", "own")
    )
    assert named == mine
    assert named[-1]["teacher/kl"] > 0


@pytest.mark.engine
@pytest.mark.slow
def test_a_student_reaches_its_teacher_without_a_reward(tmp_path: Path) -> None:
    """Every reward is 0 to the student, and it does what the teacher was rewarded for."""
    job = tiny(EXPERT, student(**LEARNS, steps="8"))
    run_new(tmp_path / "run", job)
    taught, learnt = metrics(tmp_path / "run", "expert"), metrics(tmp_path / "run", "student")
    level = fmean(record["reward/mean"] for record in taught[-3:])
    before = learnt[0]["reward/mean"]
    assert fmean(record["reward/mean"] for record in learnt[-3:]) > before + 0.7 * (level - before)
    distances = [record["teacher/kl"] for record in learnt]
    assert fmean(distances[-3:]) < 0.4 * distances[0]
    assert learnt[0]["teacher/kl/spell"] == distances[0]


def test_what_teachers_read_is_metered_at_their_price(tmp_path: Path) -> None:
    job = tiny(BRIEF, student(steps="2"))
    run_new(tmp_path / "run", job)
    played = rollouts(tmp_path / "run", "student")
    read = sum(one["turns"][-1]["prompt_tokens"] + one["turns"][-1]["tokens"] for one in played)
    records = metrics(tmp_path / "run", "student")
    assert sum(record["tokens/teacher"] for record in records) == read
    kinds = ("prefill", "cached", "sampled", "trained", "teacher")
    folder = RunFolder.resume(tmp_path / "run")
    used = sum(record[f"tokens/{kind}"] for record in records for kind in kinds)
    assert folder.journal.used("student").tokens == used
    folder.close()


def test_a_teacher_is_priced_as_a_prefill_of_its_own_model() -> None:
    text = TINY.replace('base = "tiny"', 'base = "Qwen/Qwen3.5-4B"')
    text += 'model big = policy { base = "Qwen/Qwen3.5-397B-A17B" }\n'
    one = {"env": "spell", "batch": "groups(8, group_size = 1)"}  # `guess` needs another renderer
    (cost,) = plan_cost(compiled(text + student(teacher="reverse_kl(big)", **one)))
    (same,) = plan_cost(compiled(text + student(teacher='reverse_kl(policy, system = "x")', **one)))
    assert cost.bill["expected"]["teacher"].usd > same.bill["expected"]["teacher"].usd > 0
    system = 8 * 11  # of each sequence one token of text, and markup
    parts = [one.step_parts("expected")["teacher"] for one in (cost, same)]
    assert parts[0] == pytest.approx(parts[1] - system)


OVERLAPPED: dict[str, str] = {"overlap": "streamed(minibatches = 3)"}


@pytest.mark.parametrize("more", [{}, OVERLAPPED], ids=["synchronous", "streamed"])
def test_a_resumed_student_ends_as_if_nothing_had_happened(
    tmp_path: Path, more: dict[str, str]
) -> None:
    job = tiny(BRIEF, student(**more))
    assert_resumes(job, ("student", 2), tmp_path)


def test_streamed_parts_of_a_batch_have_the_gradient_of_the_whole() -> None:
    whole, parts = (
        metrics(undisturbed(tiny(BRIEF, student(steps="3", **more))), "student")
        for more in ({}, OVERLAPPED)
    )
    for one, other in zip(whole, parts, strict=True):
        for name in ("teacher/kl", "loss/sum", "optim/grad_norm"):
            assert other[name] == pytest.approx(one[name], rel=1e-4, abs=1e-6), name


@pytest.mark.engine
def test_one_teacher_for_each_environment(tmp_path: Path) -> None:
    """The one of `spell` is where the student begins, the one of `guess` is not."""
    teachers = "{ guess = reverse_kl(expert), spell = reverse_kl(policy, coef = 2) }"
    job = tiny(BRIEF, train("student", steps="1", env="guess + spell", teacher=teachers))
    run_new(tmp_path / "run", job)
    (record,) = metrics(tmp_path / "run", "student")
    assert abs(record["teacher/kl/spell"]) < 1e-4 < abs(record["teacher/kl/guess"])


def test_a_loss_reads_the_teacher_as_ref(tmp_path: Path) -> None:
    loss = "loss near { token = (ref - logp) * stop(ref - logp) / 2 - ratio * adv }\n"
    job = tiny(loss, BRIEF, student(teacher="reverse_kl(expert, coef = 0)", loss="near", steps="2"))
    run_new(tmp_path / "run", job)
    assert all(not record["optim/skipped"] for record in metrics(tmp_path / "run", "student"))


def prompts(job: Plan, tmp_path: Path) -> list[Any]:
    run_new(tmp_path / "run", job)
    return metrics(tmp_path / "run")


@pytest.fixture
def asked(tmp_path: Path) -> str:
    path = tmp_path / "asked.jsonl"
    rows = [{"prompt": f"What is {n} + {n}?", "shown": f"It is {2 * n}."} for n in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f'env sums = rows("{path}")\n'


SUMS = {"env": "sums", "batch": "groups(4, group_size = 2)", "steps": "2"}


@pytest.mark.parametrize("how", ['system = "Be terse."', 'demonstration = "shown"'])
def test_a_model_teaches_itself_what_it_does_when_shown_more(
    tmp_path: Path, asked: str, how: str
) -> None:
    job = tiny(asked, student(**SUMS, teacher=f"reverse_kl(policy, {how})"))
    first, *_ = prompts(job, tmp_path)
    assert abs(first["teacher/kl"]) > 1e-3  # its prompt is another
    assert first["tokens/teacher"] > first["tokens/trained"]  # and longer
    assert not first["optim/skipped"]


def test_a_system_message_may_stand_in_a_file_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "hints").mkdir()
    (tmp_path / "hints" / "short.md").write_text("Be terse.\n")
    for name, system in (("file", "hints/short.md"), ("text", "Be terse."), ("gone", "hints/x.md")):
        how = f'reverse_kl(policy, system = "{system}")'
        one = student(teacher=how, batch="groups(2, group_size = 1)", steps="2")
        (tmp_path / f"{name}.rl").write_text(TINY + one)
    for name in ("file", "text"):
        rlc.run(tmp_path / f"{name}.rl", run_dir=tmp_path / name)
    (file, _), (text, _) = metrics(tmp_path / "file"), metrics(tmp_path / "text")
    assert file["teacher/kl"] == text["teacher/kl"] != 0
    assert file["tokens/teacher"] == text["tokens/teacher"] > file["tokens/trained"]
    assert "RL0001" in {found.code for found in rlc.load(tmp_path / "gone.rl").check()}
    folder = RunFolder.resume(tmp_path / "file")
    assert [file.path for file in folder.plan.data] == ["hints/short.md"]  # known again on resume
    folder.close()


def test_rows_without_the_demonstration_are_found_before(tmp_path: Path, asked: str) -> None:
    teacher = 'reverse_kl(policy, demonstration = "solved")'
    (tmp_path / "recipe.rl").write_text(TINY + asked + student(**SUMS, teacher=teacher))
    (found,) = rlc.load(tmp_path / "recipe.rl").check()
    assert found.code == "RL0502"
    assert found.message.startswith("there is no field `solved` in the rows of")


class Counting:
    """A model that finds the n-th token of a prompt as likely as its number says."""

    async def compute_logprobs(self, prompt: Any) -> list[float | None]:
        return [None, *(-float(token) for token in prompt.to_ints()[1:])]


def shown(prompt: list[int], tokens: list[int]) -> dict[str, TurnView]:
    return {TEACHER_VIEW: TurnView(prompt, tokens)}


def test_scores_stand_where_the_student_has_its_tokens() -> None:
    """Two turns, of which the student's prompts extend each other and the teacher's do not."""
    turns = (
        Turn([1, 2], [3, 4], [0, 0], "", "", 0.0, "stop", views=shown([9, 1, 2], [3, 4])),
        Turn([1, 2, 3, 4, 5], [6], [0], "", "", 0.0, "stop", views=shown([8], [6])),
    )
    rollout = Rollout("env", 0, 0, "", turns, "done", (0.0, 0.0))
    usage = Usage()
    scorer: Any = LogprobScorer(Counting(), None, own_prompts=True)  # type: ignore[arg-type]
    (scored,) = asyncio.run(scorer.score(rollout, usage))
    assert scored.logprobs_T.tolist() == [0.0, -3.0, -4.0, 0.0, -6.0]
    assert usage.prefill == 7
    (cut,) = asyncio.run(evolve(scorer, context=4).score(rollout, Usage()))
    known = [value if value == value else None for value in cut.logprobs_T.tolist()]
    assert known == [0, -3, None, 0, -6]


def test_a_system_message_of_the_data_gives_way() -> None:
    from rlc.chat.prompts import conversation

    said = conversation([{"role": "system", "content": "A"}, {"role": "user", "content": "B"}])
    assert [m["content"] for m in ViewChange(system="C").first(said).messages] == ["", "B"]
    assert ViewChange().first(said) == said


@pytest.mark.server
def test_on_a_server_it_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a group is scored as soon as it is played, while others still are."""
    monkeypatch.setenv("TINKER_API_KEY", "tml-local")
    text = TINY + BRIEF + student(steps="2", overlap="streamed(minibatches = 2)")
    (tmp_path / "recipe.rl").write_text(text)
    served = rlc.load(tmp_path / "recipe.rl", service="tinker", seed=2)
    with running_server(tmp_path / "served") as url:
        rlc.run(served, run_dir=tmp_path / "far", base_url=url)
    rlc.run(rlc.load(tmp_path / "recipe.rl", seed=2), run_dir=tmp_path / "near")
    far, near = (metrics(tmp_path / where, "student") for where in ("far", "near"))
    for one, other in zip(far, near, strict=True):
        assert one["tokens/teacher"] == other["tokens/teacher"]
        assert one["teacher/kl"] == pytest.approx(other["teacher/kl"], rel=1e-3, abs=1e-5)
