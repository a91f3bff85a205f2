"""Rules on environments: what the model sees, whether they can be made, context."""

from __future__ import annotations

import os

from rlc.catalog.builtins.sources import max_turns, measured
from rlc.catalog.builtins.wrappers import OBSERVATIONS, PROMPT_MAKERS, TOOLS
from rlc.catalog.facts.gem import is_broken, library
from rlc.catalog.facts.models import find_model, renderer_keeps_prefix
from rlc.check.rules.base import Rule, View
from rlc.plan.records import EnvPlan

CHARACTERS_PER_TOKEN = 4
_CHAT = ("concat_chat", "concat_chat_on_reset")


def _names(env: EnvPlan) -> list[str]:
    return [wrapper.name for wrapper in env.wrappers]


def _has_prompt(view: View) -> None:
    """An environment of GEM gives bare text; the others come as chats."""
    for env in view.envs:
        if env.source == "gem" and not set(PROMPT_MAKERS) & set(_names(env)):
            message = f"nothing says how the model sees the environment `{env.name}`"
            advice = 'end it with `|> chat()`, or with `|> template("qwen3_game")`'
            view.error("RL0307", f"envs.{env.name}", message, advice)


def _wraps_gem(view: View) -> None:
    """Tools, histories and templates are GEM's; the other sources bring their own."""
    for env in view.envs:
        foreign = [n for n in _names(env) if n in (*TOOLS, *OBSERVATIONS, "track", "template")]
        if env.source != "gem" and foreign:
            message = (
                f"`{foreign[0]}()` wraps environments of GEM, and this is from `{env.source}()`"
            )
            advice = "take it out: its prompts are chats through the model's renderer already"
            view.error("RL0305", f"envs.{env.name}.wrappers.{foreign[0]}", message, advice)


def _blocks(view: View) -> None:
    """Workers take calls that block off the event loop; some sources never block it."""
    for env in view.envs:
        if "workers" in _names(env) and env.source in ("openreward", "cookbook"):
            message = f"`{env.source}()` waits without blocking, so `workers()` has nothing to do"
            path = f"envs.{env.name}.wrappers.workers"
            view.error("RL0305", path, message, "take it out")


def _can_be_made(view: View) -> None:
    for env in view.envs:
        if env.source == "gem" and is_broken(env.id):
            message = f'{library()} registers "{env.id}" but cannot make it'
            advice = "take another environment"
            view.error("RL0404", f"envs.{env.name}.id", message, advice)


def _files_are_there(view: View) -> None:
    for env in view.envs:
        paths = {f"wrappers.{w.name}.args.{n}": v for w in env.wrappers for n, v in w.args.items()}
        paths |= {f"args.{name}": value for name, value in env.args.items()}
        paths["id"] = env.id
        for path, value in paths.items():
            if _is_file_name(value) and not os.path.isfile(value):
                message = f'there is no file "{value}"'
                advice = "paths start at the folder you are in"
                view.error("RL0001", f"envs.{env.name}.{path}", message, advice)


def _is_file_name(value: object) -> bool:
    endings = (".jsonl", ".csv", ".parquet", ".j2", ".jinja")
    return isinstance(value, str) and value.endswith(endings)


def _grader_is_complete(view: View) -> None:
    """A pattern for `grader = regex`, and a function for `grader = python`."""
    for env in view.envs:
        grader = env.args.get("grader") if env.source == "problems" else None
        needed = {"regex": "pattern", "python": "grade_with"}.get(str(grader))
        if needed and env.args[needed] is None:
            message = f"`grader = {grader}` needs `{needed}`"
            view.error("RL0205", f"envs.{env.name}.args.grader", message)


def _a_task_to_solve(view: View) -> None:
    """A judge compares answers to one question."""
    for env in view.envs:
        if "solver_judge" in _names(env) and env.max_turns != 1:
            message = f"`{env.name}` is no single question, so there are no answers to judge"
            advice = "`solver_judge()` takes `problems(…)`, or a single-turn environment"
            view.error("RL0315", f"envs.{env.name}.wrappers.solver_judge", message, advice)


def _history_has_an_effect(view: View) -> None:
    """A history of a single turn is that turn."""
    for env in view.envs:
        useless = [name for name in _names(env) if name in ("concat", "concat_with_action")]
        if useless and max_turns(env) == 1:
            message = f"`{env.name}` has one turn, so `{useless[0]}()` changes nothing"
            path = f"envs.{env.name}.wrappers.{useless[0]}"
            view.warning("RL0414", path, message, "leave it out")


