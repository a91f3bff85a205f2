"""What the catalogue knows of a planned environment, and the files that a plan names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Literal, TypeVar

from rlc.catalog.builtins.frameworks import AGENT
from rlc.catalog.builtins.graders import COMPARE_WITH, RUBRIC
from rlc.catalog.builtins.sources import ROWS_OF_ENV
from rlc.catalog.declarations import DECLARATIONS, MODEL_FIELDS
from rlc.catalog.facts import renderer_keeps_prefix
from rlc.catalog.index import builtins_of, data_traits, find_builtin, source_traits, wrapper_traits
from rlc.catalog.providers import find_provider
from rlc.catalog.records import MODEL_FOLDER, EnvFacts, Param, Role
from rlc.data import Code, module_of_package
from rlc.plan import (
    ANY,
    MAX_TURNS,
    AnyData,
    AnyJudge,
    BuilderData,
    ComparerPlan,
    EnvPlan,
    JudgePlan,
    JudgingPlan,
    KeepPlan,
    ModelPlan,
    ModelState,
    Plan,
    PlayersPlan,
    RewardModelPlan,
    StagePlan,
    StepPlan,
    file_part,
    is_evaluation,
    located,
)
from rlc.plan.leaves import children_of, evolved, with_each
from rlc.records import Record, evolve, values_of

# The kinds of code that are called with the arguments that stand beside them.
_WITH_ARGS = ("factory", "game", "program", "player", "weights")

J = TypeVar("J", JudgePlan, RewardModelPlan, ComparerPlan)


def env_facts(env: EnvPlan) -> EnvFacts:
    """Return what is known of an environment before it is made."""
    return source_traits(env.source).facts(env)


def played_as(env: EnvPlan) -> str:
    """Return the builtin that decides how an environment is played: its agent, or its source."""
    return env.source if env.agent is None else AGENT


def with_role(env: EnvPlan, *roles: Role) -> StepPlan | None:
    """Return the first wrapper of an environment with one of some roles; None if it has none."""
    return next((w for w in env.wrappers if wrapper_traits(w.name).role in roles), None)


def is_included(env: EnvPlan) -> bool:
    """Return whether rlc plays an environment itself, without the package of its source."""
    return env_facts(env).included and with_role(env, "tool", "history") is None


def unknown_turns(env: EnvPlan) -> str:
    """Return why the number of replies of an episode may be unknown."""
    return source_traits(played_as(env)).unknown_turns


def prompt_rules(env: EnvPlan) -> dict[str, bool]:
    """Return the last arguments of :func:`rlc.data.chats.read_prompt` for an environment's rows."""
    chat = with_role(env, "chat")
    return {
        "system": chat is not None and bool(chat.args.get("system")),
        "one_text": with_role(env, "game") is not None,
        "cut": env.args.get("replied") == "cut",
    }


def is_chat(env: EnvPlan) -> bool:
    """Return whether the model sees a chat through its renderer, not one made by the source."""
    if with_role(env, "chat", "template") is None:
        return source_traits(played_as(env)).prompts == "chat"
    return with_role(env, "chat") is not None


def makes_text(env: EnvPlan) -> bool:
    """Return whether each prompt is a text of its own, tokenised anew for each turn."""
    return source_traits(env.source).prompts == "text" and with_role(env, "chat") is None


def history_of(env: EnvPlan) -> Literal["all", "observations", "latest"]:
    """Return which part of the episode so far is in a prompt."""
    if source_traits(env.source).prompts != "text":
        return "all"
    kept = (wrapper_traits(wrapper.name).history for wrapper in env.wrappers)
    return next((history for history in kept if history), "latest")


ChatTurns = Literal["sampled", "template"]  # the sampled tokens, or what the template makes of them


def chat_history_of(env: EnvPlan) -> ChatTurns:
    """Return what the prompts of an environment's chats show of earlier turns."""
    chat = with_role(env, "chat")
    history: ChatTurns = "sampled"
    return chat.args.get("history", history) if chat else history


def goes_on(env: EnvPlan, renderer: str) -> bool | None:
    """Return whether each prompt of an episode begins with the one before and what was sampled, so
    that it is one sequence; None if that is not known of the renderer, or of an environment that
    makes its prompts itself."""
    if makes_text(env):
        return False
    if chat_history_of(env) == "template":
        return renderer_keeps_prefix(renderer)
    return True if not source_traits(env.source).tokens else renderer_keeps_prefix(renderer) or None


