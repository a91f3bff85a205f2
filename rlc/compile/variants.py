"""The same job elsewhere: on another training service, or as a rehearsal on the tiny model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from rlc.catalog import (
    DEFAULT_BUDGET,
    TINY,
    env_facts,
    find_model,
    provider,
    source_traits,
    stage_limits,
    stated_price,
)
from rlc.errors import Error
from rlc.plan import (
    LOCAL,
    REHEARSAL,
    AnyData,
    AnyJudge,
    BatchPlan,
    BuilderData,
    Demonstrations,
    EndpointPlan,
    EnvPlan,
    Evaluation,
    FileData,
    FromData,
    JudgePlan,
    KeepPlan,
    ModelPlan,
    ModelState,
    Plan,
    PreferredPairs,
    Rollouts,
    Samples,
    SamplingPlan,
    Source,
    StagePlan,
    Table,
    Training,
    build_graph,
    is_training,
)
from rlc.plan.leaves import leaves, models_of, needed_stages, with_each
from rlc.records import evolve

ORIGIN = "--service"


class ServiceMismatchError(Error, ValueError):
    """A model that is not on the service that was asked for; the message says what to do."""

    exit_status = 2


def on_service(plan: Plan, service: str) -> Plan:
    """Return the same plan with every model on ``service``. Any server with Tinker's protocol may
    serve any model. Raise ServiceMismatchError if the service does not have one, or cannot do what
    the plan asks for, and ProviderError if there is none of that name."""
    provenance, there = dict(plan.provenance), provider(service)
    if there.refusal is not None:
        raise ServiceMismatchError(there.refusal)

    for stage in plan.stages:
        for path, model in models_of(stage):
            known = find_model(model.base)
            if not there.hosted and known is not None and known.hosted:
                raise ServiceMismatchError(
                    f'"{model.base}" is not on this machine; give the folder that holds its '
                    "weights as `base`, or rehearse the job with `--rehearse`"
                )
            state = model.weights or ""
            if "://" in state and not state.startswith(there.scheme):
                raise ServiceMismatchError(
                    f'"{state}" is on the service `{model.service}`, and not on `{service}`',
                    "a state stays on the service that saved it",
                )
            provenance[f"stages.{stage.name}.{path}.service"] = ORIGIN
            if _on(model, service, plan.recipe).context != model.context:
                provenance[f"stages.{stage.name}.{path}.context"] = ORIGIN
    stages = tuple(stage_on_service(stage, service, plan.recipe) for stage in plan.stages)
    lacks = [(stage.name, lack) for stage in stages for lack in stage_limits(stage, there)]
    for name, lack in lacks:
        more = f" (and {len(lacks) - 1} more)" if len(lacks) > 1 else ""
        raise ServiceMismatchError(f"{name}.{lack.path}: {lack.what}{more}", lack.instead)
    return evolve(plan, stages=stages, graph=build_graph(stages), provenance=provenance)


def stage_on_service(stage: StagePlan, service: str, recipe: str) -> StagePlan:
    """Return a stage with every model on ``service``, whether it can run there or not."""

    def moved(state: ModelState) -> ModelState:
        return evolve(state, model=_on(state.model, service, recipe))

    own = evolve(stage, model=_on(stage.model, service, recipe))
    there: StagePlan = with_each(ModelState, own, moved)
    return there


def _on(model: ModelPlan, service: str, recipe: str) -> ModelPlan:
    """Return a model there, with the context that it has there and the prices of it that are
    stated."""
    if model.service == service:
        return model
    offered = provider(service).offered(model.base)
    context, price = model.context, stated_price(model.base, service, recipe)
    if offered is not None and offered.context is not None:
        context = min(context or offered.context, offered.context)
    return evolve(model, service=service, context=context, price=price)


D = TypeVar("D", bound=AnyData)
MAX_STEPS = 3
MAX_GROUPS, MAX_GROUP_SIZE = 4, 4
MAX_TURNS, MAX_PARALLEL = 16, 4
MAX_TOKENS = 24
MAX_RANK = 8
MAX_EXAMPLES, MAX_DEMONSTRATIONS = 8, 32
MAX_TASKS, MAX_SAMPLES = 4, 4


def rehearse(plan: Plan) -> Plan:
    """Return a rehearsal of a plan; what is changed has ``--rehearse`` as its provenance."""
    return _rehearsal(plan, tuple(_stage(stage) for stage in plan.stages))


def rehearse_stage(plan: Plan, name: str, steps: int, names: Collection[str]) -> Plan:
    """Return a rehearsal of some of the stages, in which the one of this name takes so many steps.
    What is on the tiny model already keeps its sizes."""

    def small(stage: StagePlan) -> StagePlan:
        short = stage if stage.model.base == TINY else _stage(stage)
        if not (is_training(stage) and is_training(short)):
            return short
        most = steps if stage.name == name else MAX_STEPS
        return evolve(short, steps=min(stage.steps, most), track=(), budget=DEFAULT_BUDGET)

    part = only(evolve(plan, expectations=()), names)
    return _rehearsal(part, tuple(map(small, part.stages)))


def _rehearsal(plan: Plan, stages: tuple[StagePlan, ...]) -> Plan:
    provenance = dict(plan.provenance)
    for before, after in zip(plan.stages, stages, strict=True):
        path = f"stages.{before.name}"
        old = dict(leaves(before, path))
        changed = (name for name, value in leaves(after, path) if old.get(name) != value)
        provenance |= dict.fromkeys(changed, REHEARSAL)
    return evolve(plan, stages=stages, graph=build_graph(stages), provenance=provenance)


def chosen_stages(plan: Plan, names: Collection[str], first: str | None = None) -> list[str]:
    """Return the ``names`` of stages, or ``first`` and the stages after it, in the order of the
    plan. Raise Error for a name that none has."""
    known = [stage.name for stage in plan.stages]
    asked = [*names, *([first] if first else [])]
    if unknown := [name for name in asked if name not in known]:
        there = ", ".join(f"`{name}`" for name in known)
        raise Error(f"{plan.recipe} has no stage `{unknown[0]}`", f"its stages are {there}")
    return known[known.index(first) :] if first else [name for name in known if name in names]


def only(plan: Plan, names: Collection[str]) -> Plan:
    """Return the plan of some of the stages, and of those whose weights they need, with what is
    expected of them alone."""
    wanted = set(names)
    for stage in reversed(plan.stages):
        if stage.name in wanted:
            wanted |= {*needed_stages(stage)} | ({stage.after} if stage.after else set())
    stages = tuple(stage for stage in plan.stages if stage.name in wanted)
    of_these: set[str | None] = {None, *wanted}
    expected = tuple(e for e in plan.expectations if {q.stage for q in e.quantities} <= of_these)
    return evolve(plan, stages=stages, graph=build_graph(stages), expectations=expected)


def left_out(plan: Plan) -> str | None:
    """Return what a rehearsal leaves out of the recipe, as a sentence; None if nothing."""
    changed = (path for path, origin in plan.provenance.items() if origin == REHEARSAL)
    if any(path.endswith(".model.weights") for path in changed):
        return "a rehearsal starts from the tiny model as it is, not from saved weights"
    return None


def _stage(stage: StagePlan) -> StagePlan:
    model = _model(stage.model)
    stage = with_each(ModelState, stage, lambda state: evolve(state, model=_model(state.model)))
    every = None if stage.every is None else min(stage.every, MAX_STEPS)
    return evolve(_SMALL[stage](stage, model), model=model, every=every)


def _evaluation(stage: Evaluation, model: ModelPlan) -> Evaluation:
    samples = min(stage.samples, max([MAX_SAMPLES, *(m.k or 1 for m in stage.metrics)]))
    return evolve(
        stage,
        envs=tuple(_env(env, samples, model) for env in stage.envs),
        tasks=min(stage.tasks, MAX_TASKS),
        samples=samples,
        sampling=_sampling(stage.sampling),
    )


def _training(stage: Training, model: ModelPlan, source: Source) -> Training:
    steps = min(stage.steps, MAX_STEPS)
    every = None if stage.save.every is None else min(stage.save.every, steps)
    return evolve(
        stage,
        source=source,
        heldout=stage.heldout and _data(stage.heldout, model),
        steps=steps,
        save=evolve(stage.save, every=every),
        budget=DEFAULT_BUDGET,
        track=(),
    )


def _from_data(stage: Training, model: ModelPlan) -> Training:
    source = stage.of(FromData)
    small = evolve(source, data=_data(source.data, model), batch=min(source.batch, MAX_EXAMPLES))
    return _training(stage, model, small)


def _from_rollouts(stage: Training, model: ModelPlan) -> Training:
    source = stage.of(Rollouts)
    small = evolve(
        source,
        envs=tuple(_env(env, MAX_GROUP_SIZE, model) for env in source.envs),
        batch=_batch(source.batch),
        sampling=_sampling(source.sampling),
    )
    return _training(stage, model, small)


_SMALL: Table[Callable[[Any, ModelPlan], StagePlan]] = Table(
    {Rollouts: _from_rollouts, FromData: _from_data, Evaluation: _evaluation}, by="source"
)


def _model(model: ModelPlan) -> ModelPlan:
    tiny = find_model(TINY)
    assert tiny is not None
    return evolve(
        model,
        base=TINY,
        lora_rank=min(model.lora_rank, MAX_RANK),
        weights=None,
        with_optimizer=False,
        renderer=tiny.renderers[0],
        context=tiny.context,
        service=LOCAL,
        price=None,
    )


def _env(env: EnvPlan, group: int, model: ModelPlan) -> EnvPlan:
    own = env.rollouts
    if source_traits(env.source).fixed_groups:
        group = own.group
    small = evolve(own, group=min(own.group, group), max_tokens=min(own.max_tokens, MAX_TOKENS))
    judging = tuple(
        evolve(one, judges=tuple(_judge(j, model) for j in one.judges)) for one in env.judging
    )
    # What would be downloaded is made here where something of the kind can be.
    return evolve(env, id=env_facts(env).stand_in or env.id, rollouts=small, judging=judging)


def _judge(judge: AnyJudge, model: ModelPlan) -> AnyJudge:
    """Return the judge with the tiny model, a stand-in whose missing verdicts are random."""
    if not isinstance(judge, JudgePlan):
        return judge
    state = judge.model
    if isinstance(state, EndpointPlan):
        state = ModelState(evolve(model, name=state.model), None)
    short = min(judge.max_tokens, MAX_TOKENS)
    return evolve(judge, model=state, attempts=1, max_tokens=short, stand_in=True)


def _data(data: AnyData, model: ModelPlan) -> AnyData:
    kind = next(kind for kind in _FEW if isinstance(data, kind))
    return _FEW[kind](data, model)


def _samples(data: Samples, model: ModelPlan) -> Samples:
    return evolve(
        _few(data),
        env=_env(data.env, MAX_GROUP_SIZE, model),
        # A model that learns nothing solves nothing: whatever it plays shows that the job runs.
        keep=KeepPlan("all"),
        size=min(data.size, MAX_GROUP_SIZE),
        sampling=_sampling(data.sampling),
    )


def _preferred(data: PreferredPairs, model: ModelPlan) -> PreferredPairs:
    count, size = min(data.count, MAX_EXAMPLES), min(data.samples, MAX_GROUP_SIZE)
    return evolve(data, env=_env(data.env, size, model), count=count, samples=size)


def _few(data: D) -> D:
    return data if data.count is None else evolve(data, count=min(data.count, MAX_DEMONSTRATIONS))


_FEW: Mapping[type[Any], Callable[[Any, ModelPlan], AnyData]] = {
    Demonstrations: lambda data, model: evolve(_few(data), env=_env(data.env, 1, model)),
    Samples: _samples,
    PreferredPairs: _preferred,
    FileData: lambda data, _: _few(data),
    BuilderData: lambda data, _: _few(data),
}


def _sampling(sampling: SamplingPlan) -> SamplingPlan:
    return evolve(sampling, max_tokens=min(sampling.max_tokens or MAX_TOKENS, MAX_TOKENS))


def _batch(batch: BatchPlan) -> BatchPlan:
    if batch.kind == "turns":
        parallel = min(batch.parallel or MAX_PARALLEL, MAX_PARALLEL)
        return evolve(batch, count=min(batch.count, MAX_TURNS), parallel=parallel)
    count, size = min(batch.count, MAX_GROUPS), min(batch.size, MAX_GROUP_SIZE)
    return evolve(batch, count=count, size=size, resample=min(batch.resample, count))
