"""The tokens of a run, against its rollouts and its metrics."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from run_support import assert_resumes, metrics, rollouts, tiny, train, undisturbed

from rlc.runtime.journal.episodes import EpisodeKey, SequenceTokens, TokenIndex

pytestmark = pytest.mark.plain

SMALL = {
    "env": "guess + spell",
    "batch": "groups(6, group_size = 4, updates = 2)",
    "sampling": "sample(max_tokens = 8)",
    "optimizer": "adam(3e-3)",
    "steps": "2",
}
JUDGED = (
    'env duel = gem("rg:spell_backward") |> chat() |> solver_judge(solvers = 2)'
    " |> reward(total - 0.01 * tokens)\n"
)


def of_step(path: Path, step: int) -> list[tuple[dict[str, Any], list[SequenceTokens]]]:
    """The episodes of a step with their tokens; the replies of a role are told apart."""
    index, seen, found = TokenIndex(path), dict[tuple[Any, ...], int](), []
    for record in rollouts(path, "main"):
        if record["step"] == step:
            who = record["env"], record["task"], record["member"], record["role"]
            seen[who] = seen.get(who, -1) + 1
            key = EpisodeKey(*who, seen[who])
            found.append((record, index.episode("main", step, key)))
    return found


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"overlap": "streamed(minibatches = 2)", "batch": "groups(6, group_size = 4)"},
        {"overlap": "asynchronous(max_staleness = 1)", "loss": "ppo()"},
        {"aggregate": "token_mean()"},
        {
            "env": "duel",
            "sampling": "sample(max_tokens = 40)",
            "batch": "groups(4, group_size = 4)",
        },
    ],
    ids=["updates", "streamed", "asynchronous", "weighted", "roles"],
)
def test_the_tokens_are_those_that_were_trained_on(more: dict[str, str]) -> None:
    declared = JUDGED if more.get("env") == "duel" else ""
    path, trained = undisturbed(tiny(declared, train(**SMALL | more))), 0
    for record in metrics(path, "main"):
        pairs = of_step(path, record["step"])
        assert any(found for _, found in pairs)
        distances = list[float]()
        for episode, found in pairs:
            spans = [(one, span) for one in found for span in one.spans]
            turns = {turn: end - begin for _, (turn, begin, end) in spans}
            assert turns == {i: turn["tokens"] for i, turn in enumerate(episode["turns"])}
            for one in found:
                at = 0
                for turn, begin, end in one.spans:
                    mine = one.advantages_S[at : at + end - begin]
                    advantage = episode["advantages"][turn]
                    assert list(mine) == pytest.approx([advantage] * len(mine), rel=1e-6)
                    at += end - begin
                assert (one.weight is None) == (not any(one.advantages_S))
                if one.weight is not None:
                    rows = zip(one.logprobs_S, one.trainer_S, strict=True)
                    distances += [sampled - trained for sampled, trained in rows]
                else:
                    assert all(map(math.isnan, one.trainer_S))
        # The mean of what the file has is what the run has measured while it trained.
        if distances:
            trained += 1
            assert fmean(distances) == pytest.approx(record["kl/sample_train"], rel=1e-4, abs=1e-7)
    assert trained


def test_a_penalty_is_in_the_advantages_of_the_tokens() -> None:
    path = undisturbed(tiny(train(**SMALL | {"kl": 'reference("tiny", coef = 0.5)'})))
    (last,) = [r for r in metrics(path, "main") if r["step"] == 2]
    assert last["kl/reference"]
    spreads = [
        max(one.advantages_S) - min(one.advantages_S)
        for _, found in of_step(path, 2)
        for one in found
    ]
    assert max(spreads) > 1e-3


OWN = """
advantage own() {
  togo  = discounted(where(position == tokens, reward, 0) - 0.1 * logq, 0.9)
  token = sum(reward) - mean(sum(reward), over = group) + togo
}
"""


@pytest.mark.parametrize("overlap", ["synchronous()", "streamed(minibatches = 2)"])
def test_each_token_is_trained_with_the_advantage_that_its_formula_says(overlap: str) -> None:
    more = {"advantage": "own()", "overlap": overlap, "batch": "groups(6, group_size = 4)"}
    path = undisturbed(tiny(OWN, train(**SMALL | more)))
    pairs, several = of_step(path, 2), 0
    rewards = dict[tuple[str, int], list[float]]()
    for record, _ in pairs:
        rewards.setdefault((record["env"], record["task"]), []).append(record["reward"])
    for record, found in pairs:
        centred = record["reward"] - fmean(rewards[record["env"], record["task"]])
        (one,) = found  # an episode is one sequence
        ends = [sum(e - b for _, b, e in one.spans[: at + 1]) for at in range(len(one.spans))]
        paid = [-0.1 * logq for logq in one.logprobs_S]
        for (turn, *_), end in zip(one.spans, ends, strict=True):
            paid[end - 1] += record["turns"][turn]["reward"] or 0.0
        later, expected = 0.0, list[float]()
        for value in reversed(paid):
            later = value + 0.9 * later
            expected.append(centred + later)
        assert list(one.advantages_S) == pytest.approx(expected[::-1], rel=1e-5, abs=1e-6)
        starts = [0, *ends]
        means = [fmean(expected[::-1][a:b]) for a, b in zip(starts, ends, strict=False)]
        assert record["advantages"] == pytest.approx(means, rel=1e-5, abs=1e-6)
        several += len(one.spans) > 1
    assert several


PENALISED = """
advantage own(beta = 0.5) {
  at_end = where(position == tokens, reward, 0)
  togo   = discounted(at_end - beta * (logq - ref), 0.9)
  token  = togo - mean(first(togo), over = group)
}
"""


@pytest.mark.parametrize(
    "overlap",
    ["synchronous()", "streamed(minibatches = 2)", "asynchronous(max_staleness = 1)"],
)
def test_tokens_have_the_same_advantages_after_a_kill(overlap: str, tmp_path: Path) -> None:
    more = {"advantage": "own()", "overlap": overlap, "kl": "reference(policy.base, coef = 0)"}
    more |= {"batch": "groups(6, group_size = 4)", "steps": "4", "loss": "ppo()"}
    job = tiny(PENALISED, train(**SMALL | more))
    assert_resumes(job, ("main", 2), tmp_path / "run")  # which compares all tokens
    assert metrics(tmp_path / "run", "main")[-1]["kl/reference"]
