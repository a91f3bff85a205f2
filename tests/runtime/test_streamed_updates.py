"""Every overlap trains on the same: the datums, advantages and weights of each optimiser update.

Stages are run by the executor on the graph of their plan, with groups, references and gradients
that come in at any moment. What is compared is float64, to the bit.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence
from functools import reduce
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from algo_schemes import declared
from attrs import define, evolve, field, frozen
from expressions import program
from hypothesis import given, settings
from hypothesis import strategies as st
from run_support import tiny, train
from stage_parts import changed, flat
from tinker import types
from tinker.types.topk_logprobs import TopkLogprobs

from rlc.algo import (
    SHARED_BY,
    AdvantageScheme,
    Baseline,
    Clip,
    Returns,
    Scale,
    scheme_of_returns,
    with_step,
)
from rlc.catalog.index import aggregate_traits, loss_traits
from rlc.envs.build import PlayableEnv
from rlc.plan.graph import build_graph
from rlc.plan.parts import (
    AggregatePlan,
    BatchPlan,
    KlPlan,
    LossPlan,
    ModelState,
    OverlapPlan,
    TeacherPlan,
)
from rlc.plan.stages import PolicyGradient, Rollouts, Training
from rlc.runtime.graph import Inputs, NodeContext, StepOutcome, run_steps
from rlc.runtime.records import Rollout, Turn, Usage
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task, TaskRounds, TaskStream, new_cursor
from rlc.runtime.stages.computation import StepComputation
from rlc.runtime.stages.train import TrainStage
from rlc.runtime.summary import Observer
from rlc.runtime.updates.datums import Minibatch, TrainingDatum
from rlc.runtime.updates.optimizer import PendingGradients
from rlc.runtime.updates.scorers import LogprobScorer, LogprobScorers
from rlc.runtime.weights import SamplerSnapshot

pytestmark = [pytest.mark.plain, pytest.mark.slow]  # the first for tinker's types

STEPS = 3
(BASE,) = tiny(train(env="2 * guess + spell")).stages
assert isinstance(BASE, Training)
LOSSES = [
    LossPlan("importance_sampling", {}),
    LossPlan("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}),
    LossPlan("dro", {"beta": 0.5}),
    LossPlan("cross_entropy", {}),
    LossPlan("stable_reinforce", {"kl_coeff": 0.1}),
    LossPlan("gspo", {"clip_low_threshold": 0.99, "clip_high_threshold": 1.01}, mean=True),
    # Of degree one, of another, of a sequence each.
    LossPlan("own", {}, program("-ratio * adv * sigmoid(ratio)")),
    LossPlan("own", {}, program("exp(logp - logq) - adv * logp * adv")),
    LossPlan("own", {}, program("-exp(mean(logp - logq)) * mean(adv)")),
    LossPlan("own", {}, program("mean(ratio) - mean(adv) * mean(adv) * mean(ratio)")),
    # Of the whole batch: by the sampler's logprobs, and by the trainer's.
    LossPlan("own", {}, program("-ratio * (adv - batch_mean(adv)) * batch_top(logq * adv, 0.2)")),
    LossPlan("own", {}, program("-ratio * adv * batch_draw(logp - batch_mean(logp), 0.3)")),
]


class Letters:
    """A tokenizer of one letter a token."""

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(ord("a") + token) for token in tokens)


async def rounds(count: int) -> None:
    """Let others go first so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


def outcome(task: Task, kinds: Sequence[str]) -> list[Rollout]:
    """What a task's group does, whenever it is played: failures, groups of equals, episodes whose
    turns extend each other or do not, replies without a token."""
    random, name = Random(f"{task.env.plan.name} {task.number}"), task.env.plan.name
    kind = random.choice(kinds)
    equal = random.choice([0.0, 1.0])
    group = []
    for member in range(task.size):
        failed = kind == "failed" or (kind == "mixed" and random.random() < 0.2)
        penalised = failed and random.random() < 0.5
        prompt, turns = [random.randrange(50) for _ in range(3)], list[Turn]()
        for _ in range(random.randint(0 if penalised else 1, 3)):
            tokens = [random.randrange(50) for _ in range(random.randint(0, 4))]
            logprobs = [-random.randrange(1, 16) / 8 for _ in tokens]
            sequence = f"{name} {task.number} {member} {len(turns)}"
            steps = [(end, random.choice([-1.0, 0.5])) for end in range(1, len(tokens) + 1, 2)]
            said = "", Letters().decode(tokens), 0.0, "stop"
            turn = Turn(prompt, tokens, logprobs, *said, sequence_id=sequence, steps=steps)
            turns.append(turn)
            prompt = [*prompt, *tokens, 7] if random.random() < 0.7 else [8, *prompt]
        credit = [random.choice([0.0, 0.5, 1.0]) for _ in turns]
        if kind == "equal":
            credit = [0.0] * (len(turns) - 1) + [equal]
        rollout = Rollout(name, task.number, member, "", tuple(turns), "done", tuple(credit))
        if failed:
            rollout = evolve(
                rollout,
                error="cause",
                turns=rollout.turns if penalised else (),
                credit=(*credit[:-1], -1.0) if penalised else (),
            )
        roles = {"spell": "solver" if member % 2 else "judge"}
        group.append(evolve(rollout, role=roles.get(name, "")))
    return group


