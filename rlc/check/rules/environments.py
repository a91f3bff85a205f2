"""Rules on environments: what the model sees, whether they can be made, context."""

from __future__ import annotations

from rlc.catalog.environments import PROMPT_MAKERS, is_broken, library
from rlc.catalog.models import find_model, renderer_keeps_prefix
from rlc.check.rules.base import Rule, View
from rlc.plan.tree import EnvPlan


def _names(env: EnvPlan) -> list[str]:
    return [wrapper.name for wrapper in env.wrappers]


def _has_prompt(view: View) -> None:
    for env in view.envs:
        if not set(PROMPT_MAKERS) & set(_names(env)):
            message = f"nothing says how the model sees the environment `{env.name}`"
            advice = 'end it with `|> chat()`, or with `|> template("qwen3_game")`'
            view.error("RL0307", f"envs.{env.name}", message, advice)


def _can_be_made(view: View) -> None:
    for env in view.envs:
        if is_broken(env.id):
            message = f'{library()} registers "{env.id}" but cannot make it'
            advice = "take another environment"
            view.error("RL0404", f"envs.{env.name}.id", message, advice)


def _chat_keeps_prefix(view: View) -> None:
    """A chat is one sequence, which a renderer that rewrites earlier turns breaks."""
    renderer = view.model.renderer
    if renderer_keeps_prefix(renderer) is not False:
        return
    for env in view.envs:
        if "chat" in _names(env):
            model = find_model(view.model.base)
            keep = [
                name for name in (model.renderers if model else ()) if renderer_keeps_prefix(name)
            ]
            better = f'`renderer = "{keep[0]}"` in the model' if keep else '`template("…")` for it'
            message = f'`chat()` needs earlier turns as they were, and "{renderer}" rewrites them'
            view.error("RL0405", f"envs.{env.name}.wrappers.chat", message, f"use {better}")


def _template_fits(view: View) -> None:
    model = find_model(view.model.base)
    if model is None or model.chatml:
        return
    for env in view.envs:
        for wrapper in env.wrappers:
            name = wrapper.args.get("name", "")
            if wrapper.name == "template" and name.startswith("qwen3_"):
                path = f"envs.{env.name}.wrappers.template.args.name"
                message = (
                    f'the template "{name}" writes Qwen\'s chat markup, not that of this model'
                )
                view.warning("RL0406", path, message, 'use `chat()`, or `template("no")`')


def _context(view: View) -> None:
    context, reply = view.model.context, view.sampling.max_tokens
    if context is None:
        return
    if reply >= context:
        message = f"a reply of {reply:,} tokens leaves no room for a prompt in {context:,}"
        view.error("RL0407", "sampling.max_tokens", message, "lower max_tokens")
        return
    for env in view.envs:
        turns = env.max_turns or 1
        if "chat" in _names(env) and turns * reply >= context:
            message = (
                f"{turns} turns of {reply:,} tokens may outgrow the model's context of {context:,}"
            )
            advice = f"`{env.name}` would be cut off; {context // turns:,} tokens a turn fit"
            view.warning("RL0407", "sampling.max_tokens", message, advice)


RULES = (
    Rule(("envs",), _has_prompt),
    Rule(("envs",), _can_be_made),
    Rule(("envs", "model"), _chat_keeps_prefix),
    Rule(("envs", "model"), _template_fits),
    Rule(("envs", "model", "sampling"), _context),
)
