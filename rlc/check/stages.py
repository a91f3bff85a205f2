"""Stages: their fields bound, and what depends on several of them decided."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import ceil
from typing import Any

from attrs import evolve, frozen

from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.environments import task_count
from rlc.check.bind import Owner, bind
from rlc.check.evaluate import Evaluator
from rlc.check.mixtures import Mixture, merged
from rlc.check.settle import Origins, settle
from rlc.check.values import Value, said, unwrap
from rlc.lang.ast import BlockDecl
from rlc.lang.diagnostics import Diagnostics, Label
from rlc.plan.records import EvalPlan, SftPlan, StagePlan, TrainPlan

PLANS: Mapping[str, Callable[..., StagePlan]] = {
    "train": TrainPlan,
    "sft": SftPlan,
    "eval": EvalPlan,
}
# A field's name in a recipe, and the attribute of the plan that it becomes.
_PART_NAMES = {"env": "envs"}

Values = dict[str, Value]


@frozen(eq=False, repr=False)
class CheckedStage:
    """A stage's declaration: its settled parts by field, and where they came from.

    Parts that could not be read are missing; :attr:`complete` says whether any are.
    """

    decl: BlockDecl
    parts: dict[str, Any]
    origins: Origins
    complete: bool

    @property
    def name(self) -> str:
        return self.decl.name.id

    def provenance(self) -> dict[str, str]:
        """Where each leaf of the plan came from, by dotted path."""
        return {"name": self.decl.name.span.place(), **self.origins.provenance()}

    def plan(self) -> StagePlan:
        """The stage's plan; only for a complete one."""
        return PLANS[self.decl.kind.id](name=self.name, **self.parts)


def check_stage(
    decl: BlockDecl, evaluator: Evaluator, earlier: Mapping[str, CheckedStage], found: Diagnostics
) -> CheckedStage:
    """Bind a stage's fields and decide what one field leaves to another."""
    kind = decl.kind.id
    article = "a" if kind == "train" else "an"
    owner = Owner(kind, f"{article} `{kind}` stage", "field", decl.name.span, unread=decl.unread)
    evaluator.scope.used.add(decl.name.id)
    bound = bind(decl.fields, DECLARATIONS[kind].fields, owner, evaluator.value, found)
    values, complete = dict(bound.values), bound.complete
    if "model" in values:
        _split_model(values)
    if kind == "eval":
        complete &= _sampling_of_stage(decl, values, earlier, found)
    else:
        given = {*decl.unread, *bound.unknown}
        complete &= _steps(decl, values, given, found)
    if "env" in values:
        values["env"] = _decided_envs(values["env"], values)
    if "data" in values and values["data"].data.env is not None:
        complete &= _one_env(values["data"], found)
        values["data"] = _decided_data(values["data"])
    written = {_PART_NAMES.get(name, name): value for name, value in values.items()}
    parts = {name: settle(value) for name, value in written.items()}
    return CheckedStage(decl, parts, Origins(decl.name.span, written), complete)


def _split_model(values: Values) -> None:
    """The model, and the stage whose weights are gone on from."""
    value = values["model"]
    after = value.data.after
    values["model"] = evolve(value, data=value.data.model)
    values["after"] = after or Value("string", None, value.span, "a fresh start")


def _steps(decl: BlockDecl, values: Values, misread: Collection[str], found: Diagnostics) -> bool:
    """``steps``, or as many as ``epochs`` take. Reports where neither or both are given."""
    steps, epochs = values.get("steps"), values.get("epochs")
    if steps is None or epochs is None:
        return False
    if (steps.data is None) == (epochs.data is None):
        if steps.data is None:
            if not {"steps", "epochs", "*"} & set(misread):
                message = f"`{decl.name.id}` needs `steps` or `epochs`"
                found.error("RL0309", decl.name.span, message, "for example `steps = 100`")
        else:
            label = Label(steps.span, "and here in steps")
            message = f"`{decl.name.id}` says twice how long it trains"
            found.error("RL0309", epochs.span, message, "keep one of them", label)
        return False
    if steps.data is None:
        tasks, per_step = _tasks(values), _tasks_in_step(values)
        if tasks is None or per_step is None:
            if "env" in values or "data" in values:
                message = "it is not known how many tasks an epoch has"
                advice = "give `steps`, or the number of tasks (`samples = 1_000` in the source)"
                found.error("RL0310", epochs.span, message, advice)
            return False
        count = ceil(epochs.data * tasks / per_step)
        plural = "s" * (epochs.data != 1)
        origin = f"{said(epochs.origin)}: {epochs.data} epoch{plural} of {tasks:,} tasks"
        values["steps"] = evolve(epochs, data=count, origin=origin)
    return True


