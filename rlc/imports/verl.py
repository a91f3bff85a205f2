"""verl's trainers: `main_ppo` without a critic, and supervised training. Facts of verl 0.9.1."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rlc.catalog import find_builtin
from rlc.imports import write
from rlc.imports.objectives import STEPS, SUMMED, optimizer, policy_loss, sampling
from rlc.imports.settings import Settings, options, shown
from rlc.imports.write import RecipeLine, Word, call, literal, remarks

PPO = options("verl", "verl-ppo")
_PRETRAINED = "model.partial_pretrain"  # up to verl 0.8, whose `fsdp_sft_trainer` is meant
MOST = 100_000  # groups that are played again
KINDS = {"kl": "k1", "k1": "k1", "abs": "abs", "mse": "k2", "k2": "k2"}
DUAL = (
    "verl also bounds ratios by {:g} where advantages are negative: lib/losses.rl has `dual_clip`"
)
BY_SEQUENCE = "seq-mean-token-mean"
AGGREGATES = (
    *("token-mean", "token-sum", "seq-mean-token-sum", BY_SEQUENCE),
    "seq-mean-token-sum-norm",
)


def read_settings(pairs: Iterable[tuple[str, Any]], supervised: bool) -> Settings:
    """Read Hydra options under short names, less references that only Hydra resolves."""
    given = [(name.lstrip("+~").removeprefix("reward."), value) for name, value in pairs]
    older = any(name == _PRETRAINED for name, _ in given)
    sft = options("verl", "verl-sft", "verl-sft-fsdp" if older else "verl-sft-engine")
    table, plain = sft if supervised else PPO, []
    for name, value in given:
        short = re.sub(r"^actor_rollout_ref\.(actor\.(?=optim\.))?", "", name)
        short = re.sub(r"multiturn\.(?=messages)|.*(?=overlong_buffer_cfg)", "", short)
        if not name.endswith("_target_") and not str(value).startswith("${"):
            plain.append((short if short in table else name, value))
    return Settings(table, plain, gathers=True)


def recipe(settings: Settings) -> str:
    """Return the recipe of a job."""
    base = next(name for name in settings.options if name in ("model.path", _PRETRAINED))
    rank = "model.lora_rank" if settings["model.lora_rank"] else None
    parts = _ppo(settings) if settings.options is PPO else _sft(settings)
    parts = [write.model_block(settings, base, rank), *parts]
    return write.recipe_of("A job of verl (as in 0.9.1)", settings, parts)


def _ppo(settings: Settings) -> list[str]:
    count, size = settings["data.train_batch_size"], settings["rollout.n"]
    updates = max(count // max(settings["actor.ppo_mini_batch_size"], 1), 1)
    named = {"group_size": size, "updates": updates if updates > 1 else None}
    if settings["algorithm.filter_groups.enable"]:
        rounds = settings["algorithm.filter_groups.max_num_gen_batches"]
        named["resample"] = min((rounds - 1) * count, MOST) if rounds > 0 else MOST
    note = settings.default_note("data.train_batch_size", "rollout.n")
    losses, loss = _loss(settings, updates)
    lines = [
        RecipeLine("env", "tasks"),
        RecipeLine("batch", call("groups", literal(count), **named), note),
        RecipeLine("sampling", _sampling(settings, "rollout.")),
        _advantage(settings),
        *loss,
        *_penalty(settings),
        *_lines(settings, settings["actor.grad_clip"]),
    ]
    train = write.block("train", write.MAIN, [write.TRAINED, *lines])
    return [_tasks(settings, "train"), *losses, train, *_evaluation(settings)]


def _advantage(settings: Settings) -> RecipeLine:
    kind, norm = settings["algorithm.adv_estimator"], settings["algorithm.norm_adv_by_std_in_grpo"]
    plain = {"grpo_vectorized": "grpo"}.get(kind, kind)
    name = f"verl.{plain.replace('reinforce_plus_plus', 'reinforce_pp')}"
    known, note = find_builtin("advantage", name), ""
    if known is None:
        note = f"there `{shown(kind)}`; here advantages compare rollouts, without a critic"
        known = find_builtin("advantage", name := "verl.grpo")
    normed = norm or known is None or all(param.name != "norm" for param in known.params)
    return RecipeLine("advantage", call(name, norm=None if normed else False), note)


def _sampling(settings: Settings, group: str) -> str:
    """Write how is sampled; validation is greedy unless it says otherwise."""
    longest, training = settings["data.max_response_length"], group == "rollout."
    if not training and not settings[f"{group}do_sample"]:
        return sampling(longest, 1.0, 1.0, 1)
    heat, top_p, top_k = (settings[f"{group}{name}"] for name in ("temperature", "top_p", "top_k"))
    prompt = settings["data.max_prompt_length"] if training else None
    return sampling(longest, heat, top_p, top_k, prompt)


def _loss(settings: Settings, updates: int) -> tuple[list[str], list[RecipeLine]]:
    mode, how = settings["actor.policy_loss.loss_mode"], settings["actor.loss_agg_mode"]
    both, low, high = (settings[f"actor.clip_ratio{end}"] for end in ("", "_low", "_high"))
    bounds = (1 - (both if low is None else low), 1 + (both if high is None else high))
    divergence, coef, note = "k3", 0.0, ""
    if settings["actor.use_kl_loss"]:
        divergence, coef = settings["actor.kl_loss_type"], settings["actor.kl_loss_coef"]
        # A `+` takes the gradient of k2.
        divergence = KINDS.get("k2" if divergence.endswith("+") else divergence, "k3_clamped")
    if mode == "vanilla":
        mode, note = "ppo", DUAL.format(settings["actor.clip_ratio_c"]) if updates > 1 else ""
    losses, lines = policy_loss(mode, bounds, (divergence, coef), updates, note)
    how, named = settings.choice("loss_agg_mode", how, AGGREGATES, "token-mean"), {}
    text = settings.default_note("actor.loss_agg_mode")
    if mode in ("gspo", "sapo") and how != BY_SEQUENCE:
        how, text = BY_SEQUENCE, f"as verl's `{mode}` does with any loss_agg_mode"
    if how == "seq-mean-token-sum-norm":
        length = settings["actor.loss_scale_factor"] or settings["data.max_response_length"]
        named["length"] = int(length)
    aggregate = call(how.replace("-", "_"), **named)
    return losses, [*lines, RecipeLine("aggregate", aggregate, text)]


def _penalty(settings: Settings) -> list[RecipeLine]:
    if not settings["algorithm.use_kl_in_reward"]:
        return []
    coef, kind = settings["algorithm.kl_ctrl.kl_coef"], settings["algorithm.kl_penalty"]
    later = 1.0 if settings["algorithm.adv_estimator"] == "reinforce_plus_plus" else None
    text = f"use_kl_in_reward ({shown(kind)}): a part of the return there, before the advantage"
    return [RecipeLine("kl", call("reference", "policy.base", coef=coef, discount=later), text)]


_ADAPTER = """rewards.py is to be written; for the same rewards as there:
  from {module} import {function}
  def score(reply, row):
      answer, more = row["reward_model"]["ground_truth"], row.get("extra_info")
      found = {function}(row["data_source"], reply, answer, more)
      return found["score"] if isinstance(found, dict) else float(found)"""
_MIXED = "verl mixes the files by their numbers of rows; weigh them so: 3 * a + 1 * b"


def _tasks(settings: Settings, split: str) -> str:
    """Write the environment of data files; several are a mixture."""
    name = "tasks" if split == "train" else "test_tasks"
    files, most = settings[f"data.{split}_files"], settings[f"data.{split}_max_samples"]
    if not files:
        settings.note(f'"{split}.parquet" stands for the data, which the job does not name')
    fields: dict[str, Any] = {"prompt": settings["data.prompt_key"]}
    fields["samples"] = most if most > 0 else None
    fields["shuffle"] = None if settings["data.shuffle"] or split != "train" else False
    fields["grader"] = Word('grade_with("rewards.py:score")')
    played = [
        write.pipeline(call("rows", literal(file), **fields), *_punished(settings))
        for file in files or [f"{split}.parquet"]
    ]
    above = [_adapter(settings)] if split == "train" else []
    if len(played) == 1:
        return write.declaration("env", name, played[0], above)
    names = [f"{name}_{number}" for number in range(1, len(played) + 1)]
    parts = [write.declaration("env", *one) for one in zip(names, played, strict=True)]
    return "".join([*parts, write.declaration("env", name, " + ".join(names), [*above, _MIXED])])


def _adapter(settings: Settings) -> str:
    """Return what to put into the file of rewards."""
    module, function = "verl.utils.reward_score", "default_compute_score"
    if path := settings["custom_reward_function.path"]:
        module = path.rpartition("/")[2].removesuffix(".py")
        function = settings["custom_reward_function.name"]
    return _ADAPTER.format(module=module, function=function)


def _punished(settings: Settings) -> list[str]:
    """Write DAPO's soft punishment of long replies, if it is on."""
    if not settings["overlong_buffer_cfg.enable"]:
        return []
    buffer, factor = (settings[f"overlong_buffer_cfg.{key}"] for key in ("len", "penalty_factor"))
    excess = (
        f"({literal(settings['data.max_response_length'] - buffer)} - tokens) / {literal(buffer)}"
    )
    return [call("reward", f"total + min({excess} * {literal(factor)}, 0)")]


