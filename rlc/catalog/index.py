"""The catalogue as a whole: every kind, every builtin, found by name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, TypeVar

from rlc.algo import RATING_INPUTS, AdvantageScheme
from rlc.catalog.builtins import (
    advantages,
    frameworks,
    graders,
    losses,
    sources,
    stages,
    training,
    wrappers,
)
from rlc.catalog.builtins.stages import NO_ADVANTAGE
from rlc.catalog.records import (
    AggregateTraits,
    Builtin,
    DataTraits,
    GraderTraits,
    Kind,
    LossTraits,
    MetricTraits,
    OpponentTraits,
    PreferenceTraits,
    SourceTraits,
    TeacherTraits,
    TrackerTraits,
    WrapperTraits,
)
from rlc.errors import Error
from rlc.plan import AggregatePlan, KlPlan, LossPlan, PreferenceLossPlan, TeacherPlan
from rlc.records import evolve

if TYPE_CHECKING:
    from rlc.algo import KnownLoss, Program

T = TypeVar("T")

KINDS = {
    kind.name: kind
    for kind in (
        Kind("model", "a model", "policy"),
        Kind(
            "env",
            "an environment",
            'gem("game:Sudoku-v0-easy") |> chat()',
            step="wrapper",
            start='gem("…")',
            several="3 * whodunit + 1 * gsm8k",
            named=True,
        ),
        Kind(
            "price",
            "prices",
            '{ prefill = $0.2  sample = $0.6  train = $0.6  as_of = "2026-11-20" }',
            apart=True,
            nameable=False,
        ),
        Kind("wrapper", "a wrapper", "chat()"),
        Kind(
            "opponent",
            "an opponent",
            "self, past(every = 20), a model, a stage or a program",
            also="model",
            apart=True,
            nameable=False,
        ),
        Kind(
            "grader",
            "a grader",
            'grade_with("rewards.py:reward")',
            several='{ right = grade_with("rewards.py:right"), brief = 0.2 * '
            'grade_with("rewards.py:brief") }',
            named=True,
            weighted=True,
        ),
        Kind(
            "judge",
            "a judge",
            'rubric("rubric.md", model = big)',
            several='{ clear = rubric("clear.md", model = big), brief = 0.2 * '
            'rubric("Is it brief?", model = big) }',
            named=True,
            weighted=True,
        ),
        Kind(
            "endpoint",
            "an endpoint",
            'endpoint("https://api.openai.com/v1", model = "gpt-5", key = "OPENAI_API_KEY")',
            nameable=False,
        ),
        Kind("advantage", "an advantage scheme", "grpo()", "step", "returns()", named=True),
        Kind("step", "an advantage step", "baseline(mean, over = group)"),
        Kind("loss", "a loss", "importance_sampling()"),
        Kind("expression", "an expression", "-ratio * adv", nameable=False),
        Kind("aggregate", "a way to add up token losses", "token_mean()"),
        Kind("kl", "a KL penalty", "reference(policy.base, coef = 0.01)"),
        Kind(
            "teacher",
            "a teacher",
            "reverse_kl(big)",
            several="{ maths = reverse_kl(big), code = reverse_kl(coder) }",
        ),
        Kind("state", "a state with its optimiser", 'state("runs/x")', apart=True, nameable=False),
        Kind("optimizer", "an optimizer", "adam(1e-4)"),
        Kind("rate", "a recommended learning rate", "recommended_rate(0.1)", nameable=False),
        Kind("schedule", "a learning-rate schedule", "cosine(warmup = 10)"),
        Kind("overlap", "a way to overlap sampling and training", "streamed(minibatches = 4)"),
        Kind("batch", "a batch", "groups(16, group_size = 8)"),
        Kind("sampling", "a way of sampling", "sample(max_tokens = 512)"),
        Kind("save", "a checkpoint rule", "every(20)"),
        Kind("budget", "a budget", "$60", plain={"money": "usd", "duration": "time"}),
        Kind("data", "data to learn from", "demonstrations(sums, n = 2_000)"),
        Kind("preferences", "a set of preferences", 'pairs("pairs.jsonl")'),
        Kind("preference_loss", "a loss over preferences", "dpo(beta = 0.1)"),
        Kind("keep", "a choice of episodes", "at_least(0.5)"),
        Kind("split", "a split", "first(90%)", as_is="string"),
        Kind("metric", "a metric", "pass_at(8)"),
        Kind("tracker", "a place to send metrics to", 'wandb("my-project")'),
        Kind("failure", "a failure policy", "retry(3) then drop", before_then="retry"),
        Kind("retry", "a number of retries", "retry(3)"),
        Kind("give_up", "a limit of failures", "failures(steps = 3)"),
        Kind("deadlines", "deadlines", "deadlines(request = 15m)"),
        Kind("players", "players", "processes(8)"),
        Kind("kl_guard", "a KL guard", "kl_guard(max = 0.1, then = synchronous)"),
        Kind("stage", "a stage", "main", nameable=False),
        Kind("axis", "values to try", "[1e-5, 4e-5]", as_is="list", nameable=False),
        Kind("measure", "a metric of a stage", "heldout.pass_at_1", nameable=False),
        Kind("search", "a search", "grid()", apart=True),
        Kind("task", "a task", '{ question = "2 + 2?" }', as_is="record", nameable=False),
        Kind("expectation", "an expectation", 'reward("4") == 1', nameable=False),
        Kind("sweep", "a sweep", "rates", nameable=False),
        Kind(
            "comparison",
            "a comparison of configurations",
            "at(learning_rate == 1e-4) > at(learning_rate == 1e-5)",
            nameable=False,
        ),
    )
}

BUILTINS: tuple[Builtin, ...] = (
    *sources.SOURCES,
    *frameworks.FRAMEWORKS,
    *sources.SPLITS,
    *wrappers.WRAPPERS,
    *frameworks.PLAYERS,
    *graders.GRADERS,
    *advantages.PRESETS,
    *advantages.STEPS,
    *losses.LOSSES,
    *stages.TEACHERS,
    *training.SETTINGS,
    *stages.STAGE_PARTS,
    *training.SWEEPS,
)


class UnknownBuiltinError(Error, KeyError):
    """A name in a plan that no builtin of its kind has."""


_BY_NAME = {(builtin.kind, builtin.name): builtin for builtin in BUILTINS}
_OF_ANY_KIND = {builtin.name: builtin for builtin in reversed(BUILTINS)}


def find_builtin(kind: str, name: str) -> Builtin | None:
    """Return the builtin of a kind with that name."""
    return _BY_NAME.get((kind, name))


def find_anywhere(name: str) -> Builtin | None:
    """Return the first builtin of that name: those of different kinds may share one."""
    return _OF_ANY_KIND.get(name)


def is_taken(name: str, kind: str | None = None) -> bool:
    """Return whether a call has a name, or a word that may stand for a declaration's ``kind``."""
    builtin = find_anywhere(name)
    if builtin is None or KINDS[builtin.kind].as_is is not None or KINDS[builtin.kind].apart:
        return False
    return not builtin.word or builtin.kind == kind


