"""GEM through tinker-cookbook (``tinker_cookbook_train.py``): centred rewards."""

from __future__ import annotations

from rlc.catalog.facts.gem import gem_facts, gem_ids
from rlc.catalog.facts.models import renderer_keeps_prefix
from rlc.imports.gem import gem_source, wandb
from rlc.imports.pieces import (
    MAIN,
    POLICY,
    current_model,
    default_note,
    env_name,
    header,
    model_block,
    remarks,
    save_line,
    weights_line,
)
from rlc.imports.settings import Option, Settings, table
from rlc.imports.write import Line, Word, block, call, declaration, literal, pipeline, recipe_text

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
    Option(
        "compute_post_kl",
        "bool",
        False,
        "a pass over the batch after each update, for a metric that rlc does not have",
    ),
    Option("eval_every", "int", 0, "the script has no test set, so this evaluates nothing"),
    Option("save_every", "int", 25),
    Option("base_url", "string", None, "`rlc run --base-url`, or TINKER_BASE_URL"),
    Option(
        "behavior_if_log_dir_exists", "string", "ask", "every run has a folder of its own in rlc"
    ),
    Option("max_steps_off_policy", "int"),
)

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."
_PROMPTS = ("general", "no")


def recipe(settings: Settings) -> str:
    """The recipe of a ``tinker_cookbook_train.py`` command."""
    name = env_name(settings["env_id"])
    parts = [
        model_block(settings, "model_name", "lora_rank", _model(settings)),
        _environment(settings, name),
        block("train", MAIN, _training(settings, name)),
    ]
    what = "A GEM training command (tinker_cookbook_train.py)"
    return recipe_text(header(what, settings), parts)


def _model(settings: Settings) -> list[Line]:
    lines = []
    if settings["load_checkpoint_path"] is not None:
        path = settings["load_checkpoint_path"]
        lines.append(weights_line(settings["model_name"], path))
    if settings["renderer_name"] is not None:
        lines.append(Line("renderer", literal(settings["renderer_name"])))
    return lines


def _environment(settings: Settings, name: str) -> str:
    env_id = settings["env_id"]
    source = gem_source(settings, env_id, settings["env_kwargs_json"] or {})
    prompt = settings["prompt_type"]
    if prompt not in _PROMPTS:
        settings.problem(f"there is no prompt_type `{prompt}`", f"known: {', '.join(_PROMPTS)}")
    above = []
    if default := default_note(settings, "env_id", "prompt_type"):
        above.append(default)
    multi_turn = env_id in gem_ids() and gem_facts(env_id)["multi_turn"]
    if multi_turn and _rewrites(settings):
        above.append(
            "the script's chat, which this model's renderer rewrites from turn to turn: here as "
            "text, with every turn a sequence of its own"
        )
        template = "qwen3_general" if prompt == "general" and _is_chatml(settings) else "no"
        steps = [source, "concat_with_action()", call("template", literal(template))]
        return declaration("env", name, pipeline(steps), above)
    if prompt == "general":
        above.append('the script also puts "Question: " before the task')
        return declaration(
            "env", name, pipeline([source, call("chat", instruction=INSTRUCTION)]), above
        )
    return declaration("env", name, pipeline([source, "chat()"]), above)


def _rewrites(settings: Settings) -> bool:
    """Whether the renderer that the model will have does not keep earlier turns."""
    model = current_model(settings["model_name"])
    renderer = settings["renderer_name"] or (model.renderers[0] if model else "")
    return renderer_keeps_prefix(renderer) is False


def _is_chatml(settings: Settings) -> bool:
    model = current_model(settings["model_name"])
    return model is not None and model.chatml


def _training(settings: Settings, env: str) -> list[Line]:
    note = default_note
    updates = settings["num_substeps"]
    batch = call(
        "groups",
        literal(settings["groups_per_batch"]),
        of=settings["group_size"],
        updates=updates if updates != 1 else None,
    )
    return [
        Line("model", POLICY),
        Line("env", env),
        Line("batch", batch, note(settings, "groups_per_batch", "group_size")),
        Line(
            "sampling",
            call("sample", max_tokens=settings["max_tokens"], temperature=1.0),
            note(settings, "max_tokens") or "temperature: the cookbook's default",
        ),
        Line("advantage", "cookbook.center()", "reward less the group's mean"),
        *_loss(settings),
        *_penalty(settings),
        Line(
            "optimizer",
            call("adam", literal(settings["learning_rate"]), beta1=0.9, beta2=0.95, eps=1e-8),
            note(settings, "learning_rate"),
        ),
        Line("steps", literal(settings["n_batches"]), note(settings, "n_batches")),
        *save_line(
            settings["save_every"],
            remarks(
                note(settings, "save_every"),
                "the cookbook keeps each for a week, rlc the newest 3 of them",
            ),
            ttl=Word("7d"),
        ),
        *wandb(settings),
    ]


def _loss(settings: Settings) -> list[Line]:
    staleness = settings["max_steps_off_policy"]
    if not staleness:
        return [Line("loss", "importance_sampling()", "the cookbook's default")]
    overlap = Line("overlap", call("asynchronous", max_staleness=staleness))
    if staleness == 1:
        return [Line("loss", "importance_sampling()", "the cookbook's default"), overlap]
    why = "importance_sampling() in the script: without a clip, refused with rollouts this stale"
    return [Line("loss", "ppo()", why), overlap]


def _penalty(settings: Settings) -> list[Line]:
    coef = settings["kl_penalty_coef"]
    if coef == 0:
        return []
    why = "the script names no reference, so the cookbook stops; this is the base model"
    return [Line("kl", call("reference", "policy.base", coef=coef), why)]