def with_history(env: EnvPlan, history: ChatTurns) -> EnvPlan:
    """Return an environment whose chats show that of earlier turns."""
    chat = with_role(env, "chat") or StepPlan("chat", {})
    said = evolve(chat, args={"instruction": "", "system": "", **chat.args, "history": history})
    others = env.wrappers if chat in env.wrappers else (*env.wrappers, chat)
    return evolve(env, wrappers=tuple(said if step is chat else step for step in others))


def with_older_histories(plan: Plan, version: int) -> Plan:
    """Return a plan of before schema 6, in which environments that make their prompts themselves
    had the renderer as it is, and before 5, in which it alone decided how all chats went on, with
    what it decided."""

    def as_it_was(env: EnvPlan, renderer: str) -> EnvPlan:
        anew = max_turns(env) != 1 and not renderer_keeps_prefix(renderer)
        own = source_traits(env.source).tokens
        if version >= 5 and not own:
            return env
        if with_role(env, "chat") is None and not (anew and (own or _is_rendered(env))):
            return env
        return with_history(env, "template" if anew else "sampled")

    return _with_envs(plan, as_it_was)


def with_other_histories(plan: Plan) -> tuple[ChatTurns, Plan] | None:
    """Return the plan whose chats show the other thing of earlier turns, and what that is; None if
    no sequence would be another."""
    found = set[ChatTurns]()

    def other(env: EnvPlan, renderer: str) -> EnvPlan:
        history: ChatTurns = "template" if chat_history_of(env) == "sampled" else "sampled"
        # What an agent says of its turns is no part of a recipe.
        if max_turns(env) == 1 or env.agent is not None or not _is_rendered(env):
            return env
        changed = with_history(env, history)
        if goes_on(changed, renderer) in (None, goes_on(env, renderer)):
            return env
        found.add(history)
        return changed

    changed = _with_envs(plan, other)
    return (found.pop(), changed) if len(found) == 1 else None


def _is_rendered(env: EnvPlan) -> bool:
    """Return whether rlc renders the chats of an environment, of more than one reply."""
    own = makes_text(env) or source_traits(env.source).tokens
    return not own and with_role(env, "template", "game") is None


def _with_envs(plan: Plan, change: Callable[[EnvPlan, str], EnvPlan]) -> Plan:
    """Return a plan with each environment changed; the renderer of its stage is given, too."""

    def changed(stage: StagePlan) -> StagePlan:
        renderer = stage.model.renderer
        new: StagePlan = with_each(EnvPlan, stage, lambda env: change(env, renderer))
        return new

    return evolve(plan, stages=tuple(map(changed, plan.stages)))


def max_turns(env: EnvPlan) -> int | None:
    """Return the most replies in an episode, tools included; None if unknown."""
    tools = (w for w in env.wrappers if wrapper_traits(w.name).role in ("tool", "server_tools"))
    limit = env.rollouts.max_turns
    if env.max_turns is None:
        return limit if limit < MAX_TURNS else None
    return min(env.max_turns + sum(int(tool.args["uses"]) for tool in tools), limit)


def task_count(env: EnvPlan) -> int | None:
    """Return how many tasks an environment has; None if that is unknown, or there is no end."""
    samples = env.args.get("samples")
    return int(samples) if samples is not None else env_facts(env).tasks


def players_of_role(env: EnvPlan) -> int:
    """Return how many players of the largest role an episode has: the solvers of a game; else 1."""
    if env.play is not None:
        return max(Counter(seats_of(env)[seat] for seat in trained_seats(env)).values(), default=1)
    game = with_role(env, "game")
    return 1 if game is None else int(game.args["solvers"])


def seats_of(env: EnvPlan) -> tuple[str, ...]:
    """Return the role of each seat of a game; none if there is one player."""
    seats = source_traits(env.source).seats
    return () if seats is None else seats(env)


def trained_seats(env: EnvPlan, match: int = 0) -> list[int]:
    """Return the seats whose episodes are trained on; if they take turns, that of a ``match``."""
    assert env.play is not None
    roles, wanted = seats_of(env), env.play.seat
    if wanted == ANY:
        return [match % len(roles)]
    return [seat for seat, role in enumerate(roles) if wanted in (None, role)]


