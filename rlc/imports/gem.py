"""GEM's trainers: ``tinker_train.py``, REINFORCE with return batch normalisation; and that of
tinker-cookbook, ``tinker_cookbook_train.py``, with centred rewards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlc.catalog import (
    TEMPLATES,
    gem_facts,
    gem_ids,
    names_of,
    renderer_keeps_prefix,
    renderer_names,
    wrapper_traits,
)
from rlc.imports import write
from rlc.imports.settings import Settings, options, shown
from rlc.imports.write import RecipeLine, Word, call, literal, pipeline, remarks
from rlc.lang import did_you_mean

OPTIONS = options("gem")

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
    name = write.env_name(settings["env_id"])
    parts = [
        write.model_block(settings, "model_name", "lora_rank"),
        _environment(settings, name),
        write.block("train", write.MAIN, _training(settings, name)),
    ]
    return write.recipe_of("A GEM training command (tinker_train.py)", settings, parts)


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
        RecipeLine("model", write.POLICY),
        RecipeLine("env", env),
        RecipeLine("batch", turns, note("batch_size", "num_env")),
        RecipeLine("sampling", sampling, note("max_tokens") or "the script samples at 1"),
        RecipeLine("advantage", advantage, note("gamma", "use_rebn")),
        RecipeLine("loss", "importance_sampling()"),
        RecipeLine("optimizer", adam, note("learning_rate")),
        RecipeLine("steps", literal(settings["max_steps"]), note("max_steps")),
        *write.save_line(every, "the script keeps them all; rlc the newest 3 of them"),
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
    if project is not None:
        return [RecipeLine("track", f"[{call('wandb', literal(project), run=run)}]")]
    if run is not None:
        settings.note(f"wandb_name = {shown(run)}: there is no wandb_project")
    return []


def _environment(settings: Settings, name: str) -> str:
    env_id = settings["env_id"]
    unknown: dict[str, Any] = {"params": {}, "multi_turn": True}
    facts = gem_facts(env_id) if env_id in gem_ids() else unknown
    fixed = {"use_mp": False} if "use_mp" in facts["params"] else {}
    steps = [gem_source(settings, env_id, fixed)]
    above = [*filter(None, [settings.default_note("env_id", "env_wrappers", "template")])]
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
        steps.append(call("template", write.choice(settings["template"], TEMPLATES)))
    # What `rlc check` warns of, and why it is as it is.
    several_turns = facts["multi_turn"] or any("tool" in wrapper for wrapper in wrappers)
    if history := next((wrapper for wrapper in wrappers if wrapper in HISTORIES), None):
        if several_turns:
            above.append(f"{history}: every turn is a sequence of its own, as in the script")
        elif not wrapper_traits(history).chat_template:
            above.append(f"{history}: without effect on a single turn, as in the script")
    return write.declaration("env", name, pipeline(*steps), above)


INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."

COOKBOOK_OPTIONS = options("gem-cookbook")


def cookbook_recipe(settings: Settings) -> str:
    """Return the recipe of a ``tinker_cookbook_train.py`` command."""
    name = write.env_name(settings["env_id"])
    lines = []
    if (path := settings["load_checkpoint_path"]) is not None:
        lines.append(write.weights_line(settings["model_name"], path))
    if (renderer := settings["renderer_name"]) is not None:
        lines.append(RecipeLine("renderer", write.choice(renderer, renderer_names())))
    parts = [
        write.model_block(settings, "model_name", "lora_rank", lines),
        _cookbook_environment(settings, name),
        write.block("train", write.MAIN, _cookbook_training(settings, name)),
    ]
    return write.recipe_of("A GEM training command (tinker_cookbook_train.py)", settings, parts)


def _cookbook_environment(settings: Settings, name: str) -> str:
    env_id = settings["env_id"]
    source = gem_source(settings, env_id, settings["env_kwargs_json"] or {})
    prompt = settings.choice("prompt_type", settings["prompt_type"], ("general", "no"), "no")
    above = [*filter(None, [settings.default_note("env_id", "prompt_type")])]
    multi_turn = env_id in gem_ids() and gem_facts(env_id)["multi_turn"]
    model = write.current_model(settings["model_name"])
    renderer = settings["renderer_name"] or (model.renderers[0] if model else "")
    anew = multi_turn and renderer_keeps_prefix(renderer) is False
    if anew:
        above.append(
            "the script writes the chat anew for each turn, which is a sequence of its own; with "
            "`history = sampled` the episode is one"
        )
    if prompt == "general":
        above.append('the script also puts "Question: " before the task')
    instruction = INSTRUCTION if prompt == "general" else None
    chat = call("chat", instruction=instruction, history=Word("template") if anew else None)
    return write.declaration("env", name, pipeline(source, chat), above)


def _cookbook_training(settings: Settings, env: str) -> list[RecipeLine]:
    note = settings.default_note
    updates, coef = settings["num_substeps"], settings["kl_penalty_coef"]
    why = "the script names no reference, so the cookbook stops; this is the base model"
    adam = call("adam", literal(settings["learning_rate"]), beta1=0.9, beta2=0.95, eps=1e-8)
    kept = "the cookbook keeps each for a week, rlc the newest 3 of them"
    batch = call(
        "groups",
        literal(settings["groups_per_batch"]),
        group_size=settings["group_size"],
        updates=updates if updates != 1 else None,
    )
    return [
        RecipeLine("model", write.POLICY),
        RecipeLine("env", env),
        RecipeLine("batch", batch, note("groups_per_batch", "group_size")),
        RecipeLine(
            "sampling",
            call("sample", max_tokens=settings["max_tokens"], temperature=1.0),
            note("max_tokens") or "temperature: the cookbook's default",
        ),
        RecipeLine("advantage", "cookbook.center()", "reward less the group's mean"),
        *_cookbook_loss(settings),
        *([RecipeLine("kl", call("reference", "policy.base", coef=coef), why)] if coef else []),
        RecipeLine("optimizer", adam, note("learning_rate")),
        RecipeLine("steps", literal(settings["n_batches"]), note("n_batches")),
        *write.save_line(settings["save_every"], remarks(note("save_every"), kept), ttl=Word("7d")),
        *wandb(settings),
    ]


def _cookbook_loss(settings: Settings) -> list[RecipeLine]:
    staleness = settings["max_steps_off_policy"]
    loss = RecipeLine("loss", "importance_sampling()", "the cookbook's default")
    if not staleness:
        return [loss]
    if staleness != 1:
        why = "without a clip, refused with rollouts this stale"
        loss = RecipeLine("loss", "ppo()", f"importance_sampling() in the script: {why}")
    return [loss, RecipeLine("overlap", call("asynchronous", max_staleness=staleness))]
