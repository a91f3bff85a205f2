"""Environment sources and wrappers. Ids and signatures of GEM come from its snapshot."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from rlc.catalog.records import Args, Builtin, Param, Signature
from rlc.plan.tree import EnvPlan, StepPlan

_PATH = Path(__file__).parent / "data" / "gem.json"
_AT_LEAST_ONE = {"max_turns", "size", "max_tests", "max_workers"}

# Templates by name: the whole prompt around an observation (texts: rlc.envs.templates).
TEMPLATES = ("qwen3_game", "qwen3_general", "no")


@cache
def gem_snapshot() -> Any:
    """Written by ``python -m rlc.catalog.snapshot``."""
    return json.loads(_PATH.read_text(encoding="utf-8"))


def gem_ids() -> tuple[str, ...]:
    return tuple(gem_snapshot()["environments"])


def gem_facts(env_id: str) -> dict[str, Any]:
    """``class, args, chars`` of an environment with its class's ``params, multi_turn, needs``."""
    facts = gem_snapshot()
    environment = facts["environments"][env_id]
    return {**facts["classes"][environment["class"]], **environment}


def is_broken(env_id: str) -> bool:
    """Whether the library itself cannot make it: nothing is missing, and yet it fails."""
    facts = gem_facts(env_id)
    return facts["chars"] is None and not facts["needs"]


def library() -> str:
    """``gem-llm 0.1.0``, the version that the snapshot was taken of."""
    return f"{gem_snapshot()['library']} {gem_snapshot()['version']}"


def _gem_signature(env_id: str) -> Signature:
    """The keyword arguments that an environment honours, with its registered values as defaults."""
    facts = gem_facts(env_id)
    params = tuple(
        Param(
            name,
            spec["type"],
            f"argument of {facts['class'].split(':')[1]}",
            facts["args"].get(name, spec["default"]),
            low=1 if name in _AT_LEAST_ONE else None,
            optional=spec.get("optional", False),
            default_of="the environment",
        )
        for name, spec in facts["params"].items()
    )
    reason = None
    if env_id.startswith("rg:"):
        reason = "GEM hands reasoning-gym no other argument: it would be dropped without a word"
    return Signature(params, reason)


def _gem(args: Args) -> EnvPlan:
    env_id = args.id.data
    own = {name: value for name, value in args.values.items() if name != "id"}
    return EnvPlan(
        name=_name_of(env_id),
        weight=1.0,
        source="gem",
        id=args.id,
        args=own,
        wrappers=(),
        max_turns=_max_turns(env_id, own),
    )


def _max_turns(env_id: str, args: dict[str, Any]) -> Any:
    """1 for a single-turn environment; None where a game draws its size, and its limit with it."""
    if not gem_facts(env_id)["multi_turn"]:
        return 1
    if any(value.data is None for value in args.values()):
        return None
    return args["max_turns"]


def _name_of(env_id: str) -> str:
    """``game:Sudoku-v0-easy`` as a name of the language: ``Sudoku_v0_easy``."""
    last = env_id.partition(":")[2] or env_id
    return "".join(char if char.isalnum() else "_" for char in last)


SOURCES = (
    Builtin(
        "gem",
        "env",
        "an environment of GEM, by its id",
        _gem,
        (Param("id", "string", "id in GEM's registry", choices=gem_ids, noun="GEM environment"),),
        more=_gem_signature,
    ),
)

_TEMPLATE_LAST = "`template()` fills in what the model sees last, so it comes after"
_ONE_HISTORY = "one wrapper keeps the history: `concat()` in the text, or `chat()` in turns"

WRAPPERS = (
    Builtin(
        "concat",
        "wrapper",
        "each observation with all earlier ones before it; every turn is a prompt of its own",
        lambda _: StepPlan("concat", {}),
        not_after={"concat": _ONE_HISTORY, "chat": _ONE_HISTORY, "template": _TEMPLATE_LAST},
    ),
    Builtin(
        "template",
        "wrapper",
        "the whole prompt around an observation",
        lambda args: StepPlan("template", {"name": args.name}),
        (Param("name", "string", "name of the template", choices=TEMPLATES, noun="template"),),
        not_after={
            "template": "a prompt has one template",
            "chat": "`chat()` already makes the prompt, with the model's renderer",
        },
    ),
    Builtin(
        "chat",
        "wrapper",
        "a chat through the model's renderer: each turn extends the tokens before it",
        lambda args: StepPlan("chat", {"instruction": args.instruction}),
        (Param("instruction", "string", "added to the first observation", ""),),
        not_after={
            "chat": _ONE_HISTORY,
            "concat": _ONE_HISTORY,
            "template": "`chat()` makes the prompt itself, with the model's renderer",
        },
    ),
)

# What decides how the model sees an observation: an environment has one of them.
PROMPT_MAKERS = ("chat", "template")
