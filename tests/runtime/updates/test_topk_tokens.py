"""Students that learn the top-k tokens of a teacher: its value, its gradient, and runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve
from http_testing import running_server
from local_support import VOCABULARY, engine, folder, run
from run_support import (
    TINY,
    assert_resumes,
    compiled,
    metrics,
    tiny,
    train,
    undisturbed,
)
from tinker import types
from tinker.types.topk_logprobs import TopkLogprobs

import rlc
from rlc.algo.kl import forward_kl
from rlc.pricing.cost import plan_cost
from rlc.runtime.records import Rollout, Turn, Usage
from rlc.runtime.updates.datums import episode_datums
from rlc.runtime.updates.scorers import LogprobScorer
from rlc.service.interface import ServiceError

pytestmark = pytest.mark.plain

PROMPT, REPLY = [5, 17, 40, 9], [33, 61, 12, 80, 7]


@pytest.mark.parametrize("top_k", [1, 5, VOCABULARY])
def test_value_and_gradient_are_those_of_the_divergence(top_k: int, tmp_path: Path) -> None:
    """KL(s ‖ p) of the teacher's renormalised most likely tokens, computed with all of its logprobs
    in float64; over the whole vocabulary it is the divergence itself."""
    service = engine(tmp_path)
    turn = Turn(PROMPT, REPLY, [-1.0] * len(REPLY), "", "", 0.0, "stop")
    rollout = Rollout("env", 0, 0, "", (turn,), "done", (0.0,))

    async def work() -> None:
        teacher = await service.create_lora_training_client(folder(), rank=4, seed=1)
        student = await service.create_lora_training_client(folder(), rank=4, seed=2)
        for client, seed in ((teacher, 3), (student, 4)):  # a fresh adapter changes nothing
            client.trainer.adapter.flat_P.normal_(0, 0.2, generator=torch.manual_seed(seed))
        sampler = await teacher.save_weights_and_get_sampling_client()
        meter: Any = None
        scorer = LogprobScorer(sampler, meter, top_k=top_k, vocabulary=VOCABULARY)
        said = await scorer.score(rollout, Usage())
        (datum,) = episode_datums([turn], np.zeros(1), np.ones(1, bool), {"teacher": said})
        sent = evolve(datum, weight=0.25).to_targets()
        output = await student.forward_backward([sent], "cross_entropy")
        found_P = student.trainer.optimizer.gradient_P.clone()

        tokens = np.array([*PROMPT, *REPLY])[:-1]
        places = range(len(PROMPT) - 1, len(tokens))
        with torch.no_grad():
            teacher.trainer.base.use_adapter(teacher.trainer.adapter)
            logits_TV = teacher.trainer.base.packed_logits([tokens])[0]
            theirs_TV = torch.log_softmax(logits_TV.double(), dim=-1)
        student.trainer.base.use_adapter(student.trainer.adapter)
        ours_TV = torch.log_softmax(student.trainer.base.packed_logits([tokens])[0].double(), -1)
        distance = torch.zeros((), dtype=torch.float64)
        for place in places:
            best = torch.argsort(theirs_TV[place], descending=True)[:top_k]
            shares = torch.softmax(theirs_TV[place][best], dim=-1)
            distance = distance + (shares * (shares.log() - ours_TV[place][best])).sum()

        logprobs_TK = output.loss_fn_outputs[0]["logprobs"].to_numpy()
        (scores,) = said
        values = forward_kl(scores.shares_TK, logprobs_TK[:, :-1])[list(places)]
        assert values.sum() == pytest.approx(distance.item(), rel=1e-5)
        assert (values >= 0).all()
        sampled = [ours_TV[place, REPLY[i]].item() for i, place in enumerate(places)]
        assert logprobs_TK[list(places), -1] == pytest.approx(sampled, rel=1e-4)
        student.trainer.optimizer.gradient_P.zero_()
        (0.25 * distance).backward()  # type: ignore[no-untyped-call]
        expected_P = student.trainer.optimizer.gradient_P
        scale = float(expected_P.abs().max())
        assert scale > 0
        assert float((found_P - expected_P).abs().max()) < 1e-5 * scale
        if top_k == VOCABULARY:
            assert scores.mass_T == pytest.approx(1.0)

    try:
        run(work)
    finally:
        service.close()


def test_a_service_that_names_no_tokens_is_said() -> None:
    class Silent:
        async def sample(self, *_: Any) -> Any:
            return types.SampleResponse([], prompt_logprobs_np=np.zeros(2, np.float32))

    turn = Turn([1], [2], [0.0], "", "", 0.0, "stop")
    rollout = Rollout("env", 0, 0, "", (turn,), "done", (0.0,))
    scorer: Any = LogprobScorer(Silent(), None, top_k=3, vocabulary=9)  # type: ignore[arg-type]
    with pytest.raises(ServiceError, match="which tokens a teacher finds most likely"):
        run(lambda: scorer.score(rollout, Usage()))


def test_tokens_that_are_none_and_places_beyond_the_context_teach_nothing() -> None:
    """A vocabulary of 8, padded to 10 in the teacher, which reads four of six tokens."""

    class Padded:
        async def sample(self, prompt: Any, *_: Any) -> Any:
            known = prompt.length
            tokens = np.tile(np.array([[9, 3, 2]], np.int32), (known, 1))
            logprobs = np.tile(np.log([[0.5, 0.3, 0.1]]), (known, 1))
            reply = types.SampledSequence("length", "", tokens_np=np.array([1]))
            return types.SampleResponse(
                [reply],
                prompt_logprobs_np=np.zeros(known, np.float32),
                topk_prompt_logprobs_np=TopkLogprobs(tokens, logprobs),
            )

    turn = Turn([1, 2], [3, 4, 5, 6], [0.0] * 4, "", "", 0.0, "stop")
    rollout = Rollout("env", 0, 0, "", (turn,), "done", (0.0,))
    scorer: Any = LogprobScorer(Padded(), None, context=5, top_k=3, vocabulary=8)  # type: ignore[arg-type]
    usage = Usage()
    (said,) = run(lambda: scorer.score(rollout, usage))
    assert (usage.prefill, usage.sampled) == (4, 1)  # a request has a reply, which is paid too
    assert said.shares_TK[:3] == pytest.approx(np.tile([0.0, 0.75, 0.25], (3, 1)))
    assert said.mass_T == pytest.approx([0.4, 0.4, 0.4, 0.0, 0.0])
    assert np.isnan(said.logprobs_T).tolist() == [False, False, False, True, True]
    (datum,) = episode_datums([turn], np.zeros(1), np.ones(1, bool), {"teacher": [said]})
    weights = datum.to_targets().loss_fn_inputs["weights"].to_numpy()
    assert weights.sum(axis=1) == pytest.approx([0, 1, 1, 0, 0])


# Runs

STUDENT = {
    "env": "spell",
    "batch": "groups(6, group_size = 1)",
    "sampling": "sample(max_tokens = 16)",
    "teacher": "forward_kl(expert)",
    "loss": "cross_entropy()",
    "optimizer": "adam(5e-3)",
    "steps": "3",
}
EXPERT = train(
    "expert", env="spell", sampling="sample(max_tokens = 16)", steps="2", optimizer="adam(3e-2)"
)


def student(**fields: str) -> str:
    text = train("student", **{**STUDENT, **fields})
    return text if "advantage" in fields else text.replace("  advantage = grpo()\n", "")


def of_student(**fields: str) -> list[dict[str, Any]]:
    return metrics(undisturbed(tiny(EXPERT, student(**fields))), "student")


@pytest.mark.engine
def test_a_student_comes_nearer_without_a_reward() -> None:
    records = of_student()
    assert records[-1]["teacher/forward_kl"] < 0.7 * records[0]["teacher/forward_kl"]
    for record in records:
        assert record["teacher/forward_kl"] >= 0
        assert 0.9 < record["teacher/mass"] <= 1
        assert abs(record["kl/sample_train"]) < 1e-4  # of sampled tokens, which are fresh
        assert record["tokens/trained"] < record["tokens/teacher"]
        assert not record["optim/skipped"]


def first_step(**fields: str) -> dict[str, Any]:
    """Of a model that is shown more than it sees as a student: all sample the same."""
    fields = {"batch": "groups(3, group_size = 4)", "steps": "1", **fields}
    (record,) = metrics(undisturbed(tiny(student(**fields))))
    return record


@pytest.mark.engine
def test_its_gradient_is_added_to_that_of_the_loss() -> None:
    shown = 'forward_kl(policy, system = "Be terse."%s)'
    reward = {"advantage": "reinforce()", "loss": "importance_sampling()"}
    alone = first_step(teacher=shown % "")
    twice = first_step(teacher=shown % ", coef = 2")
    assert alone["teacher/forward_kl"] > 1e-3
    assert twice["loss/sum"] == pytest.approx(2 * alone["loss/sum"], rel=1e-5)
    added = first_step(teacher=shown % "", **reward)
    scored = first_step(**reward, teacher="{}")
    assert added["loss/sum"] == pytest.approx(alone["loss/sum"] + scored["loss/sum"], rel=1e-5)
    assert added["tokens/trained"] == alone["tokens/trained"] + scored["tokens/trained"]
    for name in ("teacher/forward_kl", "teacher/kl"):
        assert twice[name] == added[name] == pytest.approx(alone[name], rel=1e-5)
    mean = first_step(teacher=shown % "", aggregate="token_mean()")
    sampled = alone["loss/sum"] / mean["loss/sum"]
    assert sampled == pytest.approx(round(sampled), abs=1e-2)  # how many tokens are taught


def test_one_teacher_scores_and_another_names_tokens() -> None:
    both = '{ spell = forward_kl(policy, system = "x"), guess = reverse_kl(policy, system = "x") }'
    record = first_step(env="spell + guess", teacher=both, loss="importance_sampling()")
    assert {"teacher/kl/spell", "teacher/kl/guess", "teacher/forward_kl"} < record.keys()


def test_of_a_small_vocabulary_all_is_learnt() -> None:
    record = first_step(teacher='forward_kl(policy, system = "x", top_k = 1_000)')
    assert record["teacher/mass"] == pytest.approx(1.0, abs=1e-5)


OVERLAPPED = {"overlap": "streamed(minibatches = 3)"}


def test_streamed_parts_of_a_batch_have_the_gradient_of_the_whole() -> None:
    for one, other in zip(of_student(), of_student(**OVERLAPPED), strict=True):
        for name in ("teacher/forward_kl", "teacher/mass", "loss/sum", "optim/grad_norm"):
            assert other[name] == pytest.approx(one[name], rel=1e-4, abs=1e-6), name


def test_a_resumed_student_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    assert_resumes(tiny(EXPERT, student(**OVERLAPPED)), ("student", 2), tmp_path)


def test_its_gradient_is_priced() -> None:
    text = TINY.replace('base = "tiny"', 'base = "Qwen/Qwen3.5-4B"')
    text += 'model big = policy { base = "Qwen/Qwen3.5-397B-A17B" }\n'
    reward = {"advantage": "reinforce()", "loss": "importance_sampling()"}

    def trained(**fields: str) -> float:
        (cost,) = plan_cost(compiled(text + student(**fields)))
        return cost.bill["expected"]["train"].usd

    alone = trained(teacher="forward_kl(big)")
    assert alone == pytest.approx(trained(teacher="reverse_kl(big)", **reward))
    assert trained(teacher="forward_kl(big)", **reward) == pytest.approx(2 * alone)


@pytest.mark.server
def test_on_a_server_it_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-local")
    expert = EXPERT.replace("spell", "guess")  # which needs no knowledge of words to be rewarded
    (tmp_path / "recipe.rl").write_text(TINY + expert + student(steps="2"))
    served = rlc.load(tmp_path / "recipe.rl", service="tinker", seed=2)
    with running_server(tmp_path / "served") as url:
        rlc.run(served, run_dir=tmp_path / "far", base_url=url)
    rlc.run(rlc.load(tmp_path / "recipe.rl", seed=2), run_dir=tmp_path / "near")
    far, near = (metrics(tmp_path / where, "student") for where in ("far", "near"))
    assert near[0]["teacher/forward_kl"] > 0
    for one, other in zip(far, near, strict=True):
        assert one["tokens/teacher"] == other["tokens/teacher"]
        for name in ("teacher/forward_kl", "teacher/mass", "teacher/kl", "loss/sum"):
            assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-5), name
