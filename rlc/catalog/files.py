"""The files that a plan names: the values of the parameters that the catalogue marks as paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from rlc.catalog.builtins.frameworks import AGENT
from rlc.catalog.builtins.graders import COMPARE_WITH, RUBRIC
from rlc.catalog.declarations import DECLARATIONS, MODEL_FIELDS
from rlc.catalog.environments import code_of_stage
from rlc.catalog.index import BUILTINS, find_builtin
from rlc.catalog.records import MODEL_FOLDER, Param
from rlc.plan import (
    LOCAL,
    AgentPlan,
    AnyJudge,
    ComparerPlan,
    EnvPlan,
    JudgingPlan,
    ModelPlan,
    Plan,
    RewardModelPlan,
    StagePlan,
    file_part,
    located,
)
from rlc.plan.leaves import children_of, evolved, with_asked_models
from rlc.records import Record, evolve, values_of

Change = Callable[[str], str]


def located_files(plan: Plan) -> Plan:
    """Return the plan with every file where it is, as this process opens it."""
    return evolve(plan, stages=located_stages(plan.stages, plan.recipe))


def located_stages(stages: Iterable[StagePlan], recipe: str) -> tuple[StagePlan, ...]:
    """Return the stages of a recipe with every file where it is, as this process opens it."""
    return tuple(_stage(stage, partial(located, recipe=recipe)) for stage in stages)


def paths_in(plan: Plan) -> list[str]:
    """Return every file of a plan, as the plan has it."""
    found = list[str]()

    def note(path: str) -> str:
        found.append(file_part(path))
        return path

    with_files(plan, note)
    return [*found, *_modules_beside(plan)]


def _modules_beside(plan: Plan) -> Iterator[str]:
    """The files of the Python modules that a plan names as ``module:attr``, of those that are in
    its recipe's folder or below: others are installed, and have versions."""
    folder = os.path.dirname(plan.recipe) or os.curdir
    for code in (code for stage in plan.stages for code in code_of_stage(stage)):
        module = code.target.rpartition(":")[0]
        if module.endswith(".py"):
            continue  # a path
        from rlc.data import DataError, module_file

        try:
            file = module_file(module, [os.path.abspath(folder)])
        except DataError:
            continue  # reported elsewhere
        home = os.path.join(os.path.realpath(folder), "")
        if file is not None and os.path.realpath(file).startswith(home):
            yield os.path.relpath(file, folder).replace(os.sep, "/")


def with_files(plan: Plan, change: Change) -> Plan:
    """Return the plan with ``change`` applied to every path that starts at its recipe's folder."""
    return evolve(plan, stages=tuple(_stage(stage, change) for stage in plan.stages))


def _stage(stage: StagePlan, change: Change) -> StagePlan:
    """Change the parts of a stage: their attributes are the parameters of what makes them."""
    parts: dict[str, Any] = {}
    there = children_of(stage) or {}
    for written in DECLARATIONS[stage.kind].fields:
        part = there.get(written.name)
        params = _params_of(written.type)
        if stage.model.service != LOCAL:  # what looks like a folder is the name of a served model
            params = tuple(param for param in params if param.file != MODEL_FOLDER)
        if isinstance(part, Record):
            parts[written.name] = _part(part, params, change)
        elif isinstance(part, tuple) and params:
            parts[written.name] = tuple(_part(one, params, change) for one in part)
    if stage.played:
        parts["envs"] = tuple(_env(env, change) for env in stage.played)
    parts["model"] = _model(stage.model, change)
    located: StagePlan = with_asked_models(
        evolved(stage, parts), lambda state: evolve(state, model=_model(state.model, change))
    )
    return located


def _part(part: Any, params: Iterable[Param], change: Change) -> Any:
    values = values_of(part)
    new = {name: _env(v, change) for name, v in values.items() if isinstance(v, EnvPlan)}
    new |= _changed(values, params, change)
    return evolve(part, **new) if new else part


def _model(model: ModelPlan, change: Change) -> ModelPlan:
    served = model.service != LOCAL
    params = [p for p in MODEL_FIELDS if p.file and not (served and p.file == MODEL_FOLDER)]
    values = {param.name: getattr(model, param.name) for param in params}
    new = _changed(values, params, change)
    return evolve(model, **new) if new else model


@cache
def _params_of(kind: str) -> tuple[Param, ...]:
    """The parameters of the builtins of a kind which may be paths."""
    params = (p for builtin in BUILTINS if builtin.kind == kind for p in builtin.params)
    return tuple(param for param in params if param.file)


def _env(env: EnvPlan, change: Change) -> EnvPlan:
    source = find_builtin("env", env.source)
    first, *others = source.params if source else ()

    def called(kind: str, name: str, args: dict[str, Any]) -> dict[str, Any]:
        builtin = find_builtin(kind, name)
        return args | _changed(args, builtin.params if builtin else (), change)

    def judging(one: JudgingPlan) -> JudgingPlan:
        return evolve(one, judges=tuple(map(judge, one.judges)))

    def judge(one: AnyJudge) -> AnyJudge:
        if isinstance(one, RewardModelPlan):
            return one
        if isinstance(one, ComparerPlan):
            return evolve(one, **called("judge", COMPARE_WITH, {"function": one.function}))
        return evolve(one, **called("judge", RUBRIC, {"rubric": one.rubric, "prompt": one.prompt}))

    play = env.play
    if play is not None and (script := play.script) is not None:
        located = called("opponent", script.player, values_of(script))
        play = evolve(play, script=evolve(script, **located))
    return evolve(
        env,
        play=play,
        id=change(env.id) if first.names_file(env.id) else env.id,
        args={**env.args, **_changed(env.args, others, change)},
        wrappers=tuple(evolve(w, args=called("wrapper", w.name, w.args)) for w in env.wrappers),
        graders=tuple(evolve(g, args=called("grader", g.grader, g.args)) for g in env.graders),
        judging=tuple(map(judging, env.judging)),
        agent=env.agent and evolve(env.agent, **called("env", AGENT, _run(env.agent))),
    )


def _run(agent: AgentPlan) -> dict[str, Any]:
    """What of an agent is run: the folder is that of a command."""
    values = values_of(agent)
    return {name: values[name] for name in values if agent.command or name != "folder"}


def _changed(values: Mapping[str, Any], params: Iterable[Param], change: Change) -> dict[str, Any]:
    """The values that are paths, changed."""
    return {
        param.name: change(value)
        for param in params
        if param.names_file(value := values.get(param.name))
    }