def logprob(token: int) -> float:
    """Of another model than the sampler."""
    return -(token % 11) / 8


@frozen(eq=False)
class OtherModel:
    """Answers at some moment."""

    moments: Random

    async def compute_logprobs(self, prompt: types.ModelInput) -> list[float | None]:
        await rounds(self.moments.randrange(30))
        return [None, *map(logprob, prompt.to_ints()[1:])]

    async def sample(self, prompt: types.ModelInput, *_: Any) -> types.SampleResponse:
        """Three tokens are most likely in the place of each, and it is one of them."""
        logprobs = await self.compute_logprobs(prompt)
        tokens = np.array([[token, token + 1, token + 2] for token in prompt.to_ints()], np.int32)
        known = np.array([np.nan, *(float(value or 0) for value in logprobs[1:])], np.float32)
        topk = np.log(np.full(tokens.shape, [0.5, 0.25, 0.125]))
        return types.SampleResponse([], known, TopkLogprobs(tokens, topk))


@define(eq=False)
class Trainer:
    """Notes the minibatches that each update is made of; a gradient takes a while."""

    moments: Random
    submitted: deque[Minibatch] = field(factory=deque)
    gathered: list[Minibatch] = field(factory=list)
    updates: list[list[Minibatch]] = field(factory=list)

    def forward_backward_custom(self, data: list[types.Datum], loss: Any) -> Any:
        return self.forward_backward(data, "own", None)

    def forward_backward(self, data: list[types.Datum], loss: str, config: Any = None) -> Any:
        minibatch = self.submitted.popleft()
        assert len(data) == len(minibatch.datums)
        datums = [
            evolve(datum, batch=batch_of(sent))
            for datum, sent in zip(minibatch.datums, data, strict=True)
        ]
        self.gathered.append(evolve(minibatch, datums=datums))
        return self.forward(data, loss)

    async def forward(self, data: list[types.Datum], loss: str) -> types.ForwardBackwardOutput:
        await rounds(self.moments.randrange(60))
        targets = [datum.loss_fn_inputs["target_tokens"].to_numpy() for datum in data]
        rows = [np.vectorize(logprob, otypes=[np.float32])(row) for row in targets]
        return types.ForwardBackwardOutput(
            loss_fn_output_type="",
            loss_fn_outputs=[{"logprobs": types.TensorData.from_numpy(row)} for row in rows],
            metrics={"loss:sum": 0.0},
        )

    def optim_step(self, params: types.AdamParams) -> Any:
        self.updates.append(self.gathered)
        self.gathered = []

        async def answer() -> types.OptimStepResponse:
            return types.OptimStepResponse(metrics={})

        return answer()


@define(eq=False)
class Weights:
    training: Trainer
    plan: Training
    step: int = 0

    @property
    def own_loss(self) -> Any:
        return None if flat(self.plan).loss.program is None else SimpleNamespace(in_client=False)

    async def snapshot(self, step: int) -> SamplerSnapshot:
        return SamplerSnapshot(None, step)  # type: ignore[arg-type]

    async def checkpoint(self, node: NodeContext, inputs: Inputs) -> None:
        return None


@define(eq=False)
class StageUnderTest(TrainStage):
    """Plays made-up groups, each until some moment."""

    moments: Random
    kinds: Sequence[str]

    async def _play(self, player: Player, step: int, task: Task) -> list[Rollout]:
        await rounds(self.moments.randrange(40))
        return outcome(task, self.kinds)

    async def forward_backward(self, node: NodeContext, inputs: Inputs) -> PendingGradients:
        trainer = self.weights.training
        assert isinstance(trainer, Trainer)
        for made in inputs["datums"].minibatches:
            trainer.submitted.extend(
                evolve(made, datums=datums, taught=[])
                for datums in (made.datums, made.taught)
                if datums
            )
        return await super().forward_backward(node, inputs)


def batch_of(datum: types.Datum) -> dict[str, Any]:
    """What was computed over the batch, as it was sent."""
    sent = datum.loss_fn_inputs
    return {key: sent[key].to_numpy() for key in sent if key.startswith("batch_")}