def _traits(kind: str, traits: type[T], noun: str, name: str) -> T:
    builtin = _BY_NAME.get((kind, name))
    if builtin is None or not isinstance(builtin.traits, traits):
        raise UnknownBuiltinError(f"there is no {noun} `{name}()`")
    return builtin.traits


# The traits of a builtin by its name. Each raises UnknownBuiltinError if there is none.
service_loss_traits = partial(_traits, "loss", LossTraits, "loss")
aggregate_traits = partial(_traits, "aggregate", AggregateTraits, "aggregation")
data_traits = partial(_traits, "data", DataTraits, "data")
source_traits = partial(_traits, "env", SourceTraits, "environment source")
wrapper_traits = partial(_traits, "wrapper", WrapperTraits, "wrapper")
teacher_traits = partial(_traits, "teacher", TeacherTraits, "teacher")
grader_traits = partial(_traits, "grader", GraderTraits, "grader")
metric_traits = partial(_traits, "metric", MetricTraits, "metric")
opponent_traits = partial(_traits, "opponent", OpponentTraits, "opponent")
tracker_traits = partial(_traits, "tracker", TrackerTraits, "tracker")
players_traits = partial(_traits, "players", training.PlayersTraits, "players")


def loss_traits(loss: LossPlan) -> LossTraits:
    """Return the traits of a loss. Raise UnknownBuiltinError if the service has no such loss."""
    return service_loss_traits(loss.name) if loss.program is None else own_loss_traits(loss.program)


