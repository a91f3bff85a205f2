"""Stages that learn from preferences, on the embedded engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from run_support import TINY, assert_resumes, block, metrics, run, run_new, tiny

from rlc.compile.recipe import compile_source
from rlc.data.reading import Reader
from rlc.lang.source import Source
from rlc.models.export import _results
from rlc.plan.stages import Training
from rlc.report.measures import measures
from rlc.report.run_files import read_files
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.runtime.summary import Observer

pytestmark = pytest.mark.plain

FIELDS = {
    "model": "policy",
    "data": 'pairs("pairs.jsonl")',
    "heldout": 'pairs("heldout.jsonl")',
    "loss": "dpo()",
    "batch": "16",
    "steps": "8",
    "optimizer": "adam(3e-3)",
}
# With the steps and the rate that each needs.
LOSSES = {
    "dpo()": ("5", "adam(6e-3)"),
    "ipo()": ("5", "adam(6e-3)"),
    "simpo()": ("5", "adam(6e-3)"),
    "cpo(beta = 0.5, alpha = 0.1)": ("5", "adam(6e-3)"),
    "orpo(beta = 2)": ("8", "adam(1e-2)"),
    "kto(beta = 0.5)": ("20", "adam(3e-3)"),
    "own()": ("5", "adam(6e-3)"),
}
# Of sums and of tokens: the margin of DPO, and a price on each token that becomes less likely.
OWN = """
preference_loss own(beta = 0.1) {
  margin = chosen - chosen_ref - (rejected - rejected_ref)
  fallen = -sum(min(chosen_token - chosen_ref_token, 0))
  pair   = softplus(-beta * margin) + beta * fallen / chosen_length
}
"""
LETTERS = "abcdefghijkl"


def words() -> list[str]:
    triples = zip(LETTERS, LETTERS[1:] + LETTERS[:1], LETTERS[5:] + LETTERS[:5], strict=True)
    spelt = ["".join(triple) for triple in triples]
    return spelt + [word[1:] + word[0] for word in spelt] + [word[2] + word[:2] for word in spelt]


def write_pairs(folder: Path, swapped: bool = False) -> None:
    """Pairs in which the word backward is better, or with ``swapped`` the word itself; what is held
    out is not swapped."""
    rows = [
        {"prompt": f"Spell {word} backward.", "chosen": word[::-1], "rejected": word}
        for word in words()
    ]
    turned = [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]
    learnt = [*(turned if swapped else rows)][:24]
    for name, kept in (("pairs", learnt), ("heldout", rows[24:])):
        text = "".join(json.dumps(row) + "\n" for row in kept)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def align(name: str = "align", **fields: str) -> str:
    return block("preference", name, FIELDS | fields)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def after(path: Path) -> float:
    return float(metrics(path, "align")[-1]["heldout/accuracy"])


@pytest.mark.engine
@pytest.mark.parametrize("loss", LOSSES)
def test_each_loss_teaches_what_the_labels_say(loss: str, here: Path) -> None:
    steps, optimizer = LOSSES[loss]
    declared = align(loss=loss, steps=steps, optimizer=optimizer)
    job = tiny(OWN if loss == "own()" else "", declared)
    summary = run_new(here / "run", job)
    (stage,) = summary.stages
    assert (stage.measure, summary.state) == ("accuracy", "finished")
    taught = after(here / "run")
    write_pairs(here, swapped=True)
    run_new(here / "control", job)
    control = after(here / "control")
    assert taught >= 0.65
    assert control <= 0.35
    rows = metrics(here / "run", "align")
    assert rows[-1]["margin"] > rows[0]["margin"]


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_loss_of_ones_own_learns_whatever_the_seed(seed: int, here: Path) -> None:
    run_new(here / "run", tiny(OWN, align(loss="own()"), seed=seed))
    first, *_, last = metrics(here / "run", "align")
    assert first["accuracy"] == 0.5
    assert last["loss/mean"] < first["loss/mean"]
    assert after(here / "run") >= 0.65


def test_the_reference_reads_each_reply_once(here: Path) -> None:
    """In three epochs, and after a resume too."""
    job = tiny(align(batch="8", steps="9", heldout="none"))
    run_new(here / "run", job, stop_after=("align", 5))
    run(RunFolder.resume(here / "run"))
    read = [row["tokens/reference"] for row in metrics(here / "run", "align")]
    kept = lines(here / "run" / "reference-align.jsonl")
    assert len(kept) == len({record["key"] for record in kept}) == 48
    assert all(read[:3])
    assert not any(read[3:])


def test_what_is_held_out_is_a_result_and_stands_on_the_card(here: Path) -> None:
    job = tiny(align(steps="2"))
    run_new(here / "run", job)
    found = {one.name: one for one in measures(read_files(here / "run"), job.stages[0])}
    assert found["held-out accuracy"].last == after(here / "run")
    assert f"| align | 2 | heldout/accuracy | {after(here / 'run'):.4g} |" in _results(
        here / "run", job
    )


def test_the_first_step_starts_from_the_reference(here: Path) -> None:
    run_new(here / "run", tiny(align(steps="2")))
    first, second = metrics(here / "run", "align")
    assert first["kl/reference"] == 0  # to the last bit: both read the same weights
    assert first["accuracy"] == 0.5
    assert second["kl/reference"] > 0


def test_a_loss_without_a_reference_asks_none(here: Path) -> None:
    run_new(here / "run", tiny(align(steps="2", loss="simpo()")))
    assert not (here / "run" / "reference-align.jsonl").exists()
    assert all("tokens/reference" not in row for row in metrics(here / "run", "align"))


@pytest.mark.parametrize("loss", ["dpo()", "kto()", "orpo()", "own()"])
def test_a_resumed_stage_ends_as_an_undisturbed_one(loss: str, here: Path) -> None:
    job = tiny(OWN if loss == "own()" else "", align(loss=loss, batch="8", steps="5", every="2"))
    assert_resumes(job, ("align", 2), here / "resumed")


def test_a_later_stage_is_compared_with_what_the_earlier_one_left(here: Path) -> None:
    """Its reference is the warm start, not the base model, also after a resume."""
    job = tiny(
        align("warmup", loss="simpo()", steps="2", heldout="none"),
        align(model="warmup", steps="3"),
    )
    run_new(here / "run", job, stop_after=("align", 1))
    run(RunFolder.resume(here / "run"))
    first, *_, last = metrics(here / "run", "align")
    assert first["kl/reference"] < 1e-9 < last["kl/reference"]


def test_a_reference_can_be_named(here: Path) -> None:
    job = tiny(
        align("warmup", loss="simpo()", steps="2", heldout="none"),
        align(model="warmup", steps="1", reference="policy"),
    )
    run_new(here / "run", job)
    (first,) = metrics(here / "run", "align")
    assert first["kl/reference"] > 0


def test_rewards_of_every_pair_are_kept(here: Path) -> None:
    run_new(here / "run", tiny(align(steps="2", batch="4")))
    kept = lines(here / "run" / "comparisons.jsonl")
    assert [(row["step"], len(row["rewards"])) for row in kept] == [(1, 2)] * 4 + [(2, 2)] * 4
    second = [row["rewards"] for row in kept if row["step"] == 2]
    row = metrics(here / "run", "align")[1]
    assert row["rewards/chosen"] == pytest.approx(sum(r[0] for r in second) / 4)
    assert row["accuracy"] == sum(r[0] > r[1] for r in second) / 4


def test_ties_are_left_out_and_counted(here: Path) -> None:
    with open("pairs.jsonl", "a") as file:
        file.write(json.dumps({"prompt": "1?", "chosen": "one", "rejected": "one"}) + "\n")
    notes: list[str] = []
    job = tiny(align(steps="1"))

    class Noting(Observer):
        def note(self, text: str) -> None:
            notes.append(text)

    run_new(here / "run", job, observer=Noting())
    assert notes == ["align: left out, 1 rows of pairs.jsonl without a better reply"]
    assert len(lines(here / "run" / "examples-align.jsonl")) == 24


def test_rows_that_are_too_long_stop_the_run_or_are_dropped(here: Path) -> None:
    limit = 'pairs("pairs.jsonl", max_tokens = 4{})'
    with pytest.raises(RunError, match="have more than 4 tokens"):
        run_new(here / "run", tiny(align(data=limit.format(""))))


def test_steps_follow_from_the_epochs_without_ties(here: Path) -> None:
    fields = {name: value for name, value in FIELDS.items() if name != "steps"}
    text = TINY + block("preference", "align", fields | {"epochs": "2", "batch": "6"})

    def steps() -> int:
        made = compile_source(Source("recipe.rl", text), {}, reader=Reader()).plan
        assert made is not None
        (stage,) = made.stages
        assert isinstance(stage, Training)
        return stage.steps

    assert steps() == 8
    with open("pairs.jsonl", "a") as file:
        file.write(json.dumps({"prompt": "1?", "chosen": "one", "rejected": "one"}) + "\n")
    assert steps() == 8


def _rated(row: dict[str, Any]) -> list[float]:
    return [row["ratings"][f"{side}_rating"] for side in ("chosen", "rejected")]


# A margin that the rating asks for, as in Llama 2's reward models (arXiv 2307.09288).
APART = """
preference_loss apart(beta = 0.1) {
  won  = beta * (chosen - chosen_ref - (rejected - rejected_ref))
  pair = softplus(rating_margin - won)
}
preference_loss scored(beta = 0.1) {
  sign  = where(good, 1, -1)
  reply = rating * softplus(-sign * beta * (logp - ref))
}
"""


def rate(folder: Path, rating: Callable[[int], float]) -> None:
    for name in ("pairs", "heldout"):
        rows = lines(folder / f"{name}.jsonl")
        text = "".join(
            json.dumps({**row, "score_chosen": 1 + rating(at), "score_rejected": 1}) + "\n"
            for at, row in enumerate(rows)
        )
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


@pytest.mark.engine
def test_ratings_of_the_data_decide_what_a_pair_teaches(here: Path) -> None:
    """Pairs that are far apart teach more; who learns knows the better reply; a resumed run is the
    same run."""
    rate(here, lambda at: 5.0 if at % 2 else -5.0)
    job = tiny(APART, align(loss="apart()", batch="24", optimizer="adam(1e-2)"))
    run_new(here / "run", job)
    assert [row["ratings"] for row in lines(here / "run" / "examples-align.jsonl")][:2] == [
        {"rating_margin": -5.0},
        {"rating_margin": 5.0},
    ]
    of_pairs = lines(here / "run" / "comparisons.jsonl")
    margins = {
        parity: [
            row["rewards"][0] - row["rewards"][1]
            for row in of_pairs
            if row["step"] == 8 and row["example"] % 2 == parity
        ]
        for parity in (0, 1)
    }
    assert fmean(margins[1]) > fmean(margins[0])
    assert_resumes(job, ("align", 3), here / "resumed")
    rate(here, lambda _: 0.0)
    run_new(here / "flat", job)
    assert metrics(here / "flat", "align")[0]["loss/mean"] == pytest.approx(log(2), abs=1e-6)


def test_the_rating_of_a_labelled_reply_may_be_that_of_a_side(here: Path) -> None:
    rate(here, lambda _: 1.0)
    run_new(here / "run", tiny(APART, align(loss="scored()", batch="48", steps="1")))
    (row,) = metrics(here / "run", "align")
    assert row["loss/mean"] == pytest.approx(log(2) * (2 + 1) / 2, abs=1e-6)


def test_rewards_are_the_ratings_of_pairs_that_a_model_makes(here: Path) -> None:
    job = tiny(APART, align(loss="apart()", data=made("policy"), heldout="none", steps="1"))
    run_new(here / "run", job)
    for row in lines(here / "run" / "examples-align.jsonl"):
        better, worse = _rated(row)
        assert row["ratings"]["rating_margin"] == better - worse > 0


@pytest.mark.parametrize("wrong", [{"score_chosen": "high"}, {"score_chosen": None}])
def test_a_wrong_rating_is_found_before_anything_is_paid(wrong: dict[str, Any], here: Path) -> None:
    rate(here, lambda _: 1.0)
    text = (here / "pairs.jsonl").read_text(encoding="utf-8")
    (here / "pairs.jsonl").write_text(
        text + json.dumps({"prompt": "1?", "chosen": "2", "rejected": "3", **wrong}) + "\n"
    )
    job = tiny(align("first", loss="dpo()"), APART, align(loss="apart()"))
    with pytest.raises(RunError, match=r"`align`, a later stage, .*pairs\.jsonl:25"):
        run_new(here / "run", job)
    assert not metrics(here / "run", "first")


def made(model: str, **fields: str) -> str:
    return f"preferred({model}, env = spell, n = 12, samples = 4)"


def test_a_model_makes_its_own_preferences(here: Path) -> None:
    """Of the replies to a task the best and the worst, round after round."""
    job = tiny(
        align("first", data=made("policy"), heldout="none", steps="4"),
        align("second", data=made("first"), model="first", heldout="none", steps="2"),
    )
    run_new(here / "run", job)
    kept = lines(here / "run" / "examples-first.jsonl")
    assert len(kept) == 12
    assert all(better > worse for better, worse in map(_rated, kept))
    assert all("boxed" in row["shown"]["prompt"] or row["shown"]["prompt"] for row in kept)
    played = lines(here / "run" / "episodes-first.jsonl")
    assert all(len(task["episodes"]) == 4 for task in played)
    tied = [task for task in played if len({one["reward"] for one in task["episodes"]}) == 1]
    assert len(played) - len(tied) >= 12
    # The second round asks the first one's weights.
    first, *_ = metrics(here / "run", "second")
    assert first["kl/reference"] < 1e-9
    assert lines(here / "run" / "examples-second.jsonl") != kept


def test_made_preferences_are_resumed_with_and_not_made_again(here: Path) -> None:
    job = tiny(align(data=made("policy"), heldout=made("policy"), batch="4", steps="3"))
    assert_resumes(job, ("align", 1), here / "resumed")
    assert len(lines(here / "resumed" / "examples-align-heldout.jsonl")) == 12


def test_a_model_that_never_differs_makes_no_preferences(here: Path) -> None:
    same = "preferred(policy, env = same, n = 2, samples = 2)"
    env = 'env same = gem("rg:spell_backward") |> chat() |> rollouts(max_tokens = 1)\n'
    with pytest.raises(RunError, match="had replies whose rewards differ"):
        run_new(here / "run", tiny(env, align(data=same, heldout="none")))
