"""TRL's trainers for GRPO, DPO and SFT: `trl grpo`, its YAML, and scripts. Facts of TRL 1.16."""

from __future__ import annotations

import math
import re
from typing import Any

from rlc.imports import write
from rlc.imports.objectives import CHANGES, FULL, STEPS, SUMMED, optimizer, policy_loss, sampling
from rlc.imports.settings import REQUIRED, InputError, Option, Settings, defaults, shown, table
from rlc.imports.write import RecipeLine, Word, call, literal

_SHARED = """
string dataset_name dataset_config dataset_train_split=train dataset_test_split=test run_name
string lr_scheduler_type=linear save_strategy=steps eval_strategy=no project=huggingface
int lora_r=16 per_device_train_batch_size=8 gradient_accumulation_steps=1 num_processes=1 max_length
int max_steps=-1 save_total_limit
float weight_decay=0 adam_beta1=0.9 adam_beta2=0.999 adam_epsilon=1e-8 max_grad_norm=1
float num_train_epochs=3 warmup_steps=0 warmup_ratio=0 save_steps=500 eval_steps=10
mapping lr_scheduler_kwargs
words report_to=none
bool use_peft=false assistant_only_loss=false
"""
_GRPO = """
float learning_rate=1e-6 beta=0 temperature=1 top_p=1 epsilon=0.2 epsilon_high delta
float sapo_temperature_neg=1.05 sapo_temperature_pos=1
int num_generations=8 max_completion_length=512 steps_per_generation top_k=0 generation_batch_size
int num_iterations=1
string importance_sampling_level=token loss_type=dapo scale_rewards=group
string multi_objective_aggregation=sum_then_normalize
words reward_funcs=
floats reward_weights=
"""
_CHANGED = """
bool mask_truncated_completions=false sync_ref_model=false use_bias_correction_kl=false
bool use_weighting=false packing=false completion_only_loss
float top_entropy_quantile=1 entropy_coef=0 min_p repetition_penalty=1 label_smoothing=0 ld_alpha
float off_policy_mask_threshold
string reward_model_name_or_path f_divergence_type=reverse_kl chat_template_path eos_token
any chat_template_kwargs generation_kwargs loss_weights
"""
_SAMPLER = "the ratio to the sampler is a part of the loss here; TRL masks rollouts by it"
_WEIGHTS = "the service has its own adapters, their scale and their precision"
_COMMON = {
    **table(Option("model_name_or_path", "string", REQUIRED)),
    **defaults(_SHARED),
    **defaults(_CHANGED, CHANGES),
    **defaults("any use_vllm=False vllm_importance_sampling_correction", _SAMPLER),
    **defaults("any lora_alpha lora_dropout lora_target_modules dtype bf16", _WEIGHTS),
}
_DPO = "float learning_rate=1e-6 beta=0.1\nwords loss_type=sigmoid"
TABLES = {
    "trl-grpo": _COMMON | defaults(_GRPO),
    "trl-dpo": _COMMON | defaults(_DPO),
    "trl-sft": _COMMON | defaults("float learning_rate=2e-5"),
}


def recipe(settings: Settings, unread: tuple[str, ...]) -> str:
    """Return the recipe of a job; ``unread`` are options that stand in Python code only."""
    for text in unread:
        settings.note(f"in Python code only, which is not run: {text}")
    kind = next(name for name, table in TABLES.items() if settings.options is table)
    parts = {"trl-grpo": _grpo, "trl-dpo": _dpo, "trl-sft": _sft}[kind](settings)
    full = [] if settings["use_peft"] else [RecipeLine("lora_rank", "32", FULL)]
    parts = [write.model_block(settings, "model_name_or_path", "lora_r", full), *parts]
    return write.recipe_of("A job of TRL (as in 1.16)", settings, parts)


def _grpo(settings: Settings) -> list[str]:
    count, updates = _batch(settings)
    parts, size, top_p = min(updates, count), settings["num_generations"], settings["top_p"]
    if parts < updates:
        settings.note(f"TRL makes {updates} updates of a batch, by parts of a group; here {parts}")
    groups = call("groups", literal(count), group_size=size, updates=parts if parts > 1 else None)
    longest, heat = settings["max_completion_length"], settings["temperature"]
    sample = sampling(longest, heat, top_p, settings["top_k"])
    scale = settings["scale_rewards"].lower()
    scale = {"true": "group", "false": "none"}.get(scale, scale)
    scale = settings.choice("scale_rewards", scale, ("group", "batch", "none"), "group")
    advantage = call("trl.grpo", scale_rewards=Word(scale))
    if settings["multi_objective_aggregation"] == "normalize_then_sum":
        advantage = "trl.gdpo()"
    if settings["eval_strategy"] != "no":
        settings.note("eval_strategy: write an `eval` with `split = test`, and how often")
    losses, loss = _loss(settings, parts)
    lines = [
        RecipeLine("env", "tasks"),
        RecipeLine("batch", groups),
        RecipeLine("sampling", sample, settings.default_note("max_completion_length")),
        RecipeLine("advantage", advantage),
        *loss,
        *_lines(settings, updates, count),
    ]
    return [_tasks(settings), *losses, write.block("train", write.MAIN, [write.TRAINED, *lines])]