def preference_program(loss: PreferenceLossPlan) -> Program:
    """Return the program of a loss over preferences. Raise UnknownBuiltinError if there is no such
    loss."""
    from rlc.algo import preference_program

    if loss.program is not None:
        return loss.program
    if ("preference_loss", loss.name) not in _BY_NAME:
        raise UnknownBuiltinError(f"there is no loss over preferences `{loss.name}()`")
    return preference_program(loss.name, loss.config)


def preference_traits(loss: PreferenceLossPlan) -> PreferenceTraits:
    """Return the traits of a loss over preferences. Raise UnknownBuiltinError if there is no such
    loss."""
    program = loss.program or preference_program(PreferenceLossPlan(loss.name, {}))
    words = {word for name in program.inputs for word in name.split("_")}
    ratings = tuple(name for name in RATING_INPUTS if name in program.inputs)
    return PreferenceTraits("ref" in words, program.shape == "reply", "length" in words, ratings)


def preference_losses(trait: str) -> list[str]:
    """Return the names of the losses over preferences with a trait."""
    names = names_of("preference_loss")
    return [n for n in names if getattr(preference_traits(PreferenceLossPlan(n, {})), trait)]


def can_weigh(aggregate: AggregatePlan, loss: LossPlan) -> bool:
    """Return whether the weights of an aggregation can be folded into a loss."""
    traits, weighs = loss_traits(loss), aggregate_traits(aggregate.kind)
    if traits.pull is None:
        return True
    # A pull of the service's own is not known, and keeps the weight that it has.
    return weighs.uniform if traits.pull in loss.config else weighs.over is None


@lru_cache(maxsize=64)
def own_loss_traits(program: Program) -> LossTraits:
    """Return the traits of a recipe's own loss."""
    from rlc.algo import degree, needs_batch, ratio_is_bounded, reads_trainer, unbounded

    return LossTraits(
        takes_stale=ratio_is_bounded(program).positive,  # as PPO's
        sampler_logprobs="logq" in program.inputs,
        reference="ref" in program.inputs,
        # What is computed over the batch takes the advantages as they are.
        weighted=degree(program).of != 1 or needs_batch(program),
        forward=reads_trainer(program),
        unbounded=unbounded(program),
    )


def learns_targets_alone(
    advantage: AdvantageScheme, kl: KlPlan | None, teachers: Iterable[TeacherPlan]
) -> bool:
    """Return whether only the teachers' most likely tokens are learnt, without advantages."""
    scored = [one for one in teachers if one.coef and not teacher_traits(one.kind).targets]
    taught = any(teacher_traits(one.kind).targets for one in teachers)
    return taught and not scored and advantage == NO_ADVANTAGE and not (kl and kl.coef)


def service_settings(loss: str) -> dict[str, float | None]:
    """Return the service's settings of a loss with their defaults; None for a required pull."""
    traits, builtin = service_loss_traits(loss), _BY_NAME["loss", loss]
    keys = {traits.config[param.name]: param.default for param in builtin.params}
    return {k: traits.usual_pull if k == traits.pull else default for k, default in keys.items()}


def known_preference(program: Program) -> KnownLoss | None:
    """Return the loss over preferences that an expression is; None if it is none that comes with
    rlc."""
    from rlc.algo import known_preference, preference_candidates

    return known_preference(program, preference_candidates())


def known_loss(program: Program) -> KnownLoss | None:
    """Return the service's loss that equals an expression, with the service's settings; or None."""
    from rlc.algo import LOSSES, Candidate, known_loss

    candidates = [
        Candidate(name, tuple(loss.settings), loss.program)
        for name, loss in LOSSES.items()
        if service_loss_traits(name).published
    ]
    if (found := known_loss(program, candidates)) is None:
        return None
    keys = LOSSES[found.name].settings
    return evolve(found, config={keys[name]: value for name, value in found.config.items()})


def builtins_of(kind: str) -> list[Builtin]:
    return [builtin for builtin in BUILTINS if builtin.kind == kind]


def names_of(kind: str) -> list[str]:
    return [builtin.name for builtin in builtins_of(kind)]


@cache
def words_of(kind: str) -> list[str]:
    """Return the names of a kind that are words, without parentheses."""
    return [builtin.name for builtin in builtins_of(kind) if builtin.word]


def how_to_make(kind: str) -> str:
    """Return a hint at what makes a thing of some kind."""
    names = ", ".join(f"`{name}()`" for name in names_of(kind)[:8])
    if not names or words_of(kind):
        return f"for example `{KINDS[kind].example}`"
    return f"{KINDS[kind].noun} is made by {names}"
