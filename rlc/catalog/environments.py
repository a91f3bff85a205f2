"""What the catalogue knows of a planned environment, and the files that a plan names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Literal

from rlc.catalog.builtins.frameworks import AGENT
from rlc.catalog.builtins.graders import COMPARE_WITH, RUBRIC
from rlc.catalog.declarations import DECLARATIONS, MODEL_FIELDS
from rlc.catalog.index import BUILTINS, data_traits, find_builtin, source_traits, wrapper_traits
from rlc.catalog.records import MODEL_FOLDER, EnvFacts, Param, Role
from rlc.data import Code, module_of_package
from rlc.plan import (
    ANY,
    LOCAL,
    MAX_TURNS,
    AgentPlan,
    AnyData,
    AnyJudge,
    BuilderData,
    ComparerPlan,
    EnvPlan,
    JudgePlan,
    JudgingPlan,
    ModelPlan,
    Plan,
    RewardModelPlan,
    StagePlan,
    StepPlan,
    file_part,
    located,
)
from rlc.plan.leaves import children_of, evolved, with_asked_models
from rlc.records import Record, evolve, values_of


def env_facts(env: EnvPlan) -> EnvFacts:
    """What is known of an environment before it is made."""
    return source_traits(env.source).facts(env)


def played_as(env: EnvPlan) -> str:
    """The builtin that decides how an environment is played: its agent, or else its source."""
    return env.source if env.agent is None else AGENT


def with_role(env: EnvPlan, *roles: Role) -> StepPlan | None:
    """The first wrapper of an environment that has one of some roles; None if it has none."""
    return next((w for w in env.wrappers if wrapper_traits(w.name).role in roles), None)


def unknown_turns(env: EnvPlan) -> str:
    """Why it may not be known how many replies an episode has."""
    return source_traits(played_as(env)).unknown_turns


def prompt_rules(env: EnvPlan) -> dict[str, bool]:
    """What the recipe asks of the prompts in an environment's rows: the last arguments of
    :func:`rlc.data.messages.read_prompt`."""
    chat = with_role(env, "chat")
    system = chat is not None and bool(chat.args.get("system"))
    one_text, cut = with_role(env, "game") is not None, env.args.get("replied") == "cut"
    return {"system": system, "one_text": one_text, "cut": cut}


def is_chat(env: EnvPlan) -> bool:
    """Whether the model sees a chat through its renderer, which the source does not make itself."""
    if with_role(env, "chat", "template") is None:
        return source_traits(played_as(env)).prompts == "chat"
    return with_role(env, "chat") is not None


def makes_text(env: EnvPlan) -> bool:
    """Whether each prompt is a text of its own, tokenised anew for each turn."""
    return source_traits(env.source).prompts == "text" and with_role(env, "chat") is None


def history_of(env: EnvPlan) -> Literal["all", "observations", "latest"]:
    """What a prompt holds of the episode so far."""
    if source_traits(env.source).prompts != "text":
        return "all"
    kept = (wrapper_traits(wrapper.name).history for wrapper in env.wrappers)
    return next((history for history in kept if history), "latest")


def max_turns(env: EnvPlan) -> int | None:
    """Most replies in an episode, tools included; None if unknown."""
    tools = (w for w in env.wrappers if wrapper_traits(w.name).role in ("tool", "server_tools"))
    limit = env.rollouts.max_turns
    if env.max_turns is None:
        return limit if limit < MAX_TURNS else None
    return min(env.max_turns + sum(int(tool.args["uses"]) for tool in tools), limit)


def task_count(env: EnvPlan) -> int | None:
    """How many tasks an environment has; None if that is unknown, or there is no end."""
    samples = env.args.get("samples")
    return int(samples) if samples is not None else env_facts(env).tasks


def players_of_role(env: EnvPlan) -> int:
    """How many players of the largest role an episode has: the solvers of a game; else 1."""
    if env.play is not None:
        return max(Counter(seats_of(env)[seat] for seat in trained_seats(env)).values(), default=1)
    game = with_role(env, "game")
    return 1 if game is None else int(game.args["solvers"])


def seats_of(env: EnvPlan) -> tuple[str, ...]:
    """The role of each seat of a game; none where there is one player."""
    seats = source_traits(env.source).seats
    return () if seats is None else seats(env)


def trained_seats(env: EnvPlan, match: int = 0) -> list[int]:
    """The seats of a match whose episodes are trained on; of a game in which they are taken in
    turn the one of the ``match`` of that number."""
    assert env.play is not None
    roles, wanted = seats_of(env), env.play.seat
    if wanted == ANY:
        return [match % len(roles)]
    return [seat for seat, role in enumerate(roles) if wanted in (None, role)]


def roles_of(env: EnvPlan) -> tuple[str, ...]:
    """The roles in which episodes are played and trained on; none where there are no roles."""
    if env.play is not None:
        wanted = env.play.seat
        return tuple(dict.fromkeys(r for r in seats_of(env) if wanted in (None, ANY, r)))
    game = with_role(env, "game")
    return () if game is None else wrapper_traits(game.name).roles


def opponent_name(env: EnvPlan) -> str:
    """Who a game is played against, for people."""
    play = env.play
    if play is None or play.is_self_play:
        return "itself"
    if play.past is not None:
        return f"itself as it was up to {play.past.every} steps ago"
    if play.script is not None:
        return play.script.function or f"{play.script.player}()"
    assert play.opponent is not None
    state = play.opponent
    return state.model.name if state.after is None else f"{state.model.name} after {state.after}"


def decides(env: EnvPlan, role: str) -> bool:
    """Whether the episodes of a role tell if a task is solved: of those of one environment that
    work on it together, the last one's."""
    return env.play is not None or role in ("", *roles_of(env)[-1:])


