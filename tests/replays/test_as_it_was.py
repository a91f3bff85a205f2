"""A step computed again from its files is what the run has journalled, for each kind of stage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_support import TINY, copy_of, rollouts, run_new, tiny, train, undisturbed

import rlc
from rlc.replays.record import EXACT
from rlc.replays.texts import Replay
from rlc.runtime.journal.episodes import TokenIndex

pytestmark = pytest.mark.plain

SMALL = {"env": "guess + spell", "batch": "groups(4, group_size = 4)", "steps": "3"}
SMALL |= {"optimizer": "adam(3e-3)"}
JUDGED = (
    'env duel = gem("rg:spell_backward") |> chat() |> solver_judge(solvers = 2)'
    " |> reward(total - 0.01 * tokens)\n"
)
AVERAGES = """
advantage mine() {
  total   = sum(reward)
  episode = total - running(total, 0.8)
}
"""
BY_TOKEN = """
advantage mine(beta = 0.5) {
  togo  = discounted(where(position == tokens, reward, 0) - beta * (logq - ref), 0.9)
  token = togo - mean(first(togo), over = group)
}
"""
OF_BATCH = """
loss mine(share = 0.2) { token = -min(ratio, 2) * adv * batch_top(-logq, share) }
"""
KINDS = {
    "groups": ("", {}),
    "turns": ("", {"batch": "turns(12, parallel = 8)", "advantage": "rebn(gamma = 0.9)"}),
    "updates": ("", {"batch": "groups(4, group_size = 4, updates = 2)", "loss": "ppo()"}),
    "streamed": ("", {"overlap": "streamed(minibatches = 2)"}),
    "asynchronous": ("", {"overlap": "asynchronous(max_staleness = 1)", "loss": "cispo()"}),
    "weighted": ("", {"aggregate": "token_mean()", "loss": "gspo()"}),
    "resampled": ("", {"batch": "groups(4, group_size = 2, resample = 2)"}),
    "kl": ("", {"kl": 'reference("tiny", coef = 0.5, discount = 0.5, final = 0)'}),
    "teacher": ("", {"teacher": "reverse_kl(big, coef = 0.5)"}),
    "targets": ("", {"teacher": "forward_kl(big, coef = 0.5, top_k = 4)"}),
    "averages": (AVERAGES, {"advantage": "mine()", "overlap": "asynchronous(max_staleness = 1)",
                            "loss": "cispo()"}),
    "tokens": (BY_TOKEN, {"advantage": "mine()", "kl": "reference(policy.base, coef = 0)"}),
    "loss": (OF_BATCH, {"loss": "mine()"}),
    "roles": (JUDGED, {"env": "duel", "batch": "groups(2, group_size = 4)",
                       "advantage": "grpo(scope = role)"}),
    "observations": ("", {"observations": "0.1"}),
}  # fmt: skip
BIG = 'model big { base = "tiny" }\n'


def run_of(kind: str) -> Path:
    declared, fields = KINDS[kind]
    return undisturbed(tiny(BIG if "teacher" in fields else "", declared, train(**SMALL | fields)))


ENGINE = [pytest.mark.engine, pytest.mark.slow]


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=ENGINE if kind == "loss" else []) for kind in KINDS]
)
def test_a_step_is_as_the_run_journalled_it(kind: str) -> None:
    path = run_of(kind)
    for step in (1, 3):
        found = rlc.replay(path, step)
        assert found.agrees, found.differences
        assert found.differences["advantages"] <= EXACT
        assert {"weights", "advantages of tokens", "kl/sample_train"} <= found.differences.keys()
        assert all(x <= EXACT for n, x in found.differences.items() if n != "loss/sum")
        played = [r for r in rollouts(path, "main") if r["step"] == step and r["advantages"]]
        assert [one.reward for one in found.episodes] == [r["reward"] for r in played]
        shares = found.before.environments
        assert not shares or sum(shares.values()) == pytest.approx(1)
        assert sum(one.share[0] for one in found.episodes) == pytest.approx(1 if shares else 0)
        assert sum(one.share[0] for one in found.groups) == pytest.approx(1 if shares else 0)
        if found.before.loss:
            assert sum(one.weight[0] for one in found.groups) == pytest.approx(1)


def test_what_the_gradient_is_made_of() -> None:
    found = rlc.replay(run_of("kl"), 1)
    assert found.before.components.keys() == {"reference", "reward"}
    assert sum(found.before.components.values()) == pytest.approx(1)
    assert not rlc.replay(run_of("groups"), 1).before.components


COUNTED = """
def advantages(total_R, state):
    state["seen"] = state.get("seen", 0) + 1
    return total_R - total_R.mean() + state["seen"]
"""


def test_own_advantages_get_the_state_of_their_time(tmp_path: Path) -> None:
    (tmp_path / "credit.py").write_text(COUNTED)
    text = TINY + train(**SMALL | {"advantage": 'python("credit.py:advantages")'})
    (tmp_path / "recipe.rl").write_text(text)
    run_new(tmp_path / "run", rlc.load(tmp_path / "recipe.rl").plan())
    for step in (1, 3):
        found = rlc.replay(tmp_path / "run", step)
        assert found.agrees, found.differences
        mean = sum(one.advantage[0] for one in found.episodes) / len(found.episodes)
        assert mean == pytest.approx(step, abs=0.5)


def test_a_folder_of_before_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = copy_of(run_of("groups"), tmp_path / "old")
    lines = [json.loads(line) for line in (path / "rollouts.jsonl").read_text().splitlines()]
    for line in lines:
        del line["credit"]
    (path / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert rlc.replay(path, 1).agrees
    (path / "tokens.bin").unlink()
    found = rlc.replay(path, 1)
    assert found.agrees
    assert found.differences.keys() == {"advantages"}
    assert found.before.loss is None
    assert "--tokens all" in found.notes[0]


def test_what_is_damaged_is_said_so(tmp_path: Path) -> None:
    path = copy_of(run_of("groups"), tmp_path / "damaged")
    lines = (path / "rollouts.jsonl").read_text().splitlines()
    lines[3] = lines[3][:-20]
    (path / "rollouts.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(rlc.Error, match="an episode of step 1 of `main` is damaged"):
        rlc.replay(path, 1)
    assert rlc.replay(path, 3).agrees
    credit = copy_of(run_of("groups"), tmp_path / "changed")
    first, *rest = (credit / "rollouts.jsonl").read_text().splitlines()
    record = json.loads(first)
    record["credit"][0] += 1
    (credit / "rollouts.jsonl").write_text("\n".join([json.dumps(record), *rest]) + "\n")
    found = rlc.replay(credit, 1)
    assert not found.agrees
    assert "is not as the run journalled it" in str(found)


def test_the_tokens_of_all_played_episodes_are_kept() -> None:
    path = run_of("turns")
    kept = TokenIndex(path).step("main", 1)
    replies = {key: sum(len(one.spans) for one in found) for key, found in kept.items()}
    assert sum(replies.values()) > 12  # also those that were not chosen
    assert any(found[0].weight is None for found in kept.values()) or len(kept) == 8


def shown(found: Replay) -> str:
    data = json.dumps(found.to_dict(), allow_nan=False)
    return f"{found}{found._repr_html_()}{data}{found.html()}"


def test_it_is_shown() -> None:
    text = shown(rlc.replay(run_of("updates"), 2))
    assert "computed anew it is as the run journalled it" in text
