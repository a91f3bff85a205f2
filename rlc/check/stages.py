"""Stages: their fields bound, and what depends on several of them decided."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

from rlc.catalog import (
    DECLARATIONS,
    DEFAULT_SAMPLING,
    EVAL,
    find_builtin,
    preference_losses,
    preference_traits,
    recommended_rate,
    task_count,
)
from rlc.check.bind import Owner, bind
from rlc.check.evaluate import Evaluator
from rlc.check.pipelines import merged
from rlc.check.values import Origins, Value, said, settle, unwrap
from rlc.lang import BlockDecl, Diagnostics, Label
from rlc.plan import (
    OF_EACH_ENVIRONMENT,
    EnvPlan,
    EpisodeData,
    JudgingPlan,
    ModelState,
    PreferenceLossPlan,
    RewardModelPlan,
    StagePlan,
    hub_dataset,
    located,
    stage_of,
)
from rlc.plan.leaves import children_of, needed_stages
from rlc.records import evolve, frozen

if TYPE_CHECKING:
    from rlc.data import Reader

# The fields of a stage that others may take from it: nothing else of it matters to them.
TAKEN = ("model", "sampling", "loss", "reference")
# A field's name in a recipe, and the attribute of the plan that it becomes.
_PART_NAMES = {"env": "envs"}

Values = dict[str, Value]


@frozen(eq=False)
class CheckedStage:
    """A stage's declaration: its settled parts by field, and their origins. Parts that could not be
    read are missing; :attr:`complete` says whether any are."""

    decl: BlockDecl
    parts: dict[str, Any]
    origins: Origins
    complete: bool
    moved: Callable[[StagePlan], StagePlan] | None = None  # to the service that a command names

    @property
    def name(self) -> str:
        return self.decl.name.id

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The stages whose weights it continues or queries."""
        after = self.parts.get("after")
        return tuple(dict.fromkeys([*([after] if after else []), *needed_stages(self.parts)]))

    def provenance(self) -> dict[str, str]:
        """Return the origin of each leaf of the plan by its dotted path."""
        return {"name": self.decl.name.span.place(), **self.origins.provenance()}

    def plan(self) -> StagePlan:
        """Return the stage's plan; only for a complete one."""
        loss = self.parts.get("loss")
        labelled = type(loss) is PreferenceLossPlan and preference_traits(loss).labelled
        plan = stage_of(self.decl.kind.id, self.name, self.parts, labelled)
        return plan if self.moved is None else self.moved(plan)


def check_stage(
    decl: BlockDecl,
    evaluator: Evaluator,
    earlier: Mapping[str, CheckedStage],
    found: Diagnostics,
    reader: Reader | None = None,
) -> CheckedStage:
    """Bind a stage's fields and decide what depends on several; with a ``reader`` the rows of files
    are counted where that decides something."""
    kind = decl.kind.id
    article = "an" if kind[0] in "aeios" and kind != "sweep" else "a"
    owner = Owner(kind, f"{article} `{kind}` stage", "field", decl.name.span, unread=decl.unread)
    evaluator.scope.used.add(decl.name.id)
    bound = bind(decl.fields, DECLARATIONS[kind].fields, owner, evaluator.value, found)
    values, complete = dict(bound.values), bound.complete
    if "model" in values:  # which may be a stage whose weights are continued
        model = values["model"]
        values["model"] = evolve(model, data=model.data.model)
        values["after"] = model.data.after or Value("string", None, model.span, "a fresh start")
    if "players" in values and values["players"].data is None:
        del values["players"]  # whoever the machine of the run has
    weight = values.pop("weight", None)
    union = weight is not None and weight.data == "tasks"
    if kind == "eval":
        complete &= _sampling_of_stage(decl, values, earlier, found)
    else:
        given, recipe = {*decl.unread, *bound.unknown}, evaluator.recipe
        complete &= _steps(decl, values, given, recipe, reader, found, union)
        if union and weight is not None and "env" in values:
            complete &= _by_tasks(values, weight, recipe, reader, found)
    if "loss" in values and getattr(values["loss"].data, "program", None) is not None:
        from rlc.check.formulas import as_known  # most recipes have none of their own

        values["loss"] = as_known(values["loss"], values)
    if "optimizer" in values:
        complete &= _recommended_rate(values, found)
    if "env" in values:
        deciding = map(values.get, ("batch", "samples", "sampling"))
        values["env"] = _decided_envs(values["env"], *deciding)
    if "reference" in values and {"loss", "model"} <= values.keys():
        reference = values["reference"]
        if reference.data is None and preference_traits(settle(values["loss"])).reference:
            start = ModelState(settle(values["model"].data), values["after"].data)
            origin = "default: what it starts from"
            values["reference"] = evolve(reference, data=start, origin=origin)
    if "kl" in values and "model" in values:
        from rlc.check.models import reference_model

        complete &= reference_model(values, evaluator.recipe, found)
    for name in ("env", "data", "heldout"):
        if name in values:
            values[name], known = _learnt_rewards(values[name], earlier, found)
            complete &= known
    for name in ("data", "heldout"):
        if name in values and getattr(values[name].data, "env", None) is not None:
            complete &= _demonstrations(name, values, found)
    written = {_PART_NAMES.get(name, name): value for name, value in values.items()}
    parts = {name: settle(value) for name, value in written.items()}
    return CheckedStage(decl, parts, Origins(decl.name.span, written), complete)


