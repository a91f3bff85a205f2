"""verl's trainers: `main_ppo` without a critic, and supervised training. Facts of verl 0.9.1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rlc.imports import write
from rlc.imports.objectives import FULL_TRAINING, clip_note, policy_loss, schedule
from rlc.imports.settings import REQUIRED, Option, Settings, defaults, shown, table
from rlc.imports.write import RecipeLine, Word, call, literal

_CHANGES = "changes what is learnt, and has no words here"
_TRAINER = """
    string trainer.project_name={project} trainer.experiment_name={run}
    words  trainer.logger=console,wandb
    int    trainer.total_epochs={epochs} trainer.total_training_steps trainer.save_freq=-1
    int    trainer.test_freq=-1 data.train_max_samples=-1 data.val_max_samples=-1
"""
# Below `actor_rollout_ref.actor.` and `actor_rollout_ref.`.
_ACTOR = """
    float  optim.lr=1e-6 optim.weight_decay=0.01 optim.lr_warmup_steps_ratio=0 clip_ratio_low
    float  optim.min_lr_ratio=0 optim.clip_grad=1 grad_clip clip_ratio=0.2 clip_ratio_high
    float  clip_ratio_c=3 tau_pos=1 tau_neg=1.05 kl_loss_coef=0.001 loss_scale_factor
    words  optim.betas=0.9,0.999
    int    ppo_mini_batch_size=256 ppo_epochs=1 optim.lr_warmup_steps=-1
    string optim.lr_scheduler_type=constant optim.warmup_style loss_agg_mode=token-mean
    string policy_loss.loss_mode=vanilla kl_loss_type=low_var_kl
    bool   use_kl_loss=false
"""
_JOB = """
    int    model.lora_rank=0 rollout.n=1 rollout.top_k=-1 rollout.val_kwargs.n=1
    int    rollout.val_kwargs.top_k=-1
    float  rollout.temperature=1 rollout.top_p=1 rollout.val_kwargs.temperature=0
    float  rollout.val_kwargs.top_p=1
    bool   rollout.val_kwargs.do_sample=false
"""
_PPO = """
    words  data.train_files data.val_files
    string data.prompt_key=prompt algorithm.adv_estimator=gae algorithm.kl_penalty=kl
    int    data.train_batch_size=1024 data.max_prompt_length=512 data.max_response_length=512
    int    algorithm.filter_groups.max_num_gen_batches=0
    bool   data.shuffle=true algorithm.norm_adv_by_std_in_grpo=true
    bool   algorithm.use_kl_in_reward=false algorithm.filter_groups.enable=false
    bool   trainer.val_before_train=true overlong_buffer_cfg.enable=false
    float  algorithm.kl_ctrl.kl_coef=0.001
    int    overlong_buffer_cfg.len=0
    float  overlong_buffer_cfg.penalty_factor=1
    string custom_reward_function.path custom_reward_function.name=compute_score
"""
_PPO_CHANGES = """
    float  algorithm.gamma=1 algorithm.lam=1 actor_rollout_ref.actor.entropy_coeff=0
    string algorithm.rollout_correction.rollout_is algorithm.rollout_correction.rollout_rs
    string data.truncation=error algorithm.kl_ctrl.type=fixed
    bool   reward_model.enable=false actor_rollout_ref.rollout.multi_turn.enable=false
"""
_SFT = """
    words  data.train_files data.val_files optim.betas={betas}
    string data.prompt_key=question data.response_key=answer data.messages_key=messages
    string optim.lr_scheduler={schedule} optim.lr_scheduler_type={schedule}
    int    data.train_batch_size=256 data.max_length=1024 model.lora_rank=0
    float  optim.lr={rate} optim.weight_decay=0.01 optim.lr_warmup_steps_ratio={warmup}
    float  optim.clip_grad=1 optim.min_lr_ratio=0
    int    optim.lr_warmup_steps=-1
    bool   data.multiturn.enable=false