def _reward_bounds(view: View) -> None:
    """The smaller limit comes first."""
    for env in view.envs:
        low, high = env.reward.low, env.reward.high
        if low is not None and high is not None and low > high:
            message = f"low = {low:g} is more than high = {high:g}"
            view.error("RL0202", f"envs.{env.name}.reward.low", message, "swap them")


def _chat_keeps_prefix(view: View) -> None:
    """A chat is one sequence, which a renderer that rewrites earlier turns breaks."""
    renderer = view.model.renderer
    if renderer_keeps_prefix(renderer) is not False:
        return
    for env in view.envs:
        if "chat" in _names(env) and max_turns(env) != 1:
            model = find_model(view.model.base)
            keep = [
                name for name in (model.renderers if model else ()) if renderer_keeps_prefix(name)
            ]
            better = f'`renderer = "{keep[0]}"` in the model' if keep else '`template("…")` for it'
            message = f'`chat()` needs earlier turns as they were, and "{renderer}" rewrites them'
            view.error("RL0405", f"envs.{env.name}.wrappers.chat", message, f"use {better}")


def _each_turn_a_sequence(view: View) -> None:
    """Where no turn extends the one before, a long episode is paid for again and again."""
    for env in view.envs:
        turns = max_turns(env)
        names = [name for name in _names(env) if name in OBSERVATIONS]
        if names and (turns is None or turns > 2) and turns != 1:
            message = f"with `{names[0]}()` every turn of `{env.name}` is a sequence of its own"
            advice = "the cost grows with the square of the turns; `chat()` makes the episode one"
            view.warning("RL0415", f"envs.{env.name}.wrappers.{names[0]}", message, advice)


def _has_chat_template(view: View) -> None:
    """A base model's tokenizer may have none, and then GEM's chat wrappers fail."""
    model = find_model(view.model.base)
    if model is None or "role_colon" not in model.renderers:
        return
    for env in view.envs:
        for name in _names(env):
            if name in _CHAT:
                message = (
                    f"`{name}()` needs a chat template, and `{view.model.base}` is a base model"
                )
                advice = "take `concat()`, or a model that was trained to chat"
                view.error("RL0418", f"envs.{env.name}.wrappers.{name}", message, advice)


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
    """prompt + turns × (reply + observation) against the model's context."""
    context = view.model.context
    if context is None:
        return
    for env in view.envs:
        reply = env.rollouts.max_tokens or view.sampling.max_tokens
        if reply >= context:
            message = f"a reply of {reply:,} tokens leaves no room for a prompt in {context:,}"
            view.error("RL0407", "sampling.max_tokens", message, "lower max_tokens")
            return
        turns = max_turns(env) or 1
        longest = _longest(env, reply, turns)
        if longest > context:
            message = (
                f"{turns} turns of {reply:,} tokens may outgrow the model's context of {context:,}"
            )
            room = (context - _longest(env, 0, turns)) // (turns if _is_chat(env) else 1)
            advice = f"`{env.name}` would be cut off; {max(1, room):,} tokens a turn fit"
            view.warning("RL0407", "sampling.max_tokens", message, advice)


def _is_chat(env: EnvPlan) -> bool:
    """Whether earlier replies stay in the prompt."""
    return bool({"chat", "concat_with_action", "concat_chat"} & set(_names(env)))


def _longest(env: EnvPlan, reply: int, turns: int) -> int:
    """Tokens of the longest prompt with its reply, as far as its observations were measured."""
    chars = measured(env)
    kept = turns if {"chat", *OBSERVATIONS} & set(_names(env)) else 1
    seen = chars.get("prompt", 0) + (kept - 1) * chars.get("observation", 0)
    return (turns if _is_chat(env) else 1) * reply + seen // CHARACTERS_PER_TOKEN


RULES = (
    Rule(("envs",), _has_prompt),
    Rule(("envs",), _wraps_gem),
    Rule(("envs",), _blocks),
    Rule(("envs",), _can_be_made),
    Rule(("envs",), _files_are_there),
    Rule(("envs",), _grader_is_complete),
    Rule(("envs",), _a_task_to_solve),
    Rule(("envs",), _history_has_an_effect),
    Rule(("envs",), _reward_bounds),
    Rule(("envs", "model"), _chat_keeps_prefix),
    Rule(("envs", "loss"), _each_turn_a_sequence),
    Rule(("envs", "model"), _has_chat_template),
    Rule(("envs", "model"), _template_fits),
    Rule(("envs", "model", "sampling"), _context),
)
