"""GEM's own trainer (``tinker_train.py``): REINFORCE with return batch normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlc.catalog import TEMPLATES, gem_facts, gem_ids, names_of, wrapper_traits
from rlc.imports.common import MAIN, POLICY, env_name, model_block, recipe_of, save_line
from rlc.imports.errors import shown
from rlc.imports.settings import Option, Settings, table
from rlc.imports.write import (
    RecipeLine,
    Word,
    block,
    call,
    choice,
    declaration,
    literal,
    pipeline,
)
from rlc.lang import did_you_mean

OPTIONS = table(
    Option("model_name", "string", "Qwen/Qwen3-8B-Base"),
    Option("batch_size", "int", 128),
    Option("learning_rate", "float", 4e-5),
    Option("lora_rank", "int", 32),
    Option("max_tokens", "int", 2048),
    Option("seed", "int", 0, "the script never uses it; `rlc run --seed` seeds every choice"),
    Option("max_steps", "int", 200),
    Option("save_every", "int", -1),
    Option("env_id", "string", "rg:simple_equations"),
    Option("num_env", "int", 4),
    Option("env_wrappers", "string", "concat"),
    Option("template", "string", "qwen3_general"),
    Option("gamma", "float", 0.9),
    Option("use_rebn", "bool", True),
    Option("wandb_project", "string"),
    Option("wandb_name", "string"),
    Option("log_dir", "string", None, "a run writes to a folder of its own (`rlc run --run-dir`)"),
)

HISTORIES = [name for name in names_of("wrapper") if wrapper_traits(name).role == "history"]
_NO_REWARD = {"reward_use": 0.0, "reward_success": 0.0}
# The names of GEM's wrapper factory.
WRAPPERS = {
    "python_tool": call("python_tool"),
    "python_tool_no_int_reward": call("python_tool", **_NO_REWARD),
    "python_tool_no_int_reward_last_line_error": call(
        "python_tool", **_NO_REWARD, errors=Word("last_line")
    ),
    **{name: call(name) for name in HISTORIES},
    "episode_tracking": call("track"),
}
SEARCH = ("search_tool", "search_tool_no_int_reward")
SEARCH_URL = "http://127.0.0.1:8000/retrieve"


def recipe(settings: Settings) -> str:
    """Return the recipe of a ``tinker_train.py`` command."""
    name = env_name(settings["env_id"])
    parts = [
        model_block(settings, "model_name", "lora_rank"),
        _environment(settings, name),
        block("train", MAIN, _training(settings, name)),
    ]
    return recipe_of("A GEM training command (tinker_train.py)", settings, parts)


def _training(settings: Settings, env: str) -> list[RecipeLine]:
    note, every = settings.default_note, settings["save_every"]
    if every <= 0:
        settings.note("the script saves nothing by itself; rlc saves at the end in any case")
    turns = call("turns", literal(settings["batch_size"]), parallel=settings["num_env"])
    sampling = call("sample", max_tokens=settings["max_tokens"], temperature=1.0)
    kind = "rebn" if settings["use_rebn"] else "returns"
    advantage = call(kind, gamma=settings["gamma"])
    rate = literal(settings["learning_rate"])
    adam = call("adam", rate, beta1=0.9, beta2=0.95, eps=1e-8)
    return [
        RecipeLine("model", POLICY),
        RecipeLine("env", env),
        RecipeLine("batch", turns, note("batch_size", "num_env")),
        RecipeLine("sampling", sampling, note("max_tokens") or "the script samples at 1"),
        RecipeLine("advantage", advantage, note("gamma", "use_rebn")),
        RecipeLine("loss", "importance_sampling()"),
        RecipeLine("optimizer", adam, note("learning_rate")),
        RecipeLine("steps", literal(settings["max_steps"]), note("max_steps")),
        *save_line(every, "the script keeps them all; rlc the newest 3 of them"),
        *wandb(settings),
    ]


def gem_source(settings: Settings, env_id: str, arguments: Mapping[str, Any]) -> str:
    """Write ``gem(id, …)`` with those arguments that the environment takes."""
    if env_id not in gem_ids():
        longer = [name for name in gem_ids() if env_id.lower() in name.lower()][:1]
        contains = f"did you mean `{longer[0]}`?" if longer else "`rlc catalog` lists them"
        advice = did_you_mean(env_id, gem_ids()) or contains
        settings.problem(f'GEM has no environment "{shown(env_id)}"', advice)
        return call("gem", literal(env_id), **arguments)
    params = gem_facts(env_id)["params"]
    taken = {name: value for name, value in arguments.items() if name in params}
    for name in arguments:
        if name in taken:
            continue
        if env_id.startswith("rg:"):
            dropped = "GEM hands reasoning-gym no such argument and drops it without a word"
            settings.note(f"{shown(name)} = {shown(arguments[name])}: {dropped}")
        else:
            advice = did_you_mean(name, params) or f"it takes {', '.join(params)}"
            settings.problem(f'"{env_id}" takes no argument `{shown(name)}`', advice)
    return call("gem", literal(env_id), **taken)


def wandb(settings: Settings) -> list[RecipeLine]:
    """Write ``track`` if a W&B project is given."""
    project, run = settings["wandb_project"], settings["wandb_name"]
    if project is None:
        if run is not None:
            settings.note(f"wandb_name = {shown(run)}: there is no wandb_project")
        return []
    return [RecipeLine("track", f"[{call('wandb', literal(project), run=run)}]")]


def _environment(settings: Settings, name: str) -> str:
    env_id = settings["env_id"]
    unknown: dict[str, Any] = {"params": {}, "multi_turn": True}
    facts = gem_facts(env_id) if env_id in gem_ids() else unknown
    fixed = {"use_mp": False} if "use_mp" in facts["params"] else {}
    steps = [gem_source(settings, env_id, fixed)]
    above = []
    if default := settings.default_note("env_id", "env_wrappers", "template"):
        above.append(default)
    if fixed:
        above.append("use_mp = false: the script says so of every environment")
    wrappers = [wrapper for wrapper in settings["env_wrappers"].split(",") if wrapper.strip()]
    for wrapper in map(str.strip, wrappers):
        if wrapper in WRAPPERS:
            steps.append(WRAPPERS[wrapper])
        elif wrapper in SEARCH:
            server = "the script finds its server in SEARCH_URL; put its address into `url`"
            settings.note(f"{wrapper}: {server}")
            if wrapper == "search_tool":
                settings.note("search_tool: its reward of 0.3 a search has no counterpart")
            steps.append(call("search_tool", url=SEARCH_URL))
        else:
            known = [*WRAPPERS, *SEARCH]
            advice = did_you_mean(wrapper, known) or f"known: {', '.join(known)}"
            settings.problem(f"GEM has no wrapper `{shown(wrapper)}`", advice)
    if settings["template"]:
        steps.append(call("template", choice(settings["template"], TEMPLATES)))
    # What `rlc check` warns of, and why it is as it is.
    several_turns = facts["multi_turn"] or any("tool" in wrapper for wrapper in wrappers)
    if history := next((wrapper for wrapper in wrappers if wrapper in HISTORIES), None):
        if several_turns:
            above.append(f"{history}: every turn is a sequence of its own, as in the script")
        elif not wrapper_traits(history).chat_template:
            above.append(f"{history}: without effect on a single turn, as in the script")
    return declaration("env", name, pipeline(steps), above)