def trained_on(minibatch: Minibatch) -> list[Any]:
    def row(datum: TrainingDatum) -> Any:
        arrays = (datum.targets_T, datum.logprobs_T, datum.advantages_T, datum.mask_T)
        computed = sorted((key, np.asarray(value).tolist()) for key, value in datum.batch.items())
        said = datum.topk and (datum.topk.tokens_TK, datum.topk.shares_TK)
        learnt = [array.tolist() for array in said or ()]
        return datum.inputs, [array.tolist() for array in arrays], datum.weight, computed, learnt

    return [row(datum) for datum in minibatch.datums]


def executed(plan: Training, kinds: Sequence[str], seed: int, ahead: int) -> list[Any]:
    """Of each step: the updates, each with its loss and, sorted, its datums; the rollouts as they
    are written; the metrics. Further rounds of turns come after the first ones of so many steps."""
    moments, found = Random(seed), list[Any]()
    envs: dict[str, PlayableEnv] = {
        env.name: PlayableEnv(env, None, None)  # type: ignore[arg-type]
        for env in flat(plan).envs
    }
    meter: Any = SimpleNamespace(running=defaultdict(Usage))
    trainer = Trainer(moments)
    other: Any = OtherModel(moments)
    scorers = {
        "reference": [LogprobScorer(other, meter)] if flat(plan).kl else [],
        "teacher": [
            LogprobScorer(other, meter, env=teacher.name, top_k=teacher.top_k, vocabulary=10_000)
            for teacher in flat(plan).teacher
        ],
    }
    stream, batch = TaskStream(envs, new_cursor(list(envs)), 1, ("main",)), flat(plan).batch
    stage = StageUnderTest(
        seed=1,
        weights=Weights(trainer, plan),  # type: ignore[arg-type]
        meter=meter,
        scorers={name: LogprobScorers(used) for name, used in scorers.items() if used},
        plan=plan,
        source=plan.of(Rollouts),
        objective=plan.of(PolicyGradient),
        stream=stream,
        rounds=TaskRounds(stream, batch.at_once, ahead) if batch.kind == "turns" else None,
        observer=Observer(),
        auxiliary=None,  # type: ignore[arg-type]
        computation=StepComputation(1, plan, [], None, Letters()),
        heldout={},
        moments=moments,
        kinds=kinds,
    )

    async def commit(step: int, done: StepOutcome) -> bool:
        report = await stage.report(step, done)
        assert not trainer.gathered
        assert not trainer.submitted
        updates = [
            (
                {tuple(minibatch.loss_config.items()) for minibatch in minibatches},
                sorted(row for minibatch in minibatches for row in trained_on(minibatch)),
            )
            for minibatches in trainer.updates
        ]
        trainer.updates.clear()
        written = [{**record, "staleness": 0} for record in report.rollouts]
        told = {
            key: pytest.approx(value, abs=1e-9)
            for key, value in report.metrics.items()
            if key != "rollouts/staleness"
        }
        found.append((updates, written, told))
        return True

    graph, steps = build_graph([plan]), range(1, STEPS + 1)
    asyncio.run(run_steps(graph, "main", stage.functions(), steps, commit=commit))
    return found


within, across = st.sampled_from(["group", "role"]), st.sampled_from(["env", "batch", "batch_role"])
scopes = within | within | across
weights = st.sampled_from(["value", "tokens"])
steps = st.one_of(
    st.builds(
        Baseline,
        st.sampled_from(["mean", "leave_one_out", "length_weighted", "best_of_others"]),
        scopes,
        weights,
        st.sampled_from(["zero", "raw", "drop"]),
    ),
    st.builds(
        Scale,
        st.sampled_from(["std", "std_of_others", "rms", "mean", "nonzero_share"]),
        scopes,
        weights,
        st.integers(0, 1),
        st.just(1e-6),
        st.sampled_from(["outside", "inside", "clamp"]),
        st.sampled_from(["values", "returns"]),
    ),
    st.builds(Clip, st.just(-1.5), st.just(1.5)),
)
schemes = st.builds(
    lambda returns, chosen, constant: reduce(
        with_step, chosen, scheme_of_returns("random", returns, constant)
    ),
    st.builds(Returns, st.sampled_from(["episode", "turn"]), st.sampled_from([0.5, 1.0])),
    st.lists(steps, max_size=3),
    st.sampled_from(["keep", "drop"]),
)


# Of each token: its place and logprob, then what a reference and a teacher think of it.
_TO_GO = "togo = discounted(where(position == tokens, reward, 0) + process {}, 0.9)"
_CENTRED = "token = togo - mean(first(togo), over = {})"
TOKEN_SCHEMES = {
    ("", ""): _TO_GO.format("- 0.1 * logq"),
    ("ref", ""): _TO_GO.format("- 0.1 * (logq - ref)"),
    ("", "teacher"): _TO_GO.format("+ teacher - logq"),
    ("ref", "teacher"): _TO_GO.format("+ 0.5 * teacher - 0.5 * ref"),
}