def _batch(settings: Settings) -> tuple[int, int]:
    """Return the prompts of a step, and the updates that TRL makes of its batch."""
    if not settings.is_given("num_processes"):
        settings.note("the batch is that of one process: `num_processes=8` counts for eight")
    size, accumulated = settings["num_generations"], settings["gradient_accumulation_steps"]
    part = settings["per_device_train_batch_size"] * settings["num_processes"]
    rounds = settings["steps_per_generation"] or accumulated
    collected = settings["generation_batch_size"] or part * rounds
    if size < 1 or collected < size or collected % size:
        message = f"{collected} completions a step are no groups of `num_generations` = {size}"
        raise InputError(message, "TRL refuses it too: make one a multiple of the other")
    if settings["num_iterations"] > 1:
        settings.note(f"num_iterations = {settings['num_iterations']}: no rollout is used twice")
    return collected // size, max(collected // max(part * accumulated, 1), 1)


def _loss(settings: Settings, updates: int) -> tuple[list[str], list[RecipeLine]]:
    name, low, delta = settings["loss_type"], settings["epsilon"], settings["delta"]
    high = low if settings["epsilon_high"] is None else settings["epsilon_high"]
    kind, bounds = "ppo" if delta is None else "ppo_two_sided", (1 - low, 1 + high)
    more = {"pos": settings["sapo_temperature_pos"], "neg": settings["sapo_temperature_neg"]}
    aggregate = "seq_mean_token_mean()" if name in ("grpo", "sapo") else "token_mean()"
    if settings["importance_sampling_level"] == "sequence":
        kind = "gspo"
        if name in ("cispo", "sapo") or delta is not None:
            settings.note("importance_sampling_level = sequence: not with this loss here")
    if name == "cispo":
        kind, bounds = name, (0.0, high)
    elif name == "sapo":
        kind = name
    elif name == "dr_grpo":
        aggregate = call("seq_mean_token_sum_norm", length=settings["max_completion_length"])
    elif name == "bnpo":
        settings.note("loss_type = bnpo: means over the tokens of each micro-batch; here of all")
    elif name not in ("grpo", "dapo"):
        settings.note(f"loss_type = {shown(name)} has no counterpart; this is `dapo`")
    note, kl = settings.default_note("loss_type", "epsilon"), ("k3", settings["beta"])
    losses, lines = policy_loss(kind, bounds, kl, updates, note, most=delta or 0, **more)
    return losses, [*lines, RecipeLine("aggregate", aggregate)]


_ADAPTER = """{name}: rewards.py is to be written; TRL calls with lists, rlc with a reply and a row:
  {origin}
  def {name}(reply, row):
      columns = {{name: [value] for name, value in row.items()}}
      said = [[{{"role": "assistant", "content": reply}}]]  # [reply] if prompts are plain text
      return theirs(prompts=[row["prompt"]], completions=said, **columns)[0] or 0.0"""


_WORDS = ("true", "false", "none")


def _tasks(settings: Settings) -> str:
    """Write the environment of a data set and its reward functions."""
    graders, above, weights = dict[str, str](), list[str](), settings["reward_weights"]
    for index, path in enumerate(settings["reward_funcs"]):
        module, _, name = path.rpartition(".")
        name = re.sub(r"\W", "_", name, flags=re.ASCII)
        name = name if re.match("[A-Za-z]", name) and name not in _WORDS else f"reward_{name}"
        if name.endswith("accuracy_reward") and module in ("", "trl.rewards"):
            graders[name] = "math"
            above.append(f"{name}: `math` wants the answer in \\boxed{{}} or <answer>")
        else:
            graders[name] = call("grade_with", literal(f"rewards.py:{name}"))
            origin = f"from {module or 'trl.rewards'} import {name} as theirs"
            copied = "# its `def`, copied from the script, under the name `theirs`"
            above.append(_ADAPTER.format(name=name, origin=copied if path[0] == "." else origin))
        if index < len(weights):
            graders[name] = f"{write.number(weights[index])} * {graders[name]}"
    if not graders:
        graders = {"reward": call("grade_with", literal("rewards.py:reward"))}
        above = ["the job names no reward function: write one, `def reward(reply, row)`"]
    grader = Word(f"{{ {' '.join(f'{name} = {value}' for name, value in graders.items())} }}")
    solved = any(value.endswith("math") for value in graders.values())
    fields: dict[str, Any] = {"grader": grader}
    fields |= {"question": "prompt", "answer": "solution", "format_coef": 0.0} if solved else {}
    kind = "problems" if solved else "rows"
    return write.declaration("env", "tasks", _rows(settings, kind, **fields), above)