def _lines(settings: Settings, clip: float | None) -> list[RecipeLine]:
    """Write what both trainers have: the optimiser, how long, checkpoints, trackers."""
    steps, warmup = settings["trainer.total_training_steps"], settings["optim.lr_warmup_steps"]
    names = ("lr_scheduler", "warmup_style", "lr_scheduler_type")  # the later are of later versions
    kind = next(filter(None, (settings[f"optim.{name}"] for name in names)), "constant")
    warmup = warmup if warmup > 0 else settings["optim.lr_warmup_steps_ratio"]
    floor = 0.0 if kind == "constant" else settings["optim.min_lr_ratio"]
    shape, betas = (kind, warmup, floor), settings["optim.betas"]
    named = dict(zip(("beta1", "beta2"), betas, strict=False)) | {"eps": 1e-8}
    named["weight_decay"] = settings["optim.weight_decay"]
    named["grad_clip_norm"] = (settings["optim.clip_grad"] if clip is None else clip) or None
    epochs, files = settings["trainer.total_epochs"], settings["data.train_files"]
    text = remarks(settings.default_note("trainer.total_epochs"), "of whole batches there")
    length = RecipeLine("epochs", literal(epochs), text)
    if len(files) > 1:
        text = f"there {epochs} epochs of all files, whose rows are not counted here"
        length = RecipeLine("steps", literal(STEPS), text)
    return [
        optimizer(settings, "optim.lr", shape, steps, **named),
        RecipeLine("steps", literal(steps)) if steps else length,
        *write.save_line(settings["trainer.save_freq"], "verl keeps all, rlc the newest 3"),
        *write.track_lines(settings),
    ]


