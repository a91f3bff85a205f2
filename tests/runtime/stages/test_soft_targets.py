"""Samples of which the player's top-k tokens are learnt: what is kept, its value, and runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from http_testing import running_server
from run_support import TINY, assert_resumes, block, metrics, tiny, train, undisturbed
from tinker.types.topk_logprobs import TopkLogprobs

import rlc
from rlc.runtime.records import Turn, TurnView
from rlc.runtime.rollouts.tokens import TokenSequence, merged_sequences
from rlc.runtime.stages.examples import _example

pytestmark = pytest.mark.plain

REPLIES = ([7, 3], [1, 9, 4])


def said(reply: list[int], width: int = 3) -> TopkLogprobs:
    """Three most likely tokens in each place, as a service names them: of a vocabulary of 12."""
    rng = np.random.default_rng(len(reply))
    tokens = np.stack([rng.permutation(12)[:width] for _ in reply])
    logprobs = -np.sort(rng.exponential(2.0, tokens.shape)) - 1
    return TopkLogprobs(tokens.astype(np.int32), logprobs.astype(np.float32))


def turn(prompt: list[int], reply: list[int]) -> Turn:
    more = {"topk": said(reply), "views": {"other": TurnView([5], [2, 2])}}
    return Turn(prompt, reply, [-1.0] * len(reply), "", "", 0.0, "stop", **more)  # type: ignore[arg-type]


def test_the_targets_are_the_shares_of_what_the_player_found_likeliest() -> None:
    """Two turns of one sequence, through the files of the run; in float64, with a vocabulary of 11,
    of which the player knew one token more."""
    first, second = REPLIES
    turns = [turn([5, 6], first), turn([5, 6, *first, 8], second)]
    (sequence,) = merged_sequences(turns)
    written = json.loads(json.dumps(sequence.written()))
    assert TokenSequence.read(written).written() == written
    (datum,) = _example([written], vocabulary=11)
    sent = {name: data.to_numpy() for name, data in datum.to_targets().loss_fn_inputs.items()}
    expected = np.zeros((7, 4))
    outside = 0
    for reply, start in ((first, 1), (second, 4)):
        for place, (tokens, logprobs) in enumerate(
            zip(said(reply).token_ids, said(reply).logprobs, strict=True)
        ):
            p = np.exp(logprobs.astype(np.float64)) * (tokens < 11)
            outside += int((tokens >= 11).sum())
            expected[start + place, :3] = p / p.sum()
            inside = np.where(tokens < 11, tokens, 0).tolist()
            assert sent["target_tokens"][start + place].tolist() == [*inside, reply[place]]
    assert outside
    assert sent["weights"] == pytest.approx(expected, abs=1e-7)
    assert datum.sampled == 5


def test_of_other_tokens_the_player_has_said_nothing() -> None:
    assert turn([5], [7, 3]).seen_as("other").topk is None


# Runs

SAMPLING = "sampling = sample(max_tokens = 16)"
EXPERT = train(
    "expert", env="spell", sampling="sample(max_tokens = 16)", steps="2", optimizer="adam(3e-2)"
)


def student(player: str = "expert", **fields: str) -> str:
    top_k = fields.pop("top_k", "5")
    stage = {
        "model": "policy",
        "data": f"samples({player}, env = spell, n = 16, keep = all, top_k = {top_k}, {SAMPLING})",
        "batch": "8",
        "steps": "6",
        "optimizer": "adam(5e-3)",
    }
    return block("sft", "student", stage | fields)


def kept(path: Path, stage: str = "student") -> list[TokenSequence]:
    records = map(json.loads, (path / f"examples-{stage}.jsonl").read_text().splitlines())
    return [TokenSequence.read(one) for record in records for one in record["sequences"]]


@pytest.mark.engine
def test_a_student_comes_nearer_to_the_player() -> None:
    """The loss less what the player leaves open is the distance, in float64."""
    at_once = student(batch="16", steps="1").replace("sft student", "sft whole")
    path = undisturbed(tiny(EXPERT, student(), at_once))
    records = metrics(path, "student")
    assert records[-1]["teacher/forward_kl"] < 0.4 * records[0]["teacher/forward_kl"]
    assert all(0 < record["teacher/mass"] < 1 for record in records)
    (whole,) = metrics(path, "whole")
    entropies, masses = [], []
    for sequence in kept(path, "whole"):
        for topk in sequence.topk.values():
            p = np.exp(topk.logprobs.astype(np.float64))
            shares = p / p.sum(axis=1, keepdims=True)
            entropies += (-shares * np.log(shares)).sum(axis=1).tolist()
            masses += p.sum(axis=1).tolist()
    assert whole["examples/tokens"] == len(entropies)
    distance = whole["loss/mean"] - float(np.mean(entropies))
    assert whole["teacher/forward_kl"] == pytest.approx(distance, rel=1e-4)
    assert whole["teacher/mass"] == pytest.approx(float(np.mean(masses)), rel=1e-6)


def test_of_oneself_there_is_nothing_to_learn() -> None:
    """All tokens of the vocabulary: their shares are the model's own."""
    path = undisturbed(tiny(student("policy", top_k="1_000", steps="1")))
    (record,) = metrics(path, "student")
    assert record["teacher/mass"] == pytest.approx(1.0, abs=1e-5)
    assert abs(record["teacher/forward_kl"]) < 1e-5


def test_a_resumed_student_learns_the_same_shares(tmp_path: Path) -> None:
    assert_resumes(tiny(student("policy", steps="3")), ("student", 2), tmp_path)


@pytest.mark.server
@pytest.mark.slow
def test_an_agent_is_kept_with_what_it_might_have_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text('{"prompt": "Say e.", "answer": "e"}\n')
    shop = 'env spell = agent("agent_programs:two_turns", tasks = rows("rows.jsonl"))\n'
    text = 'model policy { base = "tiny" lora_rank = 4 }\n' + shop + student("policy", steps="1")
    (tmp_path / "recipe.rl").write_text(text.replace("n = 16", "n = 4").replace("8\n", "4\n"))
    rlc.run(tmp_path / "recipe.rl", run_dir=tmp_path / "run")
    for sequence in kept(tmp_path / "run"):
        assert {*sequence.topk} == {0, 1}
        for number, topk in sequence.topk.items():
            assert topk.token_ids.shape == (sequence.turns.count(number), 5)


@pytest.mark.server
def test_on_a_server_it_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-local")
    (tmp_path / "recipe.rl").write_text(TINY + student("policy", steps="2"))
    served = rlc.load(tmp_path / "recipe.rl", service="tinker")
    with running_server(tmp_path / "served") as url:
        rlc.run(served, run_dir=tmp_path / "far", base_url=url)
    near = metrics(undisturbed(tiny(student("policy", steps="2"))), "student")
    for one, other in zip(metrics(tmp_path / "far", "student"), near, strict=True):
        for name in ("teacher/forward_kl", "teacher/mass", "loss/mean"):
            assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5), name