def _rows(settings: Settings, kind: str, split: str = "train", **named: Any) -> str:
    """Write where the rows are; a data set is one of the hub unless it looks like a file."""
    name, config = settings["dataset_name"], settings["dataset_config"]
    part = settings[f"dataset_{split}_split"]
    if part not in ("train", "test"):
        settings.note(f"the split `{shown(part)}`: a part of one is `first(90%)` or `last(10%)`")
    if name is None:
        settings.note('"rows.jsonl" stands for the data, which the job does not name')
        name = "rows.jsonl"
    elif not re.search(r"^[./~]|\.(jsonl?|csv|parquet|arrow)$", name):
        name = f"hub:{name}/{config}" if config else f"hub:{name}"
    test = split == "test" or part == "test"
    return call(kind, literal(name), **named, split=Word("test") if test else None)


def _lines(settings: Settings, updates: int, count: int) -> list[RecipeLine]:
    """Write what all three trainers have: the optimiser, how long, checkpoints, trackers."""
    most, clip, warmup = (settings[f] for f in ("max_steps", "max_grad_norm", "warmup_steps"))
    steps = math.ceil(most / updates) if most > 0 else None
    if settings.options is TABLES["trl-sft"]:
        settings.note(f"max_grad_norm = {clip:g}: {SUMMED}")
        clip = 0
    floor = (settings["lr_scheduler_kwargs"] or {}).get("min_lr_rate")
    warmup = (warmup if warmup < 1 else warmup / updates) or settings["warmup_ratio"]
    shape = (settings["lr_scheduler_type"], warmup, floor if isinstance(floor, float) else 0.0)
    named = {name: settings[f"adam_{name}"] for name in ("beta1", "beta2")}
    named |= {"eps": settings["adam_epsilon"], "weight_decay": settings["weight_decay"]}
    note = settings.default_note("learning_rate", "lr_scheduler_type")
    known = f"{most} updates" if updates > 1 else ""
    unknown = f"there {settings['num_train_epochs']:g} × rows / {count}: rows are not counted here"
    known_end = settings.is_given("save_steps") or most >= settings["save_steps"]
    saved = settings["save_strategy"] == "steps" and known_end
    every = int(settings["save_steps"] / updates) if saved else 0
    keep = {"keep": Word(str(kept))} if (kept := settings["save_total_limit"]) else {}
    project, run = settings["project"], settings["run_name"]
    used = [name for name in ("wandb", "trackio") if name in settings["report_to"]]
    trackers = ", ".join(call(name, literal(project), run=run) for name in used)
    rate = settings["learning_rate"]
    return [
        optimizer(settings, rate, note, shape, steps, **named, grad_clip_norm=clip or None),
        RecipeLine("steps", literal(steps or STEPS), known if steps else unknown),
        *write.save_line(every, "", **keep),
        *([RecipeLine("track", f"[{trackers}]")] if trackers else []),
    ]


def _examples(settings: Settings, kind: str) -> list[RecipeLine]:
    """Write the fields of a stage that learns from rows."""
    count = settings["per_device_train_batch_size"] * settings["num_processes"]
    count *= settings["gradient_accumulation_steps"]
    longest = settings["max_length"] if settings.is_given("max_length") else 1024
    limits: dict[str, Any] = {"max_tokens": longest, "too_long": Word("drop") if longest else None}
    longer = f"longer rows are cut there after {longest} tokens, and left out here"
    data, evaluated = _rows(settings, kind, **limits), settings["eval_strategy"]
    lines = [RecipeLine("data", data, longer if longest else ""), *_lines(settings, 1, count)]
    if evaluated != "no":
        lines.append(RecipeLine("heldout", _rows(settings, kind, "test", **limits)))
    if evaluated == "steps":
        lines.append(RecipeLine("every", literal(max(int(settings["eval_steps"]), 1))))
    return [write.TRAINED, RecipeLine("batch", literal(count)), *lines]


def _dpo(settings: Settings) -> list[str]:
    kinds = settings["loss_type"]
    kind = {"sigmoid": "dpo", "ipo": "ipo"}.get(",".join(kinds))
    if kind is None:
        settings.note(f"loss_type = {', '.join(kinds)} has no counterpart; this is `sigmoid`")
    loss = call(kind or "dpo", beta=settings["beta"])
    line = RecipeLine("loss", loss, settings.default_note("beta"))
    return [write.block("preference", write.MAIN, [*_examples(settings, "pairs"), line])]


def _sft(settings: Settings) -> list[str]:
    if not settings["assistant_only_loss"]:
        settings.note("assistant_only_loss = false: of chats TRL learns the user's messages too")
    text = "`chats` reads `messages` or `conversations`; for `prompt` and `completion` write"
    settings.note(f'{text} rows(…, reply = "completion")')
    return [write.block("sft", write.MAIN, _examples(settings, "chats"))]