def _evaluation(settings: Settings) -> list[str]:
    every, first = settings["trainer.test_freq"], settings["trainer.val_before_train"]
    lines = [
        RecipeLine("model", write.MAIN),
        RecipeLine("env", "test_tasks"),
        RecipeLine("tasks", "64", "all rows there"),
        RecipeLine("samples", literal(settings["rollout.val_kwargs.n"])),
        RecipeLine("sampling", _sampling(settings, "rollout.val_kwargs.")),
        *([RecipeLine("every", literal(every))] if every > 0 else []),
        *([RecipeLine("first", "true")] if first else []),
    ]
    if every <= 0 and not first:
        return []
    return [_tasks(settings, "val"), write.block("eval", "heldout", lines)]


def _sft(settings: Settings) -> list[str]:
    chats = _PRETRAINED not in settings.options or settings["data.multiturn.enable"]
    names = (
        {"messages": "messages_key"} if chats else {"prompt": "prompt_key", "reply": "response_key"}
    )
    keys = {field: settings[f"data.{name}"] for field, name in names.items()}
    keys |= {"max_tokens": settings["data.max_length"], "too_long": Word("drop")}
    kind, files = "chats" if chats else "rows", settings["data.train_files"] or ["train.parquet"]
    if len(files) > 1:
        settings.note(f"data.train_files: put the rows of all {len(files)} files into one")
    heldout = settings["data.val_files"][:1] if settings["trainer.test_freq"] > 0 else []
    settings.note(f"optim.clip_grad = {settings['optim.clip_grad']:g}: {SUMMED}")
    lines = [
        RecipeLine("data", call(kind, literal(files[0]), **keys)),
        RecipeLine("batch", literal(settings["data.train_batch_size"])),
        *_lines(settings, 0.0),
        *[RecipeLine("heldout", call(kind, literal(file), **keys)) for file in heldout],
    ]
    return [write.block("sft", write.MAIN, [write.TRAINED, *lines])]
