"""verl's trainers: `main_ppo` without a critic, and supervised training. Facts of verl 0.9.1."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rlc.catalog import find_builtin
from rlc.imports import write
from rlc.imports.objectives import CHANGES, FULL, STEPS, SUMMED, optimizer, policy_loss, sampling
from rlc.imports.settings import REQUIRED, Option, Settings, defaults, shown, table
from rlc.imports.write import RecipeLine, Word, call, literal

_SHARED = """
words data.train_files= data.val_files= trainer.logger=console,wandb
int trainer.total_training_steps trainer.save_freq=-1 trainer.test_freq=-1 optim.lr_warmup_steps=-1
int data.train_max_samples=-1 data.val_max_samples=-1
float optim.weight_decay=0.01 optim.clip_grad=1 optim.min_lr_ratio=0
string optim.lr_scheduler optim.warmup_style optim.lr_scheduler_type=constant
"""
_PPO = """
string trainer.project_name=verl_examples trainer.experiment_name=gsm8k data.prompt_key=prompt
string algorithm.adv_estimator=gae algorithm.kl_penalty=kl actor.loss_agg_mode=token-mean
string actor.policy_loss.loss_mode=vanilla actor.kl_loss_type=low_var_kl
string custom_reward_function.path custom_reward_function.name=compute_score
int trainer.total_epochs=30 data.train_batch_size=1024 data.max_prompt_length=512
int data.max_response_length=512 algorithm.filter_groups.max_num_gen_batches=0 rollout.top_k=-1
int model.lora_rank=0 rollout.n=1 rollout.val_kwargs.n=1 rollout.val_kwargs.top_k=-1
int actor.ppo_mini_batch_size=256 actor.ppo_epochs=1 overlong_buffer_cfg.len=0
float rollout.temperature=1 rollout.top_p=1 rollout.val_kwargs.temperature=0 actor.grad_clip
float rollout.val_kwargs.top_p=1 optim.lr=1e-6 optim.lr_warmup_steps_ratio=0 actor.clip_ratio_c=3
float actor.clip_ratio=0.2 actor.clip_ratio_low actor.clip_ratio_high actor.tau_pos=1
float actor.tau_neg=1.05 actor.kl_loss_coef=0.001 actor.loss_scale_factor
float algorithm.kl_ctrl.kl_coef=0.001 overlong_buffer_cfg.penalty_factor=1
floats optim.betas=0.9,0.999
bool rollout.val_kwargs.do_sample=false actor.use_kl_loss=false trainer.val_before_train=true
bool data.shuffle=true algorithm.norm_adv_by_std_in_grpo=true overlong_buffer_cfg.enable=false
bool algorithm.use_kl_in_reward=false algorithm.filter_groups.enable=false
"""
_CHANGED = """
float algorithm.gamma=1 algorithm.lam=1 actor.entropy_coeff=0
string algorithm.rollout_correction.rollout_is algorithm.rollout_correction.rollout_rs
string data.truncation=error algorithm.kl_ctrl.type=fixed
bool reward_model.enable=false rollout.multi_turn.enable=false
"""
_SFT = """
string trainer.project_name=gsm8k-sft trainer.experiment_name=test data.messages_key=messages
string data.prompt_key=question data.response_key=answer
int trainer.total_epochs=4 data.train_batch_size=256 data.max_length=1024 model.lora_rank=0
bool data.multiturn.enable=false
"""
_ENGINE = "float optim.lr=1e-3 optim.lr_warmup_steps_ratio=0\nfloats optim.betas=0.9,0.999"
_FSDP = """float optim.lr=1e-5 optim.lr_warmup_steps_ratio=0.1
floats optim.betas=0.9,0.95
string optim.lr_scheduler=cosine"""
_PRETRAINED = "model.partial_pretrain"  # up to verl 0.8, whose `fsdp_sft_trainer` is meant
_NESTED = "words data.prompt_dict_keys data.response_dict_keys"
_OVERLONG = "a longer prompt ends its episode without a reply; leave such rows out of the data"
PPO = {
    **table(Option("model.path", "string", REQUIRED)),
    **defaults(_SHARED + _PPO),
    **defaults(_CHANGED, CHANGES),
    **defaults("bool data.filter_overlong_prompts=false", _OVERLONG),
}
LOSSES = {"gspo": "gspo", "cispo": "cispo", "sapo": "sapo", "gpg": "cross_entropy"}
KINDS = {"kl": "k1", "k1": "k1", "abs": "abs", "mse": "k2", "k2": "k2"}
AGGREGATES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean")


def read_settings(pairs: Iterable[tuple[str, Any]], supervised: bool) -> Settings:
    """Read Hydra options under short names, less references that only Hydra resolves."""
    given = [(name.lstrip("+~").removeprefix("reward."), value) for name, value in pairs]
    older = any(name == _PRETRAINED for name, _ in given)
    base = _PRETRAINED if older else "model.path"
    sft = defaults(_SHARED + _SFT + (_FSDP if older else _ENGINE))
    sft |= {**table(Option(base, "string", REQUIRED)), **defaults(_NESTED, "the field is nested")}
    options, plain = sft if supervised else PPO, []
    for name, value in given:
        short = re.sub(r"^actor_rollout_ref\.(actor\.(?=optim\.))?", "", name)
        short = re.sub(r"multiturn\.(?=messages)|.*(?=overlong_buffer_cfg)", "", short)
        if not name.endswith("_target_") and not str(value).startswith("${"):
            plain.append((short if short in options else name, value))
    return Settings(options, plain, gathers=True)


def recipe(settings: Settings) -> str:
    """Return the recipe of a job."""
    base = next(name for name in settings.options if name in ("model.path", _PRETRAINED))
    full = [] if settings["model.lora_rank"] else [RecipeLine("lora_rank", "32", FULL)]
    parts = _ppo(settings) if settings.options is PPO else _sft(settings)
    parts = [write.model_block(settings, base, "model.lora_rank", full), *parts]
    return write.recipe_of("A job of verl (as in 0.9.1)", settings, parts)


def _ppo(settings: Settings) -> list[str]:
    count, size = settings["data.train_batch_size"], settings["rollout.n"]
    updates = max(count // max(settings["actor.ppo_mini_batch_size"], 1), 1)
    if (epochs := settings["actor.ppo_epochs"]) > 1:
        settings.note(f"actor.ppo_epochs = {epochs}: no rollout is used twice")
    rounds = settings["algorithm.filter_groups.max_num_gen_batches"]
    again = min((rounds - 1) * count, 100_000) if rounds > 0 else 100_000
    again = again if settings["algorithm.filter_groups.enable"] else None
    named = {"group_size": size, "updates": updates if updates > 1 else None, "resample": again}
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
    heat, top_p, top_k = (settings[f"{group}{name}"] for name in ("temperature", "top_p", "top_k"))
    longest, prompt = settings["data.max_response_length"], settings["data.max_prompt_length"]
    if group == "rollout.":
        return sampling(longest, heat, top_p, top_k, prompt)
    greedy = not settings[f"{group}do_sample"]
    return sampling(longest, *((1.0, 1.0, 1) if greedy else (heat, top_p, top_k)))


def _loss(settings: Settings, updates: int) -> tuple[list[str], list[RecipeLine]]:
    mode, how = settings["actor.policy_loss.loss_mode"], settings["actor.loss_agg_mode"]
    both = settings["actor.clip_ratio"]
    low, high = settings["actor.clip_ratio_low"], settings["actor.clip_ratio_high"]
    bounds = (1 - (both if low is None else low), 1 + (both if high is None else high))
    names = {"most": "clip_ratio_c", "pos": "tau_pos", "neg": "tau_neg"}
    more = {ours: settings[f"actor.{name}"] for ours, name in names.items()}
    divergence, coef = settings["actor.kl_loss_type"], settings["actor.kl_loss_coef"]
    # A `+` takes the gradient of k2; dual clipping acts where the ratio is not 1.
    divergence = KINDS.get("k2" if divergence.endswith("+") else divergence, "k3_clamped")
    kl = (divergence, coef if settings["actor.use_kl_loss"] else 0.0)
    loss = LOSSES.get(mode, "ppo_dual" if updates > 1 else "ppo")
    known = mode == "vanilla" or mode in LOSSES
    note = "" if known else f"there `{shown(mode)}`; docs/losses.md may have it"
    losses, lines = policy_loss(loss, bounds, kl, updates, note, **more)
    how = "seq-mean-token-mean" if mode == "sapo" else how  # it adds up in one way only
    length = settings["actor.loss_scale_factor"] or settings["data.max_response_length"]
    aggregate = call("seq_mean_token_sum_norm", length=int(length))
    if how != "seq-mean-token-sum-norm":
        chosen = settings.choice("loss_agg_mode", how, AGGREGATES, "token-mean")
        aggregate = call(chosen.replace("-", "_"))
    line = RecipeLine("aggregate", aggregate, settings.default_note("actor.loss_agg_mode"))
    return losses, [*lines, line]


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
    training, name = split == "train", "tasks" if split == "train" else "test_tasks"
    path, function = (settings[f"custom_reward_function.{key}"] for key in ("path", "name"))
    module = str(path).rpartition("/")[2].removesuffix(".py")
    named = {"module": module, "function": function}
    if not path:
        named = {"module": "verl.utils.reward_score", "function": "default_compute_score"}
    files, most = settings[f"data.{split}_files"], settings[f"data.{split}_max_samples"]
    if not files:
        settings.note(f'"{split}.parquet" stands for the data, which the job does not name')
    fields = {"prompt": settings["data.prompt_key"], "samples": most if most > 0 else None}
    fields["shuffle"] = None if settings["data.shuffle"] or not training else False
    buffer, longest = settings["overlong_buffer_cfg.len"], settings["data.max_response_length"]
    excess = f"({literal(longest - buffer)} - tokens) / {literal(buffer)}"  # DAPO's soft punishment
    factor = literal(settings["overlong_buffer_cfg.penalty_factor"])
    soft = [call("reward", f"total + min({excess} * {factor}, 0)")]
    soft *= settings["overlong_buffer_cfg.enable"]
    grader, above = Word('grade_with("rewards.py:score")'), [_ADAPTER.format(**named)] * training
    played = [
        write.pipeline(call("rows", literal(file), **fields, grader=grader), *soft)
        for file in files or [f"{split}.parquet"]
    ]
    if len(played) == 1:
        return write.declaration("env", name, played[0], above)
    names = [f"{name}_{number}" for number in range(1, len(played) + 1)]
    parts = [write.declaration("env", *one) for one in zip(names, played, strict=True)]
    return "".join([*parts, write.declaration("env", name, " + ".join(names), [*above, _MIXED])])


def _lines(settings: Settings, clip: float | None) -> list[RecipeLine]:
    """Write what both trainers have: the optimiser, how long, checkpoints, trackers."""
    steps, warmup = settings["trainer.total_training_steps"], settings["optim.lr_warmup_steps"]
    names = ("lr_scheduler", "warmup_style", "lr_scheduler_type")  # the later are of later versions
    kind = next(filter(None, [settings[f"optim.{name}"] for name in names]), "constant")
    warmup = warmup if warmup > 0 else settings["optim.lr_warmup_steps_ratio"]
    shape, betas = (kind, warmup, settings["optim.min_lr_ratio"]), settings["optim.betas"]
    named = dict(zip(("beta1", "beta2"), [*betas, *(0.9, 0.999)[len(betas) :]], strict=False))
    named |= {"eps": 1e-8, "weight_decay": settings["optim.weight_decay"]}
    named["grad_clip_norm"] = (settings["optim.clip_grad"] if clip is None else clip) or None
    rate, note = settings["optim.lr"], settings.default_note("optim.lr")
    epochs, files = settings["trainer.total_epochs"], settings["data.train_files"]
    length = RecipeLine("epochs", literal(epochs), settings.default_note("trainer.total_epochs"))
    if len(files) > 1:
        text = f"there {epochs} epochs of all files, whose rows are not counted here"
        length = RecipeLine("steps", literal(STEPS), text)
    return [
        optimizer(settings, rate, note, shape, steps, **named),
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
    chats = settings["data.multiturn.enable"] or _PRETRAINED not in settings.options
    keys = {"prompt": settings["data.prompt_key"], "reply": settings["data.response_key"]}
    keys = {"messages": settings["data.messages_key"]} if chats else keys
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