def _learnt_rewards(
    node: Any, earlier: Mapping[str, CheckedStage], found: Diagnostics
) -> tuple[Any, bool]:
    """Return the part of a stage with its implicit rewards completed from the stages that learnt
    them, and whether all of these are known."""
    if isinstance(node, RewardModelPlan):
        return _learnt_reward(node, earlier, found)
    if isinstance(node, tuple):
        items = [_learnt_rewards(item, earlier, found) for item in node]
        return tuple(item for item, _ in items), all(known for _, known in items)
    name = next((name for kind, name in _TOWARDS.items() if isinstance(node, kind)), None)
    part = name and getattr(node, name)
    if not part:
        return node, True
    made, known = _learnt_rewards(part, earlier, found)
    return evolve(node, **{str(name): made}), known


# The attributes that lead to judges in the parts of a stage.
_TOWARDS = {Value: "data", EnvPlan: "judging", JudgingPlan: "judges", EpisodeData: "env"}


def _learnt_reward(
    judge: RewardModelPlan, earlier: Mapping[str, CheckedStage], found: Diagnostics
) -> tuple[RewardModelPlan, bool]:
    model: Any = judge.model
    after, name = model.data.after, unwrap(model.data.after)
    stage = earlier.get(name)
    if stage is None or stage.decl.kind.id != "preference":
        what = "a model" if after is None else "no `preference` stage before this one"
        message = f"`{model.span.text}` is {what}, so it has learnt no implicit reward"
        advice = "give it a stage: `preference align { … }`, and then `implicit_reward(align)`"
        found.error("RL0779", model.span, message, advice)
        return judge, False
    if not {"loss", "reference"} <= stage.parts.keys():
        return judge, False  # what is wrong with it is reported there
    loss: PreferenceLossPlan = stage.parts["loss"]
    traits = preference_traits(loss)
    if not traits.reference:
        called = loss.name if loss.program is not None else f"{loss.name}()"
        message = f"`{name}` learns by `{called}`, which compares with no reference"
        able = [f"`{name}()`" for name in preference_losses("reference")]
        advice = "nothing corrects for what was likely before; losses with one are "
        advice, label = advice + ", ".join(able), Label(stage.origins.at("loss"), "its loss")
        found.error("RL0779", model.span, message, advice, label)
        return judge, False
    reference = evolve(stage.origins.values["reference"], origin=f"default: reference of {name}")
    of_loss = evolve(model, origin=f"loss of {name}")
    filled: dict[str, Any] = {
        "reference": evolve(reference, data=settle(reference.data)),
        "beta": evolve(of_loss, type="float", data=loss.config.get("beta", 1.0)),
        "mean": evolve(of_loss, type="bool", data=traits.mean),
    }
    return evolve(judge, **filled), True


def _recommended_rate(values: Values, found: Diagnostics) -> bool:
    """Decide a learning rate that the model decides. Report if there is none for it."""
    optimizer = values["optimizer"]
    leaf = optimizer.data.learning_rate
    if leaf.type != "rate":
        return True
    base = unwrap(values["model"].data.base) if "model" in values else None
    rate = base and recommended_rate(base)
    if not rate:
        del values["optimizer"]
        if base:
            message = f"there is no recommended learning rate for `{base}`"
            advice = "there is one for Qwen's and Llama's models: give a number, such as 1e-4"
            found.error("RL0338", leaf.span, message, advice)
        return False
    known = Value("float", rate * unwrap(leaf.data.times), leaf.span, leaf.span)
    values["optimizer"] = evolve(optimizer, data=evolve(optimizer.data, learning_rate=known))
    return True


