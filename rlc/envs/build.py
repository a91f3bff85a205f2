"""From a planned environment to something that can be played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from rlc.envs.base import EnvError, EnvSource
from rlc.envs.history import ChatHistory, History, TextHistory
from rlc.plan.tree import EnvPlan


@frozen
class PlayableEnv:
    """A planned environment with its source and a maker of histories (one an episode)."""

    plan: EnvPlan
    source: EnvSource
    new_history: Callable[[], History]


def build_env(plan: EnvPlan, tokenizer: Any, renderer: str) -> PlayableEnv:
    """Raises EnvError if the environment cannot be made or the renderer cannot keep a prefix."""
    wrappers = {wrapper.name: wrapper.args for wrapper in plan.wrappers}
    source = _SOURCES[plan.source](plan, wrappers)
    if "chat" in wrappers:
        return PlayableEnv(plan, source, _chat(tokenizer, renderer, wrappers["chat"]))
    template = wrappers["template"]["name"]
    return PlayableEnv(plan, source, lambda: TextHistory(tokenizer, template))


def _gem_source(plan: EnvPlan, wrappers: dict[str, dict[str, Any]]) -> EnvSource:
    from rlc.envs.gem import GemSource

    return GemSource(plan.id, plan.args, concat="concat" in wrappers)


_SOURCES: dict[str, Callable[[EnvPlan, dict[str, dict[str, Any]]], EnvSource]] = {
    "gem": _gem_source,
}


def _chat(tokenizer: Any, renderer_name: str, args: dict[str, Any]) -> Callable[[], History]:
    from tinker_cookbook.renderers import get_renderer

    renderer = get_renderer(renderer_name, tokenizer)
    if not renderer.has_extension_property:
        raise EnvError(
            f"the renderer `{renderer_name}` rewrites earlier turns, so chat() cannot keep them"
        )
    if not all(isinstance(stop, int) for stop in renderer.get_stop_sequences()):
        raise EnvError(f"the renderer `{renderer_name}` ends a turn with text, not with a token")
    instruction = args.get("instruction", "")
    return lambda: ChatHistory(renderer, instruction)
