"""TRL's trainers for GRPO, DPO and SFT: `trl grpo`, its YAML, and scripts. Facts of TRL 1.16."""

from __future__ import annotations

import math
import re
from typing import Any

from rlc.imports import write
from rlc.imports.objectives import STEPS, SUMMED, optimizer, policy_loss, sampling
from rlc.imports.settings import InputError, Settings, options, shown
from rlc.imports.write import RecipeLine, Word, call, literal

TABLES = {method: options("trl", method) for method in ("trl-grpo", "trl-dpo", "trl-sft")}


def recipe(settings: Settings, unread: tuple[str, ...]) -> str:
    """Return the recipe of a job; ``unread`` are options that stand in Python code only."""
    for text in unread:
        settings.note(f"in Python code only, which is not run: {text}")
    kind = next(name for name, table in TABLES.items() if settings.options is table)
    parts = {"trl-grpo": _grpo, "trl-dpo": _dpo, "trl-sft": _sft}[kind](settings)
    rank = "lora_r" if settings["use_peft"] else None
    parts = [write.model_block(settings, "model_name_or_path", rank), *parts]
    return write.recipe_of("A job of TRL (as in 1.16)", settings, parts)


def _grpo(settings: Settings) -> list[str]:
    count, updates = _batch(settings)
    parts, size = min(updates, count), settings["num_generations"]
    if parts < updates:
        settings.note(f"TRL makes {updates} updates of a batch, by parts of a group; here {parts}")
    groups = call("groups", literal(count), group_size=size, updates=parts if parts > 1 else None)
    names = ("max_completion_length", "temperature", "top_p", "top_k")
    sample, scale = sampling(*(settings[name] for name in names)), settings["scale_rewards"].lower()
    scale = {"true": "group", "false": "none"}.get(scale, scale)
    scale = settings.choice("scale_rewards", scale, ("group", "batch", "none"), "group")
    if settings["eval_strategy"] != "no":
        settings.note("eval_strategy: write an `eval` with `split = test`, and how often")
    losses, loss = _loss(settings, parts)
    lines = [
        RecipeLine("env", "tasks"),
        RecipeLine("batch", groups),
        RecipeLine("sampling", sample, settings.default_note("max_completion_length")),
        RecipeLine("advantage", call("trl.grpo", scale_rewards=Word(scale))),
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
    return collected // size, max(collected // max(part * accumulated, 1), 1)


def _loss(settings: Settings, updates: int) -> tuple[list[str], list[RecipeLine]]:
    name, low, high = (settings[option] for option in ("loss_type", "epsilon", "epsilon_high"))
    high, kind = low if high is None else high, name
    bounds = (0.0, high) if name == "cispo" else (1 - low, 1 + high)
    if name in ("grpo", "dapo", "dr_grpo", "bnpo"):  # they differ in how tokens add up
        level = settings["importance_sampling_level"]
        level = settings.choice("importance_sampling_level", level, ("token", "sequence"), "token")
        kind = "gspo" if level == "sequence" else "ppo"
    aggregate = "seq_mean_token_mean()" if name in ("grpo", "sapo") else "token_mean()"
    if name == "dr_grpo":
        aggregate = call("seq_mean_token_sum_norm", length=settings["max_completion_length"])
    note, kl = settings.default_note("loss_type", "epsilon"), ("k3", settings["beta"])
    losses, lines = policy_loss(kind, bounds, kl, updates, note)
    return losses, [*lines, RecipeLine("aggregate", aggregate)]


_ADAPTER = """{name}: rewards.py is to be written; TRL calls with lists, rlc with a reply and a row:
  from {module} import {name} as theirs  # or copy its `def`
  def {name}(reply, row):
      columns = {{name: [value] for name, value in row.items()}}
      said = [[{{"role": "assistant", "content": reply}}]]  # [reply] if prompts are plain text
      return theirs(prompts=[row["prompt"]], completions=said, **columns)[0] or 0.0"""


def _tasks(settings: Settings) -> str:
    """Write the environment of a data set and its reward functions."""
    graders, above, weights = [], [], settings["reward_weights"]
    fields: dict[str, Any] = {}
    for index, path in enumerate(settings["reward_funcs"] or ["script.reward"]):
        module, _, name = path.rpartition(".")
        name = re.sub(r"\W", "_", name, flags=re.ASCII)
        name = re.sub(r"^(?![A-Za-z])|^(?=(true|false|none)$)", "reward_", name)
        grader = call("grade_with", literal(f"rewards.py:{name}"))
        if name.endswith("accuracy_reward") and module in ("", "trl.rewards"):
            fields = {"question": "prompt", "answer": "solution", "format_coef": 0.0}
            grader, text = "math", "{name}: `math` wants the answer in \\boxed{{}} or <answer>"
        else:
            text = _ADAPTER
        above.append(text.format(name=name, module=module or "trl.rewards"))
        weight = f"{write.number(weights[index])} * " if index < len(weights) else ""
        graders.append(f"{name} = {weight}{grader}")
    kind, grader = "problems" if fields else "rows", f"{{ {' '.join(graders)} }}"
    rows = _rows(settings, kind, grader=Word(grader), **fields)
    return write.declaration("env", "tasks", rows, above)


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
    warmup = (warmup if warmup < 1 else warmup / updates) or settings["warmup_ratio"]
    shape = (settings["lr_scheduler_type"], warmup, 0.0)
    named = {name: settings[f"adam_{name}"] for name in ("beta1", "beta2")}
    named |= {"eps": settings["adam_epsilon"], "weight_decay": settings["weight_decay"]}
    length = f"{most} updates" if updates > 1 else ""
    if steps is None:
        epochs = settings["num_train_epochs"]
        length = f"there {epochs:g} × rows / {count}: rows are not counted here"
    return [
        optimizer(settings, "learning_rate", shape, steps, **named, grad_clip_norm=clip or None),
        RecipeLine("steps", literal(steps or STEPS), length),
        *_save(settings, updates, most),
        *write.track_lines(settings, "report_to", ("project", "run_name")),
    ]


def _save(settings: Settings, updates: int, most: int) -> list[RecipeLine]:
    if (when := settings["save_strategy"]) != "steps":
        settings.note(f"save_strategy = {shown(when)}: rlc saves at the end in any case")
        return []
    if most < settings["save_steps"] and not settings.is_given("save_steps"):
        return []
    keep = {"keep": Word(str(kept))} if (kept := settings["save_total_limit"]) else {}
    return write.save_line(_interval(settings, "save_steps", updates), "", **keep)


def _interval(settings: Settings, name: str, updates: int = 1) -> int:
    """Return an interval in steps; 0 if it is a share of all steps."""
    if (count := settings[name]) < 1:
        settings.note(f"{name} = {count:g}: a share of all steps; write their number into `every`")
        return 0
    return max(int(count / updates), 1)


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
    if evaluated == "steps" and (every := _interval(settings, "eval_steps")):
        lines.append(RecipeLine("every", literal(every)))
    return [write.TRAINED, RecipeLine("batch", literal(count)), *lines]


def _dpo(settings: Settings) -> list[str]:
    kind = settings.choice(
        "loss_type", ",".join(settings["loss_type"]), ("sigmoid", "ipo"), "sigmoid"
    )
    loss = call(kind.replace("sigmoid", "dpo"), beta=settings["beta"])
    line = RecipeLine("loss", loss, settings.default_note("beta"))
    return [write.block("preference", write.MAIN, [*_examples(settings, "pairs"), line])]


def _sft(settings: Settings) -> list[str]:
    if not settings["assistant_only_loss"]:
        settings.note("assistant_only_loss = false: of chats TRL learns the user's messages too")
    text = "`chats` reads `messages` or `conversations`; for `prompt` and `completion` write"
    settings.note(f'{text} rows(…, reply = "completion")')
    return [write.block("sft", write.MAIN, _examples(settings, "chats"))]
