"""GEM through tinker-cookbook (``tinker_cookbook_train.py``): centred rewards."""

from __future__ import annotations

from rlc.catalog import gem_facts, gem_ids, renderer_keeps_prefix, renderer_names
from rlc.imports.common import (
    MAIN,
    POLICY,
    current_model,
    env_name,
    model_block,
    recipe_of,
    remarks,
    save_line,
    weights_line,
)
from rlc.imports.gem import gem_source, wandb
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

_NO_METRIC = "a pass over the batch after each update, for a metric that rlc does not have"
_OWN_FOLDER = "every run has a folder of its own in rlc"

OPTIONS = table(
    Option("model_name", "string", "meta-llama/Llama-3.2-1B"),
    Option("lora_rank", "int", 32),
    Option("renderer_name", "string"),
    Option("load_checkpoint_path", "string"),
    Option("env_id", "string", "game:GuessTheNumber-v0"),
    Option("env_kwargs_json", "mapping"),
    Option("gem_path", "string", None, "rlc takes the GEM that is installed"),
    Option("prompt_type", "string", "general"),
    Option("group_size", "int", 4),
    Option("groups_per_batch", "int", 64),
    Option("n_batches", "int", 200),
    Option("learning_rate", "float", 1e-5),
    Option("max_tokens", "int", 256),
    Option("kl_penalty_coef", "float", 0.0),
    Option("num_substeps", "int", 1),
    Option("log_path", "string", None, "a run writes to a folder of its own (`rlc run --run-dir`)"),
    Option("wandb_project", "string"),
    Option("wandb_name", "string"),
    Option("compute_post_kl", "bool", False, _NO_METRIC),
    Option("eval_every", "int", 0, "the script has no test set, so this evaluates nothing"),
    Option("save_every", "int", 25),
    Option("base_url", "string", None, "`rlc run --base-url`, or TINKER_BASE_URL"),
    Option("behavior_if_log_dir_exists", "string", "ask", _OWN_FOLDER),
    Option("max_steps_off_policy", "int"),
)

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."


def recipe(settings: Settings) -> str:
    """Return the recipe of a ``tinker_cookbook_train.py`` command."""
    name = env_name(settings["env_id"])
    lines = []
    if (path := settings["load_checkpoint_path"]) is not None:
        lines.append(weights_line(settings["model_name"], path))
    if (renderer := settings["renderer_name"]) is not None:
        lines.append(RecipeLine("renderer", choice(renderer, renderer_names())))
    parts = [
        model_block(settings, "model_name", "lora_rank", lines),
        _environment(settings, name),
        block("train", MAIN, _training(settings, name)),
    ]
    return recipe_of("A GEM training command (tinker_cookbook_train.py)", settings, parts)


def _environment(settings: Settings, name: str) -> str:
    env_id = settings["env_id"]
    source = gem_source(settings, env_id, settings["env_kwargs_json"] or {})
    prompt = settings.choice("prompt_type", settings["prompt_type"], ("general", "no"), "no")
    above = []
    if default := settings.default_note("env_id", "prompt_type"):
        above.append(default)
    multi_turn = env_id in gem_ids() and gem_facts(env_id)["multi_turn"]
    model = current_model(settings["model_name"])
    renderer = settings["renderer_name"] or (model.renderers[0] if model else "")
    if multi_turn and renderer_keeps_prefix(renderer) is False:  # it rewrites earlier turns
        above.append(
            "the script's chat, which this model's renderer rewrites from turn to turn: here as "
            "text, with every turn a sequence of its own"
        )
        chatml = model is not None and model.chatml
        template = "qwen3_general" if prompt == "general" and chatml else "no"
        steps = [source, "concat_with_action()", call("template", template)]
        return declaration("env", name, pipeline(steps), above)
    if prompt == "general":
        above.append('the script also puts "Question: " before the task')
    chat = call("chat", instruction=INSTRUCTION if prompt == "general" else None)
    return declaration("env", name, pipeline([source, chat]), above)


def _training(settings: Settings, env: str) -> list[RecipeLine]:
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
        RecipeLine("model", POLICY),
        RecipeLine("env", env),
        RecipeLine("batch", batch, note("groups_per_batch", "group_size")),
        RecipeLine(
            "sampling",
            call("sample", max_tokens=settings["max_tokens"], temperature=1.0),
            note("max_tokens") or "temperature: the cookbook's default",
        ),
        RecipeLine("advantage", "cookbook.center()", "reward less the group's mean"),
        *_loss(settings),
        *([RecipeLine("kl", call("reference", "policy.base", coef=coef), why)] if coef else []),
        RecipeLine("optimizer", adam, note("learning_rate")),
        RecipeLine("steps", literal(settings["n_batches"]), note("n_batches")),
        *save_line(settings["save_every"], remarks(note("save_every"), kept), ttl=Word("7d")),
        *wandb(settings),
    ]


def _loss(settings: Settings) -> list[RecipeLine]:
    staleness = settings["max_steps_off_policy"]
    loss = RecipeLine("loss", "importance_sampling()", "the cookbook's default")
    if not staleness:
        return [loss]
    if staleness != 1:
        why = (
            "importance_sampling() in the script: without a clip, refused with rollouts this stale"
        )
        loss = RecipeLine("loss", "ppo()", why)
    return [loss, RecipeLine("overlap", call("asynchronous", max_staleness=staleness))]