def roles_of(env: EnvPlan) -> tuple[str, ...]:
    """Return the roles in which episodes are played and trained on; none without roles."""
    if env.play is not None:
        wanted = env.play.seat
        return tuple(dict.fromkeys(r for r in seats_of(env) if wanted in (None, ANY, r)))
    game = with_role(env, "game")
    return () if game is None else wrapper_traits(game.name).roles


def is_rewarded(env: EnvPlan) -> bool:
    """Return whether something rewards replies: the environment itself, a grader, a judge or an
    agent, which may."""
    graded = source_traits(env.source).graded
    return not graded or bool(env.graders or env.judging or env.agent)


def opponent_name(env: EnvPlan) -> str:
    """Return the opponent in a game, for people."""
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
    """Return whether a role decides if a task is solved: of roles that work together, the last."""
    return env.play is not None or role in ("", *roles_of(env)[-1:])


def judges_of(env: EnvPlan) -> Iterator[tuple[str, JudgingPlan, AnyJudge]]:
    """Yield the judges of an environment, each with its path in the record and its judging."""
    for at, judging in (children_of(env.judging) or {}).items():
        for name, judge in (children_of(judging.judges) or {}).items():
            yield f"judging.{at}.judges.{name}", judging, judge


def _judges(kind: type[J], env: EnvPlan) -> Iterator[tuple[str, JudgingPlan, J]]:
    for path, judging, judge in judges_of(env):
        if isinstance(judge, kind):
            yield path, judging, judge


# Those of `judges_of` of one class.
rubrics_of = partial(_judges, JudgePlan)
reward_models_of = partial(_judges, RewardModelPlan)
comparers_of = partial(_judges, ComparerPlan)


def files_of(env: EnvPlan) -> Iterator[tuple[str, str]]:
    """Yield the files that an environment reads, each with its path in the record."""
    for path, param, value, _ in _arguments(env):
        if param.names_file(value) and not param.folders:
            yield path, file_part(value)


def code_of(env: EnvPlan) -> Iterator[tuple[str, Code]]:
    """Yield the Python code that an environment names, each with its path in the record."""
    for path, param, value, others in _arguments(env):
        if param.code is not None and value is not None:
            args = others["args"] if param.code in _WITH_ARGS else {}
            target = f"{module_of_package(value)}:{param.calls}" if param.calls else value
            if path == "id" and param.code == "factory":
                by_row = others.get(ROWS_OF_ENV) is not None
                yield path, own_code(env.source, target, args, by_row)
            else:
                # Workflows of rLLM are given an executor, beside their first argument.
                offered = ("executor",) if param.code == "program" else ()
                yield path, Code(target, param.code, args, offered=offered)


def own_code(source: str, target: str, args: Mapping[str, Any], by_row: bool = False) -> Code:
    """Return the code that makes the episodes of a source; ``by_row``: one for each row."""
    traits = source_traits(source)
    return Code(target, "factory", args, traits.decides, traits.offers, by_row)


def functions_of(parts: Mapping[str, Any]) -> Iterator[tuple[str, Code]]:
    """Yield the functions of the user's own that give the advantages of a stage, or choose among
    the episodes that it learns from, as far as its parts are known, each with its path."""
    advantage, keep = parts.get("advantage"), getattr(parts.get("data"), "keep", None)
    if advantage is not None and advantage.function is not None:
        yield "advantage.function", Code(advantage.function, "advantage", advantage.args)
    if keep is not None and keep.function is not None:
        yield "data.keep.function", Code(keep.function, "choice", keep.args)


def code_of_data(data: AnyData) -> Code | None:
    """Return the Python code that makes the data of a stage; None if that is read, or played."""
    if not isinstance(data, BuilderData):
        return None
    return Code(data.builder, "factory", data.args, data_traits(data.word).decides)


def code_of_stage(stage: StagePlan) -> Iterator[Code]:
    """Yield the Python code that a stage names."""
    yield from (code for env in stage.environments for _, code in code_of(env))
    yield from filter(None, map(code_of_data, stage.data))
    yield from (code for _, code in functions_of(children_of(stage) or {}))