"""


def _below(prefix: str, text: str) -> dict[str, Option]:
    return {f"{prefix}{name}": option for name, option in defaults(text).items()}


ACTOR, JOB = "actor_rollout_ref.actor.", "actor_rollout_ref."
PPO = {
    **table(Option(f"{JOB}model.path", "string", REQUIRED)),
    **defaults(_TRAINER.format(project="verl_examples", run="gsm8k", epochs=30) + _PPO),
    **_below(ACTOR, _ACTOR),
    **_below(JOB, _JOB),
    **defaults(_PPO_CHANGES, _CHANGES),
}
_SFT_TRAINER = _TRAINER.format(project="gsm8k-sft", run="test", epochs=4)
_NESTED = defaults("words data.prompt_dict_keys data.response_dict_keys", "the field is nested")
SFT = {
    **_NESTED,
    **table(Option("model.path", "string", REQUIRED)),
    **defaults(_SFT_TRAINER),
    **defaults(_SFT.format(betas="0.9,0.999", schedule="constant", rate=1e-3, warmup=0)),
}
_OLDER = _SFT.format(betas="0.9,0.95", schedule="cosine", rate=1e-5, warmup=0.1)
FSDP_SFT = {  # `fsdp_sft_trainer`, up to verl 0.8
    **_NESTED,
    **table(Option("model.partial_pretrain", "string", REQUIRED)),
    **defaults(_SFT_TRAINER + _OLDER),
}
ADVANTAGES = {
    "grpo": "grpo",
    "grpo_vectorized": "grpo",
    "rloo": "rloo",
    "rloo_vectorized": "rloo_vectorized",
    "opo": "opo",
    "gpg": "gpg",
    "gdpo": "gdpo",
    "grpo_passk": "grpo_passk",
    "reinforce_plus_plus": "reinforce_pp",
    "reinforce_plus_plus_baseline": "reinforce_pp_baseline",
}
LOSSES = {"gspo": "gspo", "cispo": "cispo", "sapo": "sapo", "gpg": "cross_entropy"}
KINDS = {"kl": "k1", "k1": "k1", "abs": "abs", "mse": "k2", "k2": "k2"}
AGGREGATES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean")


def read_settings(pairs: Iterable[tuple[str, Any]], supervised: bool) -> Settings:
    """Read Hydra options, less references that only Hydra resolves."""
    plain = []
    for name, value in pairs:
        name = name.lstrip("+~").removeprefix("reward.")
        name = name.replace("multiturn.messages_key", "messages_key")
        _, buffer, rest = name.partition("overlong_buffer_cfg.")
        if not name.endswith("_target_") and not str(value).startswith("${"):
            plain.append((buffer + rest if buffer else name, value))
    older = any(name == "model.partial_pretrain" for name, _ in plain)
    options = (FSDP_SFT if older else SFT) if supervised else PPO
    return Settings(options, plain, gathers=True)


def recipe(settings: Settings) -> str:
    """Return the recipe of a job."""
    base = next(name for name in settings.options if name.endswith(("path", "pretrain")))
    rank = "model.lora_rank" if settings.options is not PPO else f"{JOB}model.lora_rank"
    full = [] if settings[rank] else [RecipeLine("lora_rank", "32", FULL_TRAINING)]
    parts = _ppo(settings) if settings.options is PPO else _sft(settings)
    parts = [write.model_block(settings, base, rank, full), *parts]
    return write.recipe_of("A job of verl (as in 0.9.1)", settings, parts)


def _ppo(settings: Settings) -> list[str]:
    count, size = settings["data.train_batch_size"], settings[f"{JOB}rollout.n"]
    updates = max(count // max(settings[f"{ACTOR}ppo_mini_batch_size"], 1), 1)
    if (epochs := settings[f"{ACTOR}ppo_epochs"]) > 1:
        settings.note(f"{ACTOR}ppo_epochs = {epochs}: no rollout is used twice")
    again = settings["algorithm.filter_groups.max_num_gen_batches"]
    again = min(max(again - 1, 0) * count, 100_000) if again else 100_000
    groups = call(
        "groups",
        literal(count),
        group_size=size,
        updates=updates if updates > 1 else None,
        resample=again if settings["algorithm.filter_groups.enable"] else None,
    )
    note = settings.default_note("data.train_batch_size", f"{JOB}rollout.n")
    lengths = settings.default_note("data.max_response_length", "data.max_prompt_length")
    losses, loss = _loss(settings, updates)
    lines = [
        RecipeLine("model", write.POLICY),
        RecipeLine("env", "tasks"),
        RecipeLine("batch", groups, note),
        RecipeLine("sampling", _sampling(settings, "rollout."), lengths),
        _advantage(settings),
        *loss,
        *_penalty(settings),
        *_common(settings, f"{ACTOR}optim.", settings[f"{ACTOR}grad_clip"]),
    ]
    tasks = _tasks(settings, "tasks", "train")
    return [tasks, *losses, write.block("train", write.MAIN, lines), *_evaluation(settings)]


def _sampling(settings: Settings, group: str) -> str:
    """Write how is sampled; validation is greedy unless it says otherwise."""
    training = group == "rollout."
    greedy = not training and not settings[f"{JOB}{group}do_sample"]
    temperature, top_p = (settings[f"{JOB}{group}{name}"] for name in ("temperature", "top_p"))
    top_k = 1 if greedy else settings[f"{JOB}{group}top_k"]
    return call(
        "sample",
        max_tokens=settings["data.max_response_length"],
        temperature=1.0 if greedy else temperature,
        top_p=top_p if top_p != 1 and not greedy else None,
        top_k=top_k if top_k > 0 else None,
        max_prompt_tokens=settings["data.max_prompt_length"] if training else None,
    )


def _advantage(settings: Settings) -> RecipeLine:
    kind = settings["algorithm.adv_estimator"]
    note = settings.default_note("algorithm.adv_estimator")
    if kind not in ADVANTAGES:
        note = f"not `{shown(kind)}`, which has no counterpart: advantages compare rollouts here"
    norm = settings["algorithm.norm_adv_by_std_in_grpo"]
    name = ADVANTAGES.get(kind, "grpo")
    normed = name in ("grpo", "gdpo", "grpo_passk") and not norm
    return RecipeLine("advantage", call(f"verl.{name}", norm=False if normed else None), note)


def _loss(settings: Settings, updates: int) -> tuple[list[str], list[RecipeLine]]:
    mode, most = settings[f"{ACTOR}policy_loss.loss_mode"], settings[f"{ACTOR}clip_ratio_c"]
    both = settings[f"{ACTOR}clip_ratio"]
    low, high = (settings[f"{ACTOR}clip_ratio_{side}"] for side in ("low", "high"))
    low, high = both if low is None else low, both if high is None else high
    pos, neg = settings[f"{ACTOR}tau_pos"], settings[f"{ACTOR}tau_neg"]
    divergence, coef = settings[f"{ACTOR}kl_loss_type"], settings[f"{ACTOR}kl_loss_coef"]
    coef = coef if settings[f"{ACTOR}use_kl_loss"] else 0.0
    # A `+` behind the name takes the gradient of k2; the ratio is 1 in a batch's only update.
    kind = KINDS.get("k2" if divergence.endswith("+") else divergence, "k3_clamped")
    note = clip_note(updates)
    if mode not in LOSSES and mode != "vanilla":
        note = f"not `{shown(mode)}`: docs/losses.md may have it"
    loss = LOSSES.get(mode, "ppo_dual" if updates > 1 else "ppo")
    more = {"most": most, "pos": pos, "neg": neg}
    losses, lines = policy_loss(loss, 1 - low, 1 + high, coef, kind, note, **more)
    return losses, [*lines, _aggregate(settings, mode)]


def _aggregate(settings: Settings, mode: str) -> RecipeLine:
    how = settings[f"{ACTOR}loss_agg_mode"]
    if mode == "sapo":
        return RecipeLine("aggregate", "seq_mean_token_mean()", "whatever loss_agg_mode says")
    if how == "seq-mean-token-sum-norm":
        length = settings[f"{ACTOR}loss_scale_factor"] or settings["data.max_response_length"]
        return RecipeLine("aggregate", call("seq_mean_token_sum_norm", length=int(length)))
    how = settings.choice("loss_agg_mode", how, AGGREGATES, "token-mean")
    note = settings.default_note(f"{ACTOR}loss_agg_mode")
    return RecipeLine("aggregate", call(how.replace("-", "_")), note)


def _penalty(settings: Settings) -> list[RecipeLine]:
    if not settings["algorithm.use_kl_in_reward"]:
        return []
    coef, kind = settings["algorithm.kl_ctrl.kl_coef"], settings["algorithm.kl_penalty"]
    later = settings["algorithm.adv_estimator"] == "reinforce_plus_plus"
    text = f"use_kl_in_reward ({shown(kind)}): a part of the return there, before the advantage"
    value = call("reference", "policy.base", coef=coef, discount=1.0 if later else None)
    return [RecipeLine("kl", value, text)]


def _tasks(settings: Settings, name: str, split: str) -> str:
    """Write the environment of data files; several are a mixture."""
    path = settings["custom_reward_function.path"]
    function = settings["custom_reward_function.name"] if path else "default_compute_score"
    module = str(path).rpartition("/")[2].removesuffix(".py") if path else "verl.utils.reward_score"
    files = settings[f"data.{'train' if split == 'train' else 'val'}_files"]
    if not files:
        settings.note(f'"{split}.parquet" stands for the data, which the job does not name')
    samples = settings[f"data.{'train' if split == 'train' else 'val'}_max_samples"]
    sources = [
        call(
            "rows",
            literal(file),
            prompt=settings["data.prompt_key"],
            grader=Word('grade_with("rewards.py:score")'),
            shuffle=None if settings["data.shuffle"] or split != "train" else False,
            samples=samples if samples > 0 else None,
        )
        for file in files or [f"{split}.parquet"]
    ]
    above = _ADAPTER.format(module=module, function=function).splitlines() * (split == "train")
    steps = [_buffer(settings)] if settings["overlong_buffer_cfg.enable"] else []
    if len(sources) == 1:
        played = write.pipeline(*sources, *steps)
        return write.declaration("env", name, played, ["\n".join(above)] * bool(above))
    names = [f"{name}_{number}" for number in range(1, len(sources) + 1)]
    above.append("verl mixes the files by their numbers of rows; weigh them so: 3 * a + 1 * b")
    declared = [
        write.declaration("env", one, write.pipeline(source, *steps))
        for one, source in zip(names, sources, strict=True)
    ]
    return "".join(
        [*declared, write.declaration("env", name, " + ".join(names), ["\n".join(above)])]
    )


_ADAPTER = """rewards.py is to be written; for the same rewards as there:
  from {module} import {function}
  def score(reply, row):
      answer, more = row["reward_model"]["ground_truth"], row.get("extra_info")
      found = {function}(row["data_source"], reply, answer, more)
      return found["score"] if isinstance(found, dict) else float(found)"""


def _buffer(settings: Settings) -> str:
    """Write the soft punishment of long replies (DAPO)."""
    length, longest = settings["overlong_buffer_cfg.len"], settings["data.max_response_length"]
    factor = settings["overlong_buffer_cfg.penalty_factor"]
    excess = f"({literal(longest - length)} - tokens) / {literal(length)}"
    return call("reward", f"total + min({excess} * {literal(factor)}, 0)")


def _common(settings: Settings, optim: str, clip: float | None) -> list[RecipeLine]:
    """Write what both trainers have: the optimiser, how long, checkpoints, trackers."""
    steps, warmup = settings["trainer.total_training_steps"], settings[f"{optim}lr_warmup_steps"]
    kind = settings[f"{optim}lr_scheduler_type"]
    older = settings.get(f"{optim}lr_scheduler") or settings.get(f"{optim}warmup_style")
    beta1, beta2 = map(float, settings[f"{optim}betas"])
    clip = settings[f"{optim}clip_grad"] if clip is None else clip
    adam = call(
        "adam",
        literal(settings[f"{optim}lr"]),
        beta1=beta1,
        beta2=beta2,
        eps=1e-8,
        weight_decay=settings[f"{optim}weight_decay"],
        grad_clip_norm=clip or None,
        schedule=schedule(
            settings,
            older or kind,
            warmup if warmup > 0 else settings[f"{optim}lr_warmup_steps_ratio"],
            steps,
            settings[f"{optim}min_lr_ratio"],
        ),
    )
    length = RecipeLine("epochs", literal(settings["trainer.total_epochs"]))
    if steps:
        length = RecipeLine("steps", literal(steps))
    return [
        RecipeLine("optimizer", adam, settings.default_note(f"{optim}lr")),
        length,
        *write.save_line(settings["trainer.save_freq"], "verl keeps all, rlc the newest 3"),
        *write.track_lines(settings),
    ]


def _evaluation(settings: Settings) -> list[str]:
    every, first = settings["trainer.test_freq"], settings["trainer.val_before_train"]
    if every <= 0 and not first:
        return []
    lines = [
        RecipeLine("model", write.MAIN),
        RecipeLine("env", "test_tasks"),
        RecipeLine("tasks", "64", "all rows there"),
        RecipeLine("samples", literal(settings[f"{JOB}rollout.val_kwargs.n"])),
        RecipeLine("sampling", _sampling(settings, "rollout.val_kwargs.")),
        *([RecipeLine("every", literal(every))] if every > 0 else []),
        *([RecipeLine("first", "true")] if first else []),
    ]
    return [_tasks(settings, "test_tasks", "test"), write.block("eval", "heldout", lines)]


def _sft(settings: Settings) -> list[str]:
    chats = settings["data.multiturn.enable"] or settings.options is SFT
    limits = {"max_tokens": settings["data.max_length"], "too_long": Word("drop")}
    keys = {"prompt": settings["data.prompt_key"], "reply": settings["data.response_key"]}
    if chats:
        keys = {"messages": settings["data.messages_key"]}
    kind, files = "chats" if chats else "rows", settings["data.train_files"]
    data = [call(kind, literal(file), **keys, **limits) for file in files or ["train.parquet"]]
    if len(data) > 1:
        settings.note(f"data.train_files: put the rows of all {len(data)} files into one")
    heldout = settings["data.val_files"][:1] if settings["trainer.test_freq"] > 0 else []
    lines = [
        RecipeLine("model", write.POLICY),
        RecipeLine("data", data[0]),
        RecipeLine("batch", literal(settings["data.train_batch_size"])),
        *_common(settings, "optim.", 0.0),
        *[RecipeLine("heldout", call(kind, literal(file), **keys, **limits)) for file in heldout],
    ]
    settings.note("optim.clip_grad is of a mean over tokens; here the loss is a sum")
    return [write.block("sft", write.MAIN, lines)]
