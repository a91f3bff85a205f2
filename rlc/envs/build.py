"""From a planned environment to something that can be played."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from rlc.envs.base import EnvError, EnvSource, NumberedSource
from rlc.envs.history import ChatHistory, History, TextHistory
from rlc.envs.solver_judge import SolverJudge, make_solver_judge
from rlc.envs.templates import load_template
from rlc.plan.tree import EnvPlan

Wrappers = dict[str, dict[str, Any]]
Shown = Sequence[tuple[str, str]]  # solved problems: question and answer


@frozen
class PlayableEnv:
    """A planned environment with its source and a maker of histories (one an episode).

    ``roles``: how a task is shared out, where several play it.
    """

    plan: EnvPlan
    source: EnvSource | NumberedSource
    new_history: Callable[[], History]
    roles: SolverJudge | None = None


def build_env(plan: EnvPlan, tokenizer: Any, renderer: str) -> PlayableEnv:
    """Raises EnvError if the environment cannot be made, the renderer cannot keep a prefix, or
    a template cannot be read."""
    wrappers = {wrapper.name: wrapper.args for wrapper in plan.wrappers}
    source = _SOURCES[plan.source](plan, wrappers, tokenizer)

    def histories(shown: Shown) -> Callable[[], History]:
        if _is_chat(plan, wrappers):
            instruction = wrappers.get("chat", {}).get("instruction", "")
            return chat_history(tokenizer, renderer, instruction, shown, plan.source in _ONE_REPLY)
        template = load_template(wrappers.get("template", {"name": "no"})["name"])
        before = "".join(f"{question}\n{answer}\n\n" for question, answer in shown)
        return lambda: TextHistory(tokenizer, lambda text: template(before + text))

    new_history = histories(getattr(source, "few_shot", ()))
    if "solver_judge" not in wrappers:
        return PlayableEnv(plan, source, new_history)
    roles = make_solver_judge(wrappers["solver_judge"], histories(()), plan.source == "gem")
    return PlayableEnv(plan, source, new_history, roles)


def _is_chat(plan: EnvPlan, wrappers: Wrappers) -> bool:
    return "chat" in wrappers or (plan.source in _ONE_REPLY and "template" not in wrappers)


def _gem_source(plan: EnvPlan, wrappers: Wrappers, tokenizer: Any) -> EnvSource:
    from rlc.envs.gem import OBSERVATIONS, GemSource

    observation = next((name for name in OBSERVATIONS if name in wrappers), None)
    return GemSource(plan.id, plan.args, observation, tokenizer)


def _problem_source(plan: EnvPlan) -> NumberedSource:
    from rlc.envs.problems import ProblemSource

    return ProblemSource(plan.id, plan.args)


_SOURCES: dict[str, Callable[[EnvPlan, Wrappers, Any], EnvSource | NumberedSource]] = {
    "gem": _gem_source,
    "problems": lambda plan, *_: _problem_source(plan),
}
_ONE_REPLY = ("problems",)  # asked as a chat that ends with the reply
SOURCES = tuple(_SOURCES)
WRAPPERS = (
    "concat",
    "concat_with_action",
    "concat_chat",
    "concat_chat_on_reset",
    "track",
    "template",
    "chat",
    "solver_judge",
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

    renderer = get_renderer(renderer_name, tokenizer)
    messages = [
        {"role": role, "content": text}
        for solved in shown
        for role, text in zip(("user", "assistant"), solved, strict=True)
    ]
    if one_reply:
        return lambda: ChatHistory(renderer, instruction, messages)
    if not renderer.has_extension_property:
        raise EnvError(
            f"the renderer `{renderer_name}` rewrites earlier turns, so chat() cannot keep them"
        )
    if not all(isinstance(stop, int) for stop in renderer.get_stop_sequences()):
        raise EnvError(f"the renderer `{renderer_name}` ends a turn with text, not with a token")
    return lambda: ChatHistory(renderer, instruction, messages)
