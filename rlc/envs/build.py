"""From a planned environment to something that can be played, or to what is wrong with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import field, frozen

from rlc.catalog import (
    chat_history_of,
    code_of,
    gem_facts,
    is_chat,
    is_included,
    max_turns,
    prompt_rules,
    rubrics_of,
    source_traits,
    with_role,
    wrapper_traits,
)
from rlc.chat import (
    AS_PLAYED,
    EnvError,
    PromptBuilder,
    StoppingHistory,
    TextHistory,
    TranscriptHistory,
    View,
    ViewChange,
    chat_history,
    load_template,
    views_of,
)
from rlc.data import (
    DataError,
    DataRow,
    is_taskset,
    load_attribute,
    require_fits,
    rows_in,
    search_beside,
    signature_of,
    taskset_faults,
)
from rlc.envs.agents import AgentSource, agent_problem
from rlc.envs.base import (
    AsyncSource,
    BlockingSource,
    CountedSource,
    PromptingSource,
    TaskKey,
    make_source,
)
from rlc.envs.cookbook.renderers import registered
from rlc.envs.cookbook.source import CookbookSource, TokenHistory
from rlc.envs.games import GameSource, OpponentProgram, make_opponent, own_game, textarena_source
from rlc.envs.gem.guess import GuessSource
from rlc.envs.gem.source import GemSource
from rlc.envs.gem.tools import require_search
from rlc.envs.harbor import HarborSource, harbor_faults, harbor_problems
from rlc.envs.judges.judging import JudgedReward, JudgedSource, make_judgings
from rlc.envs.judges.solver_judge import SolverJudge, make_solver_judge
from rlc.envs.mcp import McpSource, server_problem
from rlc.envs.openenv import OpenEnvSource, openenv_problem
from rlc.envs.openreward import OpenRewardSource, openreward_problems
from rlc.envs.problems import ProblemSource
from rlc.envs.responders import Responders, endpoint_problems, no_responders
from rlc.envs.verifiers.environments import VerifiersSource
from rlc.envs.verifiers.tasksets import TasksetSource
from rlc.envs.workers.async_adapter import make_async
from rlc.plan import EndpointPlan, EnvPlan


@frozen
class PlayableEnv:
    """A planned environment with its source and a factory of histories (one per episode).

    ``roles``: how several players share a task. ``count``: the number of tasks; None: unlimited, or
    not known before they are played. ``responders``: makes the models that answer inside of it.
    ``comparing``: judges the episodes of a group when all are over. ``endpoint``: where agents ask,
    which the runtime adds. ``program``: the opponent in a game, if that is a program.
    """

    plan: EnvPlan
    source: AsyncSource
    new_history: Callable[[], PromptBuilder]
    roles: SolverJudge | None = None
    count: int | None = None
    responders: Responders = no_responders
    views: Mapping[str, Callable[[], View]] = field(factory=dict)
    comparing: tuple[JudgedReward, ...] = ()
    endpoint: Any = None
    program: OpponentProgram | None = None


def build_env(
    plan: EnvPlan,
    tokenizer: Any,
    renderer: str,
    responders: Responders = no_responders,
    views: Mapping[str, ViewChange] | None = None,
) -> PlayableEnv:
    """Make an environment with the models of ``responders``; ``views`` follow its episodes. Raise
    EnvError if it cannot be made, the renderer cannot keep a prefix, or a template is unusable."""
    offer = ADAPTERS[plan.source].make(plan, tokenizer, renderer)
    source = offer.source

    tools = with_role(plan, "server_tools")

    def ended(
        new_history: Callable[[], PromptBuilder], reader: Any = tokenizer
    ) -> Callable[[], PromptBuilder]:
        texts = plan.rollouts.stop
        return (lambda: StoppingHistory(new_history(), texts, reader)) if texts else new_history

    def histories(
        solved: Sequence[Mapping[str, Any]], shown: ViewChange = AS_PLAYED
    ) -> Callable[[], PromptBuilder]:
        own = begins(plan) | ({} if shown.system is None else {"system": shown.system})
        reader = shown.reader or (tokenizer, renderer)
        if tools is not None or is_chat(plan):
            whole = tools is not None
            return ended(chat_history(*reader, whole=whole, solved=solved, **own), reader[0])
        wrapper = with_role(plan, "template")
        template = load_template(wrapper.args["name"] if wrapper else "no")
        return ended(lambda: TextHistory(tokenizer, template))

    own_history = offer.new_history
    new_history = ended(own_history) if own_history else histories(offer.few_shot)
    followed = views_of(views or {}, partial(histories, offer.few_shot))
    count = offer.count or plan.args.get("samples")
    workers, game = with_role(plan, "workers"), with_role(plan, "game")
    if plan.agent is not None:
        assert isinstance(source, ProblemSource), "the rules of the checker ensure it"
        source = AgentSource(plan, source)
    if not isinstance(source, AsyncSource):
        source = offer.with_awaited(make_async(source, workers.args if workers else None))
    elif workers is not None:
        what = f"`{plan.name}` does not block, so `{workers.name}()` has nothing to do: leave it"
        raise EnvError(what)
    if tools is not None:
        source = McpSource(source, tools.args)
    alone, together = make_judgings(plan, offer.row, responders)
    for judging in (*alone, *together):
        judging.require_rows(offer.rows)
    if alone:
        source = JudgedSource(source, alone)
    if game is not None:
        boxed = source_traits(plan.source).boxed
        roles = make_solver_judge(game.args, histories(()), boxed)
        return PlayableEnv(plan, source, new_history, roles, count, responders)
    script = plan.play.script if plan.play else None
    program = None if script is None else make_opponent(script)
    models = (responders, followed, together)
    return PlayableEnv(plan, source, new_history, None, count, *models, program=program)


def begins(plan: EnvPlan) -> dict[str, Any]:
    """Return the arguments of `chat()` that say how the chats of an environment begin and go on."""
    chat = with_role(plan, "chat")
    own = {name: chat.args.get(name, "") for name in ("instruction", "system")} if chat else {}
    return own | {"history": chat_history_of(plan)}


@frozen
class Offer:
    """A source, and what it offers beside its episodes.

    ``new_history`` makes its own prompts, ``few_shot`` are messages before those of each task, and
    ``count`` is the number of tasks, if known. Where tasks are rows, ``row`` returns the fields of
    a task, and ``rows`` are all of them. ``with_awaited`` adds rewards that are computed in the
    event loop.
    """

    source: AsyncSource | BlockingSource
    new_history: Callable[[], PromptBuilder] | None = None
    count: int | None = None
    few_shot: Sequence[Mapping[str, Any]] = ()
    rows: Sequence[DataRow] = ()
    row: Callable[[TaskKey], Mapping[str, Any] | None] = lambda _: None
    with_awaited: Callable[[AsyncSource], AsyncSource] = lambda source: source


@frozen
class SourceAdapter:
    """How the environments of a source are played.

    ``make`` makes one, for a tokenizer and a renderer, or raises EnvError. ``problems`` returns a
    sentence for each thing that is wrong with some of them, without making them. ``faults`` tries
    the solutions that tasks come with; see :func:`solution_faults`.
    """

    make: Callable[[EnvPlan, Any, str], Offer]
    problems: Callable[[Sequence[EnvPlan]], Iterable[str]] = lambda _: ()
    faults: Callable[[EnvPlan], Awaitable[list[tuple[str, str]]]] | None = None


def _each(require: Callable[[EnvPlan], None]) -> Callable[[Sequence[EnvPlan]], Iterator[str]]:
    def problems(envs: Sequence[EnvPlan]) -> Iterator[str]:
        for env in envs:
            try:
                require(env)
            except (DataError, EnvError) as error:
                yield f"`{env.name}`: {error}"

    return problems


def _tools(plan: EnvPlan) -> list[tuple[str, dict[str, Any]]]:
    return [(w.name, w.args) for w in plan.wrappers if wrapper_traits(w.name).role == "tool"]


def _gem_source(plan: EnvPlan, tokenizer: Any, _: str) -> Offer:
    if is_included(plan):
        return Offer(GuessSource(plan.id, {**gem_facts(plan.id)["args"], **plan.args}))
    history = with_role(plan, "history")
    own = history.name if history else None
    return Offer(GemSource(plan.id, plan.args, own, tokenizer, _tools(plan)))


def _require_gem(plan: EnvPlan) -> None:
    require_search(_tools(plan))


def _problem_source(plan: EnvPlan, *_: Any) -> Offer:
    # `rows()` has a prompt for a question, and no answers.
    defaults = {"question": plan.args.get("prompt"), "answer": None, "few_shot": None}
    args = {**defaults, "format_coef": 0.0, **plan.args}
    source = ProblemSource(plan.id, args, plan.graders, begins(plan), **prompt_rules(plan))
    return Offer(
        source,
        count=source.count,
        few_shot=source.few_shot,
        rows=source.rows,
        row=source.row,
        with_awaited=source.with_awaited,
    )


def _openreward_source(plan: EnvPlan, tokenizer: Any, renderer: str) -> Offer:
    history = chat_history(tokenizer, renderer, whole=True, **begins(plan))
    return Offer(OpenRewardSource(plan.id, plan.args), history)


def _cookbook_source(plan: EnvPlan, tokenizer: Any, renderer: str) -> Offer:
    rows, split = plan.args.get("rows"), plan.args["split"]
    goes_on = chat_history_of(plan) == "sampled" and max_turns(plan) != 1
    source = CookbookSource(
        builder=plan.id,
        args=plan.args["args"],
        split="train" if rows else split,
        size=plan.rollouts.group,
        tokenizer=tokenizer,
        renderer=registered(renderer) if goes_on else renderer,
        self_play=plan.args["self_play"],
        rows=rows and rows_in(rows, split, ""),
    )
    return Offer(source, lambda: TokenHistory(tokenizer), source.count)


def _textarena_source(plan: EnvPlan, *_: Any) -> Offer:
    return Offer(textarena_source(plan.id, plan.args["players"], plan.args.get("illegal")))


def _python_game(plan: EnvPlan, *_: Any) -> Offer:
    begin = partial(own_game, plan.id, plan.args["args"])
    return Offer(GameSource(plan.id, len(plan.args["seats"]), begin))


def _python_source(plan: EnvPlan, *_: Any) -> Offer:
    source: Any = make_source(plan.id, plan.args["args"])
    history = source.new_history if isinstance(source, PromptingSource) else None
    return Offer(source, history, source.count if isinstance(source, CountedSource) else None)


def _harbor_source(plan: EnvPlan, tokenizer: Any, renderer: str) -> Offer:
    history = chat_history(tokenizer, renderer, whole=True, **begins(plan))
    source = HarborSource(plan.id, plan.args)
    return Offer(source, history, source.count)


def _openenv_source(plan: EnvPlan, tokenizer: Any, renderer: str) -> Offer:
    history = chat_history(tokenizer, renderer, whole=True, **begins(plan))
    return Offer(OpenEnvSource(plan.id, plan.args), history)


def _verifiers_source(plan: EnvPlan, tokenizer: Any, renderer: str) -> Offer:
    ((_, loader),) = code_of(plan)
    new_chat = chat_history(tokenizer, renderer, whole=True, **begins(plan))
    kind = TasksetSource if is_taskset(loader.target) else VerifiersSource
    source = kind(plan.id, loader.target, plan.args)
    return Offer(source, lambda: TranscriptHistory(new_chat), source.count)


async def _taskset_faults(plan: EnvPlan) -> list[tuple[str, str]]:
    ((_, loader),) = code_of(plan)
    if not is_taskset(loader.target):
        return []
    return await asyncio.to_thread(taskset_faults, loader.target, loader.args)


ADAPTERS = {
    "gem": SourceAdapter(_gem_source, _each(_require_gem)),
    "problems": SourceAdapter(_problem_source),
    "rows": SourceAdapter(_problem_source),
    "openreward": SourceAdapter(_openreward_source, openreward_problems),
    "cookbook": SourceAdapter(_cookbook_source),
    "python": SourceAdapter(_python_source),
    "harbor": SourceAdapter(_harbor_source, harbor_problems, harbor_faults),
    "openenv": SourceAdapter(_openenv_source, _each(openenv_problem)),
    "verifiers": SourceAdapter(_verifiers_source, faults=_taskset_faults),
    "textarena": SourceAdapter(_textarena_source),
    "python_game": SourceAdapter(_python_game),
}


async def solution_faults(env: EnvPlan) -> list[tuple[str, str]] | None:
    """Return what is wrong with the first tasks of an environment that come with solutions, each
    with what shows it: the task's ``SOLUTION``, or that ``NOTHING`` was done; None if it has none.
    """
    faults = ADAPTERS[env.source].faults
    return None if faults is None else await faults(env)


def _require_code(env: EnvPlan) -> None:
    if env.agent is not None and (problem := agent_problem(env.agent)):
        raise EnvError(problem)
    for _, code in code_of(env):
        if env.source == "verifiers" and is_taskset(code.target):  # it has no parameters
            continue
        require_fits(code, signature_of(load_attribute(code.target)))


def source_problems(envs: Sequence[EnvPlan], recipe: str) -> Iterator[str]:
    """Yield a sentence for each thing outside of a recipe that is wrong with its environments, such
    as Python code and servers. None is made, and nothing is paid for."""
    search_beside(recipe)
    yield from _each(_require_code)(envs)
    models = [judge.model for env in envs for _, _, judge in rubrics_of(env)]
    endpoints = {repr(model): model for model in models if isinstance(model, EndpointPlan)}
    for endpoint in endpoints.values():
        yield from endpoint_problems(endpoint)
    for source in dict.fromkeys(env.source for env in envs):
        yield from ADAPTERS[source].problems([env for env in envs if env.source == source])
    for env in envs:
        if (tools := with_role(env, "server_tools")) is not None:
            yield from filter(None, [server_problem(env.name, tools.args)])