def _tasks(values: Values) -> int | None:
    """Tasks of one epoch; None where unknown, and for a mixture."""
    if "data" in values:
        count = unwrap(values["data"].data.count)
        return None if count is None else int(count)
    envs: Mixture = values["env"].data if "env" in values else ()
    return task_count(_plain(envs[0])) if len(merged(envs)) == 1 else None


def _plain(env: Any) -> Any:
    """An environment with plain arguments."""
    args = {name: unwrap(value) for name, value in env.args.items()}
    return evolve(env, id=unwrap(env.id), source=unwrap(env.source), args=args)


def _tasks_in_step(values: Values) -> int | None:
    batch = values.get("batch")
    if batch is None:
        return None
    if batch.type == "int":
        return int(batch.data)
    return int(unwrap(batch.data.count)) if unwrap(batch.data.kind) == "groups" else None


def _sampling_of_stage(
    decl: BlockDecl, values: Values, earlier: Mapping[str, CheckedStage], found: Diagnostics
) -> bool:
    """An evaluation samples as its stage does, where it does not say otherwise."""
    sampling = values.get("sampling")
    if sampling is None or sampling.data is not None:
        return sampling is not None
    after = values["after"].data if "after" in values else None
    stage = earlier.get(after) if after else None
    if stage is not None and "sampling" in stage.parts:
        origin = f"sampling of {stage.name}"
        values["sampling"] = evolve(sampling, data=stage.parts["sampling"], origin=origin)
        return True
    if "model" in values and (stage is None or stage.decl.kind.id == "sft"):
        message = f"nothing says how `{decl.name.id}` samples its replies"
        advice = "for example `sampling = sample(max_tokens = 512)`"
        found.error("RL0302", decl.name.span, message, advice)
    del values["sampling"]
    return False


def _decided_envs(envs: Value, values: Values) -> Value:
    """Each environment once, its rollouts as it says, else as the stage says."""
    batch, sampling = values.get("batch"), values.get("sampling")
    group = values.get("samples") or (batch and batch.data.size)
    defaults = {
        "group": _origin_of(group, batch),
        "temperature": _origin_of(sampling and sampling.data.temperature, sampling),
        "max_tokens": _origin_of(sampling and sampling.data.max_tokens, sampling),
    }

    def decided(env: Any) -> Any:
        own: Any = unwrap(env.rollouts)
        filled = {
            name: default
            for name, default in defaults.items()
            if unwrap(getattr(own, name)) is None and default is not None
        }
        inherited = own if isinstance(env.rollouts, Value) else _undecided(own, envs)
        return evolve(env, rollouts=_within(env.rollouts, evolve(inherited, **filled)))

    return evolve(envs, data=tuple(decided(env) for env in merged(envs.data)))


def _undecided(rollouts: Any, envs: Value) -> Any:
    """The rollout settings of an environment that has none: they are defaults."""
    unset = evolve(envs, type="any", data=None, origin="default of rollouts")
    names = ("max_failures", "timeout", "turn_timeout", "step_timeout", "max_turns")
    return evolve(rollouts, **{n: evolve(unset, data=getattr(rollouts, n)) for n in names})


def _within(around: Any, record: Any) -> Any:
    return evolve(around, data=record) if isinstance(around, Value) else record


def _origin_of(leaf: Any, around: Value | None) -> Value | None:
    """A leaf with its own origin, or with that of what it is part of."""
    if leaf is None or around is None or isinstance(leaf, Value):
        return leaf if isinstance(leaf, Value) else None
    return evolve(around, type="any", data=leaf)


def _one_env(data: Value, found: Diagnostics) -> bool:
    env = data.data.env
    if len(merged(env.data)) == 1:
        return True
    message = "demonstrations come from one environment, not from a mixture"
    found.error("RL0201", env.span, message, "take one `sft` stage for each")
    return False


def _decided_data(data: Value) -> Value:
    """Demonstrations are played one by one; how they are sampled is the player's affair."""
    env = data.data.env
    one: Any = merged(env.data)[0]
    settings = evolve(env, type="any", data=None, origin="default of demonstrations")
    rollouts = unwrap(one.rollouts)
    filled = {
        name: evolve(settings, data=value)
        for name, value in {"group": 1, "temperature": 1.0, "max_tokens": 1_024}.items()
        if unwrap(getattr(rollouts, name)) is None
    }
    unset = {
        name: evolve(settings, data=getattr(rollouts, name))
        for name in ("max_failures", "timeout", "turn_timeout", "step_timeout", "max_turns")
        if not isinstance(getattr(rollouts, name), Value)
    }
    decided = _within(one.rollouts, evolve(rollouts, **filled, **unset))
    return evolve(data, data=evolve(data.data, env=evolve(one, rollouts=decided)))