def judges_of(env: EnvPlan) -> Iterator[tuple[str, JudgingPlan, AnyJudge]]:
    """The judges of an environment: the path of each in the plan's record, and what it is for."""
    for at, judging in (children_of(env.judging) or {}).items():
        for name, judge in (children_of(judging.judges) or {}).items():
            yield f"judging.{at}.judges.{name}", judging, judge


def rubrics_of(env: EnvPlan) -> Iterator[tuple[str, JudgingPlan, JudgePlan]]:
    """Those of :func:`judges_of` that are asked by a rubric."""
    for path, judging, judge in judges_of(env):
        if isinstance(judge, JudgePlan):
            yield path, judging, judge


def reward_models_of(env: EnvPlan) -> Iterator[tuple[str, JudgingPlan, RewardModelPlan]]:
    """Those of :func:`judges_of` whose reward is what a stage has learnt."""
    for path, judging, judge in judges_of(env):
        if isinstance(judge, RewardModelPlan):
            yield path, judging, judge


def comparers_of(env: EnvPlan) -> Iterator[tuple[str, JudgingPlan, ComparerPlan]]:
    """Those of :func:`judges_of` that are functions of the user's own."""
    for path, judging, judge in judges_of(env):
        if isinstance(judge, ComparerPlan):
            yield path, judging, judge


def files_of(env: EnvPlan) -> Iterator[tuple[str, str]]:
    """The files that an environment reads, each with its path within the plan's record."""
    for path, param, value, _ in _arguments(env):
        if param.names_file(value) and not param.folders:
            yield path, file_part(value)


def code_of(env: EnvPlan) -> Iterator[tuple[str, Code]]:
    """The Python code that an environment names, each with its path within the plan's record."""
    for path, param, value, others in _arguments(env):
        if param.code is not None and value is not None:
            decided = source_traits(env.source).decides if path == "id" else {}
            args = others["args"] if param.code in ("factory", "game", "program", "player") else {}
            target = f"{module_of_package(value)}:{param.calls}" if param.calls else value
            yield path, Code(target, param.code, args, decided)


def code_of_data(data: AnyData) -> Code | None:
    """The Python code that makes the data of a stage; None if that is read, or played."""
    if not isinstance(data, BuilderData):
        return None
    return Code(data.builder, "factory", data.args, data_traits(data.word).decides)


def code_of_stage(stage: StagePlan) -> Iterator[Code]:
    """The Python code that a stage names."""
    yield from (code for env in stage.environments for _, code in code_of(env))
    yield from filter(None, map(code_of_data, stage.data))


def templates_of(env: EnvPlan) -> Iterator[tuple[str, Param, str]]:
    """The files with templates that an environment reads, each with its path within the plan's
    record and the parameter that names it."""
    for path, param, value, _ in _arguments(env):
        if param.variables and param.names_file(value):
            yield path, param, value


def _arguments(env: EnvPlan) -> Iterator[tuple[str, Param, Any, Mapping[str, Any]]]:
    """The arguments of all builtins that an environment is made with: the path of each in the
    plan's record, its parameter, its value, and the arguments beside it."""
    source = find_builtin("env", env.source)
    for index, param in enumerate(source.params if source else ()):
        if index == 0:
            yield "id", param, env.id, env.args
        else:
            yield f"args.{param.name}", param, env.args.get(param.name), env.args
    called = [("wrapper", w.name, w.args, f"wrappers.{w.name}.args") for w in env.wrappers]
    called += [("grader", g.grader, g.args, f"graders.{g.name}.args") for g in env.graders]
    for path, _, judge in rubrics_of(env):
        called.append(("judge", RUBRIC, values_of(judge), path))
    for path, _, comparer in comparers_of(env):
        called.append(("judge", COMPARE_WITH, {"function": comparer.function}, path))
    if env.agent is not None:
        called.append(("env", AGENT, values_of(env.agent), "agent"))
    if env.play is not None and (script := env.play.script) is not None:
        called.append(("opponent", script.player, values_of(script), "play.script"))
    for kind, name, args, path in called:
        builtin = find_builtin(kind, name)
        for param in builtin.params if builtin else ():
            yield f"{path}.{param.name}", param, args.get(param.name), args


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