def templates_of(env: EnvPlan) -> Iterator[tuple[str, Param, str]]:
    """Yield an environment's template files: path in the record, parameter, and name of each."""
    for path, param, value, _ in _arguments(env):
        if param.variables and param.names_file(value):
            yield path, param, value


def _arguments(env: EnvPlan) -> Iterator[tuple[str, Param, Any, Mapping[str, Any]]]:
    """Yield each argument in an environment: path, parameter, value, the arguments beside it."""
    for index, param in enumerate(_params("env", env.source)):
        if index == 0:
            yield "id", param, env.id, env.args
        else:
            yield f"args.{param.name}", param, env.args.get(param.name), env.args
    called = [("wrapper", w.name, w.args, f"wrappers.{w.name}.args") for w in env.wrappers]
    called += [("grader", g.grader, g.args, f"graders.{g.name}.args") for g in env.graders]
    for path, _, judge in rubrics_of(env):
        called.append(("judge", RUBRIC, values_of(judge), path))
    for path, _, comparer in comparers_of(env):
        called.append(("judge", COMPARE_WITH, values_of(comparer), path))
    if env.agent is not None:
        called.append(("env", AGENT, values_of(env.agent), "agent"))
    if env.play is not None and (script := env.play.script) is not None:
        called.append(("opponent", script.player, values_of(script), "play.script"))
    for kind, name, args, path in called:
        for param in _params(kind, name):
            yield f"{path}.{param.name}", param, args.get(param.name), args


def _params(kind: str, name: str) -> tuple[Param, ...]:
    builtin = find_builtin(kind, name)
    return builtin.params if builtin else ()


Change = Callable[[str], str]


def located_files(plan: Plan) -> Plan:
    """Return the plan with every file where it is, as this process opens it."""
    return with_files(plan, partial(located, recipe=plan.recipe))


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
    """Yield the files of the modules that a plan names, if they are in its recipe's folder."""
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
    """Change the parts of a stage: their attributes are the parameters of their builtins."""
    parts: dict[str, Any] = {}
    children = children_of(stage) or {}
    for declared in DECLARATIONS[stage.kind].fields:
        part = children.get(declared.name)
        params = _files_among(_params_of(declared.type), stage.model)
        if isinstance(part, Record):
            parts[declared.name] = _part(part, params, change)
        elif isinstance(part, tuple) and params:
            parts[declared.name] = tuple(_part(one, params, change) for one in part)
    if stage.played:
        parts["envs"] = tuple(_env(env, change) for env in stage.played)
    parts["model"] = _model(stage.model, change)
    located: StagePlan = with_each(
        ModelState,
        evolved(stage, parts),
        lambda state: evolve(state, model=_model(state.model, change)),
    )
    return located


def _part(part: Any, params: Iterable[Param], change: Change) -> Any:
    values = values_of(part)
    new = {name: _env(v, change) for name, v in values.items() if isinstance(v, EnvPlan)}
    for name, value in values.items():
        if isinstance(value, KeepPlan):
            new[name] = _part(value, _params_of("keep"), change)
    new |= _changed(values, params, change)
    return evolve(part, **new) if new else part


def _model(model: ModelPlan, change: Change) -> ModelPlan:
    new = _changed(values_of(model), _files_among(MODEL_FIELDS, model), change)
    return evolve(model, **new) if new else model


def _files_among(params: Iterable[Param], model: ModelPlan) -> list[Param]:
    """Return the parameters that may be paths; a folder of a served model is a name instead."""
    served = model.hosted
    return [p for p in params if p.file and not (served and p.file == MODEL_FOLDER)]


@cache
def _params_of(kind: str) -> tuple[Param, ...]:
    return tuple(param for builtin in builtins_of(kind) for param in builtin.params)