def of_tokens(read: tuple[str, str], over: str) -> AdvantageScheme:
    keep = "keep = max(sum(reward), over = group) + sum(logq) / 64"
    return declared(f"advantage own {{ {keep}  {TOKEN_SCHEMES[read]}  {_CENTRED.format(over)} }}")


def teacher(kind: str, discount: st.SearchStrategy[float], top_k: int | None) -> Any:
    return st.builds(
        TeacherPlan,
        st.sampled_from([None, "spell"]),
        st.just(kind),
        st.just(ModelState(BASE.model, None)),
        st.sampled_from([0.5, 1.0]),
        discount,
        st.none(),
        st.none(),
        st.just(top_k),
    ).map(lambda one: (one,))


teachers = teacher("reverse_kl", st.sampled_from([0.0, 0.5]), None) | teacher(
    "forward_kl", st.just(0.0), 3
)


def _taught(teachers: tuple[TeacherPlan, ...]) -> tuple[TeacherPlan, ...]:
    """A teacher for the other environments of a plan, if the first has only one of them."""
    (one,) = teachers
    assert isinstance(BASE, Training)
    others = [env.name for env in flat(BASE).envs if env.name != one.name] if one.name else []
    return tuple(evolve(one, name=name, coef=2.0) for name in others)


updates = st.sampled_from([1, 1, 2, 3])
groups = st.builds(
    lambda count, updates, spares: BatchPlan("groups", count, 4, None, updates, spares),
    st.integers(1, 7),
    updates,
    st.integers(0, 3),
)
# One round or several, of which the last brings more turns than are chosen, or too few.
turns = st.builds(
    lambda count, parallel, updates: BatchPlan("turns", count, 1, parallel, updates),
    st.integers(1, 30),
    st.integers(1, 7),
    updates,
)


@st.composite
def plans(draw: st.DrawFn) -> Training:
    loss = draw(st.sampled_from(LOSSES))
    free = loss_traits(loss).pull is None  # a loss of one's own takes weights of any kind
    kinds = [kind for kind in SHARED_BY if free or aggregate_traits(kind).uniform]
    aggregates = st.just("token_sum") | st.sampled_from(kinds)
    batch = draw(groups | groups | turns)
    members = 4 if batch.kind == "groups" else draw(st.sampled_from([1, 1, 4]))
    failures = draw(st.sampled_from([None, 0, 1]))
    kl = draw(
        st.none() | st.none() | st.builds(KlPlan, st.just("tiny"), st.just(0.5), st.just(0.0))
    )
    taught = draw(st.just(()) | teachers | teachers.map(lambda one: (*one, *_taught(one))))
    there = ("", "ref") if kl else ("",), ("", "teacher") if taught else ("",)
    own = st.builds(of_tokens, st.tuples(*map(st.sampled_from, there)), scopes)
    assert isinstance(BASE, Training)
    return changed(
        BASE,
        steps=STEPS,
        envs=tuple(
            evolve(env, rollouts=evolve(env.rollouts, group=members, max_failures=failures))
            for env in flat(BASE).envs
        ),
        batch=batch,
        advantage=draw(schemes | schemes | own),
        aggregate=AggregatePlan(draw(aggregates), 5),
        loss=loss,
        kl=kl,
        teacher=taught,
    )


streamed = st.builds(
    OverlapPlan,
    st.just("streamed"),
    st.integers(2, 5),
    st.just(0),
    st.sampled_from(["ready", "fixed"]),
)
asynchronous = st.builds(
    OverlapPlan,
    st.just("asynchronous"),
    st.sampled_from([1, 1, 2, 4]),
    st.integers(1, 2),
    st.sampled_from(["ready", "fixed"]),
)


@given(
    plan=plans(),
    overlap=streamed | asynchronous,
    kinds=st.lists(st.sampled_from(["mixed", "mixed", "equal", "failed"]), min_size=1, max_size=5),
    seeds=st.tuples(st.integers(0, 99), st.integers(0, 99)),
)
@settings(max_examples=90, deadline=None, derandomize=True)
def test_every_overlap_makes_the_updates_of_the_whole_batch(
    plan: Training, overlap: OverlapPlan, kinds: list[str], seeds: tuple[int, int]
) -> None:
    ahead = overlap.max_staleness
    whole = executed(plan, kinds, seeds[0], ahead)
    assert executed(changed(plan, overlap=overlap), kinds, seeds[1], ahead) == whole
