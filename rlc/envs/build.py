"""From a planned environment to something that can be played."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from rlc.envs.base import AsyncSource, BlockingSource, EnvError, NumberedSource
from rlc.envs.caching_tokenizer import CachingTokenizer
from rlc.envs.history import ChatHistory, Chats, History, TextHistory
from rlc.envs.judges.solver_judge import SolverJudge, make_solver_judge
from rlc.envs.templates import load_template
from rlc.envs.workers.async_adapter import make_async
from rlc.plan.records import EnvPlan

Wrappers = dict[str, dict[str, Any]]
Shown = Sequence[tuple[str, str]]  # solved problems: question and answer


@frozen
class PlayableEnv:
    """A planned environment with its source and a maker of histories (one an episode).

    ``roles``: how a task is shared out, where several play it. ``count``: how many tasks there
    are; None: no end to them, or not known before they are played.
    """

    plan: EnvPlan
    source: AsyncSource
    new_history: Callable[[], History]
    roles: SolverJudge | None = None
    count: int | None = None


def build_env(plan: EnvPlan, tokenizer: Any, renderer: str) -> PlayableEnv:
    """Raises EnvError if the environment cannot be made, the renderer cannot keep a prefix, or
    a template cannot be read."""
    wrappers = {wrapper.name: wrapper.args for wrapper in plan.wrappers}
    source = _SOURCES[plan.source](plan, wrappers, tokenizer, renderer)

    def histories(shown: Shown) -> Callable[[], History]:
        if _is_chat(plan, wrappers):
            instruction = wrappers.get("chat", {}).get("instruction", "")
            return chat_history(tokenizer, renderer, instruction, shown, plan.source in _ONE_REPLY)
        template = load_template(wrappers.get("template", {"name": "no"})["name"])
        before = "".join(f"{question}\n{answer}\n\n" for question, answer in shown)
        return lambda: TextHistory(tokenizer, lambda text: template(before + text))

    own_history = getattr(source, "new_history", None)
    new_history = own_history or histories(getattr(source, "few_shot", ()))
    playable = _playable(plan, source, wrappers.get("workers"))
    count = getattr(source, "count", None) or plan.args.get("samples")
    if "solver_judge" not in wrappers:
        return PlayableEnv(plan, playable, new_history, count=count)
    roles = make_solver_judge(wrappers["solver_judge"], histories(()), plan.source == "gem")
    return PlayableEnv(plan, playable, new_history, roles, count)


def _playable(
    plan: EnvPlan, source: AsyncSource | BlockingSource, workers: dict[str, Any] | None
) -> AsyncSource:
    """Off the event loop, where the source blocks. Raises EnvError for workers that it cannot
    have."""
    if not isinstance(source, AsyncSource):
        return make_async(source, workers)
    if workers is not None:
        raise EnvError(f"`{plan.name}` does not block, so `workers()` has nothing to do: leave it")
    return source


def _is_chat(plan: EnvPlan, wrappers: Wrappers) -> bool:
    return "chat" in wrappers or (plan.source in _CHATS and "template" not in wrappers)


def _gem_source(plan: EnvPlan, wrappers: Wrappers, tokenizer: Any, _: str) -> BlockingSource:
    from rlc.envs.gem.source import OBSERVATIONS, GemSource
    from rlc.envs.gem.tools import TOOLS

    observation = next((name for name in OBSERVATIONS if name in wrappers), None)
    tools = [(name, args) for name, args in wrappers.items() if name in TOOLS]
    return GemSource(plan.id, plan.args, observation, tokenizer, tools)


def _problem_source(plan: EnvPlan) -> NumberedSource:
    from rlc.envs.problems.source import ProblemSource

    return ProblemSource(plan.id, plan.args)


def _openreward_source(
    plan: EnvPlan, wrappers: Wrappers, tokenizer: Any, renderer: str
) -> AsyncSource:
    from rlc.envs.openreward.source import OpenRewardSource
    from rlc.envs.tool_chat import tool_chat_history

    instruction = wrappers.get("chat", {}).get("instruction", "")
    history = tool_chat_history(tokenizer, renderer, instruction)
    return OpenRewardSource(plan.id, plan.args, history)


def _cookbook_source(plan: EnvPlan, _: Wrappers, tokenizer: Any, renderer: str) -> AsyncSource:
    from rlc.envs.cookbook.source import CookbookSource

    return CookbookSource(
        builder=plan.id,
        args=plan.args["args"],
        split=plan.args["split"],
        size=plan.rollouts.group,
        tokenizer=tokenizer,
        renderer=renderer,
        self_play=plan.args["self_play"],
    )


def _python_source(plan: EnvPlan) -> AsyncSource | BlockingSource:
    from rlc.envs.python.source import make_source

    return make_source(plan.id, plan.args["args"])


# A source may bring its own maker of histories, as an attribute `new_history`.
_SOURCES: dict[str, Callable[[EnvPlan, Wrappers, Any, str], AsyncSource | BlockingSource]] = {
    "gem": _gem_source,
    "problems": lambda plan, *_: _problem_source(plan),
    "openreward": _openreward_source,
    "cookbook": _cookbook_source,
    "python": lambda plan, *_: _python_source(plan),
}
_ONE_REPLY = ("problems",)  # asked as a chat that ends with the reply
_CHATS = (*_ONE_REPLY, "python")  # asked as a chat even where the recipe has no `chat()`
SOURCES = tuple(_SOURCES)
WRAPPERS = (
    "python_tool",
    "search_tool",
    "concat",
    "concat_with_action",
    "concat_chat",
    "concat_chat_on_reset",
    "track",
    "template",
    "chat",
    "solver_judge",
    "curriculum",
    "workers",
)


def chat_history(
    tokenizer: Any,
    renderer_name: str,
    instruction: str,
    shown: Shown = (),
    one_reply: bool = False,
) -> Callable[[], History]:
    """A maker of chats. Raises EnvError for a renderer that cannot keep a prefix, unless a chat
    ends with its first reply."""
    from tinker_cookbook.renderers import get_renderer

    renderer = get_renderer(renderer_name, CachingTokenizer(tokenizer))
    messages = [
        {"role": role, "content": text}
        for solved in shown
        for role, text in zip(("user", "assistant"), solved, strict=True)
    ]
    chats = Chats(renderer, messages)
    if one_reply:
        return lambda: ChatHistory(chats, instruction)
    if not renderer.has_extension_property:
        raise EnvError(
            f"the renderer `{renderer_name}` rewrites earlier turns, so chat() cannot keep them"
        )
    if not all(isinstance(stop, int) for stop in renderer.get_stop_sequences()):
        raise EnvError(f"the renderer `{renderer_name}` ends a turn with text, not with a token")
    return lambda: ChatHistory(chats, instruction)