def _steps(
    decl: BlockDecl,
    values: Values,
    misread: Collection[str],
    recipe: str,
    reader: Reader | None,
    found: Diagnostics,
    union: bool,
) -> bool:
    """Decide ``steps``, given as such or in epochs. Report if neither or both are given."""
    steps, epochs = values.get("steps"), values.get("epochs")
    if steps is None or epochs is None:
        return False
    if steps.data is None and epochs.data is None:
        if not {"steps", "epochs", "*"} & set(misread):
            message = f"`{decl.name.id}` needs `steps` or `epochs`"
            found.error("RL0309", decl.name.span, message, "for example `steps = 100`")
        return False
    if steps.data is not None and epochs.data is not None:
        label = Label(steps.span, "and here in steps")
        message = f"`{decl.name.id}` has both `steps` and `epochs`"
        found.error("RL0309", epochs.span, message, "keep one of them", label)
        return False
    if steps.data is not None:
        return True
    tasks, per_step, batch = _tasks(values, recipe, reader, union), None, values.get("batch")
    if batch is not None and (batch.type == "int" or unwrap(batch.data.kind) == "groups"):
        per_step = int(batch.data if batch.type == "int" else unwrap(batch.data.count))
    if tasks is not None and per_step is not None:
        count = ceil(epochs.data * tasks / per_step)
        plural = "s" * (epochs.data != 1)
        origin = f"{said(epochs.origin)}: {epochs.data} epoch{plural} of {tasks:,} tasks"
        values["steps"] = evolve(epochs, data=count, origin=origin)
        return True
    message = "it is not known how many tasks an epoch has"
    if _from_file(values, union):
        if reader is None:  # else a rule on the file says why it cannot be counted
            message += ": the data is not read"
            found.warning("RL0310", epochs.span, message, "check it with its data")
    elif "env" in values or "data" in values:
        most = "samples" if "env" in values else "n"
        advice = f"give `steps`, or the number of tasks (`{most} = 1_000` in the source)"
        found.error("RL0310", epochs.span, message, advice)
    return False


def _from_file(values: Values, union: bool = False) -> bool:
    if "data" in values:
        path = unwrap(getattr(values["data"].data, "path", None))
        return path is not None and hub_dataset(path) is None
    envs = merged(values["env"].data) if "env" in values else ()
    return (union or len(envs) == 1) and any(map(_reads_file, envs))


def _reads_file(env: EnvPlan) -> bool:
    source = find_builtin("env", unwrap(env.source))
    return source is not None and source.params[0].names_file(unwrap(env.id))


def _tasks(values: Values, recipe: str, reader: Reader | None, union: bool) -> int | None:
    """Return the tasks of one epoch; None if unknown, and for a mixture that is no ``union``."""
    if "data" in values:
        data = settle(values["data"].data)
        if data.count is not None or reader is None or not _from_file(values):
            return None if data.count is None else int(data.count)
        from rlc.data import hashed, kept

        return reader.count(located(data.path, recipe), data.split, hashed(data), kept(data))
    envs = merged(values["env"].data) if "env" in values else ()
    counts = [_tasks_of(env, recipe, reader) for env in envs]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) and (len(known) == 1 or union) else None


def _tasks_of(part: EnvPlan, recipe: str, reader: Reader | None) -> int | None:
    env = settle(part)
    count, source = task_count(env), find_builtin("env", env.source)
    if count is not None or reader is None or source is None or not _reads_file(env):
        return count
    key = next(env.args[param.name] for param in source.params if param.holds is not None)
    return reader.count(located(env.id, recipe), env.args["split"], key)


def _by_tasks(
    values: Values, weight: Value, recipe: str, reader: Reader | None, found: Diagnostics
) -> bool:
    """Multiply the weights of a mixture by its numbers of tasks. Report one that is not known."""
    parts, complete = list[EnvPlan](), True
    for env in merged(values["env"].data):
        old: Any = env.weight
        count = _tasks_of(env, recipe, reader)
        if count is not None:
            own = evolve(old, data=old.data * count, origin=weight.span)
            parts.append(evolve(env, weight=own))
            continue
        complete = False
        message = f"it is not known how many tasks `{unwrap(env.name)}` has"
        if not _reads_file(env):
            advice = "give their number (`samples = 1_000` in the source), or weights: `3 * a + b`"
            found.error("RL0310", weight.span, message, advice)
        elif reader is None:  # else a rule on the file says why it cannot be counted
            advice = "check it with its data"
            found.warning("RL0310", weight.span, f"{message}: the data is not read", advice)
    values["env"] = evolve(values["env"], data=tuple(parts)) if complete else values["env"]
    return complete