def _env(env: EnvPlan, change: Change) -> EnvPlan:
    source_traits(env.source)  # raises UnknownBuiltinError, of a plan that another version wrote
    first, *others = _params("env", env.source)

    def called(kind: str, name: str, args: dict[str, Any]) -> dict[str, Any]:
        return args | _changed(args, _params(kind, name), change)

    def judge(one: AnyJudge) -> AnyJudge:
        name = {JudgePlan: RUBRIC, ComparerPlan: COMPARE_WITH}.get(type(one))
        return evolve(one, **called("judge", name, values_of(one))) if name else one

    play, agent = env.play, env.agent
    if play is not None and (script := play.script) is not None:
        new = called("opponent", script.player, values_of(script))
        play = evolve(play, script=evolve(script, **new))
    if agent is not None:
        values = values_of(agent)
        if not agent.command:  # the folder is that of a command
            del values["folder"]
        agent = evolve(agent, **called("env", AGENT, values))
    return evolve(
        env,
        play=play,
        id=change(env.id) if first.names_file(env.id) else env.id,
        args={**env.args, **_changed(env.args, others, change)},
        wrappers=tuple(evolve(w, args=called("wrapper", w.name, w.args)) for w in env.wrappers),
        graders=tuple(evolve(g, args=called("grader", g.grader, g.args)) for g in env.graders),
        judging=tuple(evolve(j, judges=tuple(map(judge, j.judges))) for j in env.judging),
        agent=agent,
    )


def _changed(values: Mapping[str, Any], params: Iterable[Param], change: Change) -> dict[str, Any]:
    """Return the values that are paths, changed."""
    return {
        param.name: change(value)
        for param in params
        if param.names_file(value := values.get(param.name))
    }


# Below that many episodes at once, one interpreter is not what a step waits for.
EPISODES_OF_A_PLAYER = 256
_MADE_ONCE = {"ray": "a Ray cluster", "executor": "an executor of the recipe's own"}


def groups_at_once(stage: StagePlan) -> int:
    """Return how many groups of episodes a stage plays side by side; 0 if it plays none."""
    if is_evaluation(stage):
        return stage.tasks
    source = stage.rollouts
    return 0 if source is None else source.batch.at_once * (1 + source.overlap.max_staleness)


def largest_group(stage: StagePlan) -> int:
    """Return the most episodes of a group."""
    if is_evaluation(stage):
        return stage.samples
    return max((env.rollouts.group for env in stage.played), default=1)


def stays(env: EnvPlan) -> str | None:
    """Return why the episodes of an environment stay in the process of the run; None if they may
    go to players."""
    workers = with_role(env, "workers")
    if workers is None or (what := _MADE_ONCE.get(str(workers.args["kind"]))) is None:
        return None
    return f"its workers are those of {what}, which is connected once"


def opens_elsewhere(service: str) -> bool:
    """Return whether other processes can sample from a service by themselves. What they cannot ask
    themselves, they ask through the process of the run."""
    there = find_provider(service)
    return there is not None and there.hosted and there.module is None and there.bridge is None


def usual_players(stage: StagePlan, cores: int) -> PlayersPlan:
    """Return who plays a stage that does not say so, on a machine with so many cores."""
    most = groups_at_once(stage) * largest_group(stage) // EPISODES_OF_A_PLAYER
    count = min(cores, most)
    if count < 2 or not opens_elsewhere(stage.model.service):
        return PlayersPlan("here")
    return PlayersPlan("processes", count)


def busy_players(stage: StagePlan, count: int) -> int:
    """Return how many of so many players of a stage have something to do."""
    most = None if stage.sampling is None else stage.sampling.concurrency
    return players_with_work(count, groups_at_once(stage), largest_group(stage), most)


def players_with_work(count: int, groups: int, size: int, most: int | None) -> int:
    """Return how many of ``count`` players have something to do: each plays whole groups, and asks
    for the first replies of a group, ``size``, at once, within its part of ``most`` replies."""
    if most is not None:
        count = min(count, most // size)
    return max(1, min(count, groups))


def share_of(most: int, number: int, players: int) -> int:
    """Return the part of player ``number`` (from 0) of ``most`` things, at least one."""
    return max(1, most // players + (number < most % players))


def part_of(env: EnvPlan, number: int, players: int, cores: int) -> EnvPlan:
    """Return an environment as player ``number`` of several makes it: with its part of the workers
    and of the agents that the recipe allows at once."""
    workers, wrappers = with_role(env, "workers"), list(env.wrappers)
    if workers is not None:
        usual = cores if workers.args["kind"] == "processes" else None
        if (most := workers.args["count"] or usual) is not None:
            args = {**workers.args, "count": share_of(most, number, players)}
            wrappers[wrappers.index(workers)] = evolve(workers, args=args)
    agent = env.agent
    if agent is not None:
        agent = evolve(agent, concurrency=share_of(agent.concurrency, number, players))
    return evolve(env, wrappers=tuple(wrappers), agent=agent)