def _sampling_of_stage(
    decl: BlockDecl, values: Values, earlier: Mapping[str, CheckedStage], found: Diagnostics
) -> bool:
    """Let an evaluation sample as its stage does, unless it says otherwise."""
    sampling = values.get("sampling")
    if sampling is None or sampling.data is not None:
        return sampling is not None
    after = values["after"].data if "after" in values else None
    stage = earlier.get(after) if after else None
    if stage is not None and "sampling" in stage.parts:
        given, origin = stage.origins.values["sampling"], f"sampling of {stage.name}"
        leaves = (children_of(given.data) or {}).items()  # their places stay, for what is wrong
        moved = {name: evolve(leaf, origin=origin) for name, leaf in leaves}
        values["sampling"] = evolve(given, data=evolve(given.data, **moved), origin=origin)
        return True
    samples = stage is not None and any(
        field.name == "sampling" for field in DECLARATIONS[stage.decl.kind.id].fields
    )
    if "model" in values and not samples:
        message = f"nothing says how `{decl.name.id}` samples its replies"
        advice = "for example `sampling = sample(max_tokens = 512)`"
        found.error("RL0302", decl.name.span, message, advice)
    del values["sampling"]
    return False


def _decided_envs(
    envs: Value, batch: Value | None, samples: Value | None, sampling: Value | None
) -> Value:
    """Return each environment once, its rollouts as it says, else as the stage says."""
    given = {
        name: _origin_of(sampling and getattr(sampling.data, name), sampling)
        for name in OF_EACH_ENVIRONMENT
    }
    given["group"] = _origin_of(samples or (batch and batch.data.size), batch)
    defaults = evolve(envs, type="any", data=None, origin="default of rollouts")
    decided = tuple(_with_rollouts(env, given, defaults) for env in merged(envs.data))
    return evolve(envs, data=decided)


def _origin_of(leaf: Any, around: Value | None) -> Value | None:
    if leaf is None or around is None or isinstance(leaf, Value):
        return leaf if isinstance(leaf, Value) else None
    return evolve(around, type="any", data=leaf)


def _demonstrations(name: str, values: Values, found: Diagnostics) -> bool:
    """Decide the rollouts of the environment that data is played in: demonstrations play each task
    once, samples as they say, preferences are made of several samples."""
    data = values[name]
    made = data.data
    samples, size = (getattr(made, name, None) for name in ("samples", "size"))
    how, env = getattr(made, "sampling", None), made.env
    envs = merged(env.data)
    if len(envs) > 1:
        message = f"`{made.word}()` plays one environment, not a mixture"
        found.error("RL0201", env.span, message, "use one stage for each")
    defaults = evolve(env, type="any", data=None, origin=f"default of {made.word}")
    given = {
        name: evolve(defaults, data=getattr(DEFAULT_SAMPLING, name)) for name in OF_EACH_ENVIRONMENT
    }
    given["group"] = evolve(defaults, data=1)
    if size is not None and how is not None:
        sampled = {key: _origin_of(getattr(how.data, key), how) for key in OF_EACH_ENVIRONMENT}
        given = {"group": size, **{key: v for key, v in sampled.items() if v is not None}}
    decided = _with_rollouts(envs[0], given, defaults)
    if samples is not None:
        own = decided.rollouts
        plain = evolve(own.data if isinstance(own, Value) else own, group=samples)
        together = evolve(own, data=plain) if isinstance(own, Value) else plain
        decided = evolve(decided, rollouts=together)
    values[name] = evolve(data, data=evolve(data.data, env=decided))
    return len(envs) == 1


def _with_rollouts(env: Any, given: Mapping[str, Value | None], defaults: Value) -> Any:
    """Return an environment with its own rollout settings, else those given, else the defaults."""
    own: Any = unwrap(env.rollouts)
    settings = {}
    for name, value in (children_of(own) or {}).items():
        if unwrap(value) is None and given.get(name) is not None:
            settings[name] = given[name]
        elif name not in given and not isinstance(value, Value):
            settings[name] = evolve(defaults, data=value)
    rollouts = evolve(own, **settings)
    if isinstance(env.rollouts, Value):
        rollouts = evolve(env.rollouts, data=rollouts)
    return evolve(env, rollouts=rollouts)


def needed(stages: Sequence[CheckedStage], of: str) -> tuple[CheckedStage, ...]:
    """Return a stage with its evaluations, and all stages whose weights these need."""
    by_name = {stage.name: stage for stage in stages}
    evaluations = [s.name for s in stages if s.decl.kind.id == EVAL and s.parts.get("after") == of]
    names, waiting = set[str](), [of, *evaluations]
    while waiting:
        names.add(name := waiting.pop())
        needs = by_name[name].needs if name in by_name else ()
        waiting += [earlier for earlier in needs if earlier not in names]
    return tuple(stage for stage in stages if stage.name in names)
