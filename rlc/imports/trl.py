"""TRL's trainers for GRPO, DPO and SFT: `trl grpo`, its YAML, and scripts. Facts of TRL 1.16."""

from __future__ import annotations

import math
import re

from rlc.imports import write
from rlc.imports.objectives import FULL_TRAINING, clip_note, policy_loss, schedule
from rlc.imports.settings import REQUIRED, InputError, Option, Settings, defaults, shown, table
from rlc.imports.write import RecipeLine, Word, call, literal

_CHANGES = "changes what is learnt, and has no words here"
_SAMPLER = "the ratio to the sampler is a part of the loss here; TRL masks rollouts by it"
_WEIGHTS = "the service has its own adapters, their scale and their precision"
_SHARED = {
    **table(Option("model_name_or_path", "string", REQUIRED)),
    **defaults(
        """
        string dataset_name dataset_config dataset_train_split=train dataset_test_split=test
        bool   use_peft=false
        int    lora_r=16 per_device_train_batch_size=8 gradient_accumulation_steps=1
        int    num_processes=1 max_steps=-1 save_total_limit
        float  weight_decay=0 adam_beta1=0.9 adam_beta2=0.999 adam_epsilon=1e-8 max_grad_norm=1
        string lr_scheduler_type=linear save_strategy=steps eval_strategy=no run_name
        string project=huggingface
        float  num_train_epochs=3 warmup_steps=0 warmup_ratio=0 save_steps=500 eval_steps
        mapping lr_scheduler_kwargs
        words  report_to=none
        """
    ),
    **defaults("any lora_alpha lora_dropout lora_target_modules dtype bf16", _WEIGHTS),
}
GRPO = {
    **_SHARED,
    **defaults(
        """
        float  learning_rate=1e-6 beta=0 temperature=1 top_p=1 epsilon=0.2 epsilon_high delta
        float  sapo_temperature_neg=1.05 sapo_temperature_pos=1
        int    num_generations=8 max_completion_length=512 steps_per_generation top_k=0
        int    generation_batch_size num_iterations=1 num_generations_eval
        string importance_sampling_level=token loss_type=dapo
        string multi_objective_aggregation=sum_then_normalize
        any    scale_rewards=group
        words  reward_funcs= reward_weights
        """
    ),
    **defaults(
        """
        bool   mask_truncated_completions=false sync_ref_model=false use_bias_correction_kl=false
        float  top_entropy_quantile=1 entropy_coef=0 min_p repetition_penalty=1
        float  off_policy_mask_threshold
        string reward_model_name_or_path
        any    chat_template_kwargs generation_kwargs
        """,
        _CHANGES,
    ),
    **defaults("any use_vllm=False vllm_importance_sampling_correction", _SAMPLER),
}
DPO = {
    **_SHARED,
    **defaults(
        """
        float  learning_rate=1e-6 beta=0.1
        int    max_length
        words  loss_type=sigmoid
        """
    ),
    **defaults(
        """
        float  label_smoothing=0 ld_alpha
        words  loss_weights
        bool   use_weighting=false sync_ref_model=false
        string f_divergence_type=reverse_kl
        """,
        _CHANGES,
    ),
}
SFT = {
    **_SHARED,
    **defaults(
        """
        float  learning_rate=2e-5
        int    max_length
        bool   assistant_only_loss=false
        """
    ),
    **defaults(
        """
        bool   packing=false completion_only_loss
        string loss_type=nll chat_template_path eos_token dataset_text_field=text
        """,
        _CHANGES,
    ),
}
TABLES = {"trl-grpo": GRPO, "trl-dpo": DPO, "trl-sft": SFT}
STEPS = 100  # where the number of rows decides


def recipe(settings: Settings, unread: tuple[str, ...]) -> str:
    """Return the recipe of a job; ``unread`` are options that stand in Python code only."""
    for text in unread:
        settings.note(f"in Python code only, which is not run: {text}")
    make = {id(GRPO): _grpo, id(DPO): _preference, id(SFT): _sft}[id(settings.options)]
    parts = make(settings)
    full = [] if settings["use_peft"] else [RecipeLine("lora_rank", "32", FULL_TRAINING)]
    parts = [write.model_block(settings, "model_name_or_path", "lora_r", full), *parts]
    return write.recipe_of("A job of TRL (as in 1.16)", settings, parts)


def _grpo(settings: Settings) -> list[str]:
    count, updates = _batch(settings)
    size, longest = settings["num_generations"], settings["max_completion_length"]
    top_p, top_k = settings["top_p"], settings["top_k"]
    sample = call(
        "sample",
        max_tokens=longest,
        temperature=settings["temperature"],
        top_p=top_p if top_p != 1 else None,
        top_k=top_k if top_k > 0 else None,
    )
    losses, loss = _loss(settings, updates)
    parts = min(updates, count)
    if parts < updates:
        settings.note(f"TRL makes {updates} updates of a batch, by parts of a group; here {parts}")
    parts = parts if parts > 1 else None
    lines = [
        RecipeLine("model", write.POLICY),
        RecipeLine("env", "tasks"),
        RecipeLine("batch", call("groups", literal(count), group_size=size, updates=parts)),
        RecipeLine("sampling", sample, settings.default_note("max_completion_length")),
        RecipeLine("advantage", _advantage(settings)),
        *loss,
        *_common(settings, updates, count),
    ]
    tasks, heldout = _tasks(settings, None), list[str]()
    if settings["eval_strategy"] != "no":
        evaluation = [
            RecipeLine("model", write.MAIN),
            RecipeLine("env", "test_tasks"),
            RecipeLine("samples", literal(settings["num_generations_eval"] or size)),
            RecipeLine("tasks", "64", "all of the split there"),
            *_every(settings, updates),
        ]
        split = _tasks(settings, settings["dataset_test_split"])
        heldout = [split, write.block("eval", "heldout", evaluation)]
    return [tasks, *losses, write.block("train", write.MAIN, lines), *heldout]


def _batch(settings: Settings) -> tuple[int, int]:
    """Return the prompts of a step, and the updates that its batch is split into."""
    update = settings["per_device_train_batch_size"] * settings["num_processes"]
    accumulated, size = settings["gradient_accumulation_steps"], settings["num_generations"]
    collected = settings["generation_batch_size"]
    if collected is None:
        collected = update * (settings["steps_per_generation"] or accumulated)
    count, updates = collected // max(size, 1), max(collected // max(update * accumulated, 1), 1)
    if count < 1 or collected % max(size, 1):
        message = f"{collected} completions a step are no groups of `num_generations` = {size}"
        raise InputError(message, "TRL refuses it too: make one a multiple of the other")
    if settings["num_iterations"] > 1:
        settings.note(f"num_iterations = {settings['num_iterations']}: no rollout is used twice")
    if not settings.is_given("num_processes"):
        settings.note("the batch is that of one process: `num_processes=8` counts for eight")
    return count, updates


def _advantage(settings: Settings) -> str:
    scale = {"true": "group", "false": "none"}.get(shown(settings["scale_rewards"]).lower())
    scale = scale or settings.choice(
        "scale_rewards", str(settings["scale_rewards"]), ("group", "batch", "none"), "group"
    )
    if settings["multi_objective_aggregation"] == "normalize_then_sum":
        return call("trl.gdpo")
    return call("trl.grpo", scale_rewards=Word(scale))


def _loss(settings: Settings, updates: int) -> tuple[list[str], list[RecipeLine]]:
    name, low, delta = settings["loss_type"], settings["epsilon"], settings["delta"]
    high = low if settings["epsilon_high"] is None else settings["epsilon_high"]
    bounds, more = (1 - low, 1 + high), dict[str, float]()
    aggregates = {"grpo": "seq_mean_token_mean", "sapo": "seq_mean_token_mean"}
    aggregate = call(aggregates.get(name, "token_mean"))
    if name == "dr_grpo":
        aggregate = call("seq_mean_token_sum_norm", length=settings["max_completion_length"])
    kind = "ppo"
    if name == "cispo":
        kind, bounds = "cispo", (0.0, high)
    elif name == "sapo":
        tau = (settings["sapo_temperature_pos"], settings["sapo_temperature_neg"])
        kind, more = "sapo", {"pos": tau[0], "neg": tau[1]}
    elif settings["importance_sampling_level"] == "sequence":
        kind = "gspo"
    elif delta is not None:
        kind, more = "ppo_two_sided", {"most": delta}
    if name not in ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo"):
        settings.note(f"loss_type = {shown(name)} has no counterpart; this is `dapo`")
    if name == "bnpo":
        settings.note("loss_type = bnpo: means over the tokens of each micro-batch; here of all")
    note = clip_note(updates, settings.default_note("loss_type", "epsilon"))
    losses, lines = policy_loss(kind, *bounds, settings["beta"], "k3", note, **more)
    return losses, [*lines, RecipeLine("aggregate", aggregate)]


def _tasks(settings: Settings, split: str | None) -> str:
    """Write the environment of a data set and its reward functions."""
    functions, weights = settings["reward_funcs"], settings["reward_weights"] or []
    graders, above = dict[str, str](), list[str]()
    for index, path in enumerate(functions):
        module, _, name = path.rpartition(".")
        known = name in ("accuracy_reward", "reasoning_accuracy_reward")
        if known and module in ("", "trl.rewards"):
            graders[name] = "math"
            above.append(f"{name}: `math` wants the answer in \\boxed{{}} or <answer>")
        else:
            name = re.sub(r"\W", "_", name)
            graders[name] = call("grade_with", literal(f"rewards.py:{name}"))
            origin = f"from {module or 'trl.rewards'} import {name} as theirs"
            above += [_ADAPTER.format(name=name, origin=origin if path[0] != "." else _COPIED)]
        if index < len(weights):
            graders[name] = f"{write.number(float(weights[index]))} * {graders[name]}"
    if not graders:
        graders = {"reward": call("grade_with", literal("rewards.py:reward"))}
        above = ["reward: the job names no reward function; write one, `def reward(reply, row)`"]
    grader = " ".join(f"{name} = {value}" for name, value in graders.items())
    solved = "math" in graders.values()
    fields = {"question": "prompt", "answer": "solution", "format_coef": 0.0} if solved else {}
    source = call(
        "problems" if solved else "rows",
        literal(_path(settings)),
        grader=Word(f"{{ {grader} }}"),
        split=_split(settings, split),
        **fields,
    )
    return write.declaration("env", "test_tasks" if split else "tasks", source, above * (not split))


_COPIED = "# its `def`, copied from the script, under the name `theirs`"
_ADAPTER = """{name}: rewards.py is to be written; TRL calls with lists, rlc with a reply and a row:
  {origin}
  def {name}(reply, row):
      columns = {{name: [value] for name, value in row.items()}}
      said = [[{{"role": "assistant", "content": reply}}]]  # [reply] if prompts are plain text
      return theirs(prompts=[row["prompt"]], completions=said, **columns)[0] or 0.0"""


def _path(settings: Settings) -> str:
    """Return where the rows are; a data set is one of the hub unless it looks like a file."""
    name, config = settings["dataset_name"], settings["dataset_config"]
    if name is None:
        settings.note('"rows.jsonl" stands for the data, which the job does not name')
        return "rows.jsonl"
    if name.startswith((".", "/", "~")) or re.search(r"\.(jsonl?|csv|parquet|arrow)$", name):
        return str(name)
    return f"hub:{name}/{config}" if config else f"hub:{name}"


def _split(settings: Settings, split: str | None) -> Word | None:
    name = split or settings["dataset_train_split"]
    if name not in ("train", "test"):
        settings.note(f"the split `{shown(name)}`: a part of one is `first(90%)` or `last(10%)`")
    return Word("test") if split or name == "test" else None


def _common(settings: Settings, updates: int, count: int) -> list[RecipeLine]:
    """Write what all three trainers have: the optimiser, how long, checkpoints, trackers."""
    most = settings["max_steps"]
    steps = math.ceil(most / updates) if most > 0 else None
    kwargs, warmup = settings["lr_scheduler_kwargs"] or {}, settings["warmup_steps"]
    kind, clip = settings["lr_scheduler_type"], settings["max_grad_norm"]
    if settings.options is SFT:
        clip = settings.note(f"max_grad_norm = {clip:g}: of a mean over tokens; here it is a sum")
    adam = call(
        "adam",
        literal(settings["learning_rate"]),
        beta1=settings["adam_beta1"],
        beta2=settings["adam_beta2"],
        eps=settings["adam_epsilon"],
        weight_decay=settings["weight_decay"],
        grad_clip_norm=clip,
        schedule=schedule(
            settings,
            kind,
            (warmup if warmup < 1 else warmup / updates) or settings["warmup_ratio"],
            steps,
            float(kwargs.get("min_lr_rate", 0)),
            math.ceil,
        ),
    )
    epochs = settings["num_train_epochs"]
    length = RecipeLine("steps", literal(steps), f"{most} updates" if updates > 1 else "")
    if steps is None:
        text = (
            f"not counted here; the {epochs:g} epochs there are {epochs:g} × rows / {count} steps"
        )
        length = RecipeLine("steps", literal(STEPS), text)
    save, keep = settings["save_steps"], settings["save_total_limit"]
    every = max(int(save / updates), 1) if settings["save_strategy"] == "steps" else 0
    every *= steps is not None or settings.is_given("save_steps")
    trackers = {
        "wandb": call("wandb", literal(settings["project"]), run=settings["run_name"]),
        "trackio": call("trackio", literal(settings["project"]), run=settings["run_name"]),
        "tensorboard": "tensorboard()",
    }
    used = [tracker for name, tracker in trackers.items() if name in settings["report_to"]]
    note = settings.default_note("learning_rate", "lr_scheduler_type")
    return [
        RecipeLine("optimizer", adam, note),
        length,
        *write.save_line(every, settings.default_note("save_steps"), keep=keep and Word(str(keep))),
        *([RecipeLine("track", f"[{', '.join(used)}]")] if used else []),
    ]


def _every(settings: Settings, updates: int = 1) -> list[RecipeLine]:
    """Write how often is evaluated; TRL logs, and so evaluates, every 10 updates by default."""
    if settings["eval_strategy"] != "steps":
        return []
    return [RecipeLine("every", literal(max(int((settings["eval_steps"] or 10) / updates), 1)))]


def _examples(settings: Settings, source: str) -> list[RecipeLine]:
    """Write the fields of a stage that learns from rows."""
    count = settings["per_device_train_batch_size"] * settings["num_processes"]
    count *= settings["gradient_accumulation_steps"]
    longest, path = settings["max_length"], literal(_path(settings))
    longest = longest if settings.is_given("max_length") else 1024
    limits = {"max_tokens": longest, "too_long": longest and Word("drop")}
    longer = f"longer rows are cut there after {longest} tokens, and left out here"
    train = call(source, path, split=_split(settings, None), **limits)
    lines = [
        RecipeLine("model", write.POLICY),
        RecipeLine("data", train, longer if longest else ""),
        RecipeLine("batch", literal(count)),
        *_common(settings, 1, count),
    ]
    if settings["eval_strategy"] != "no":
        test = _split(settings, settings["dataset_test_split"])
        lines.append(RecipeLine("heldout", call(source, path, split=test, **limits)))
        lines += _every(settings)
    return lines


def _preference(settings: Settings) -> list[str]:
    kinds, beta = settings["loss_type"], settings["beta"]
    kind = {"sigmoid": "dpo", "ipo": "ipo"}.get(kinds[0] if len(kinds) == 1 else "")
    if kind is None:
        settings.note(f"loss_type = {', '.join(kinds)} has no counterpart; this is `sigmoid`")
    loss = RecipeLine("loss", call(kind or "dpo", beta=beta), settings.default_note("beta"))
    lines = _examples(settings, "pairs")
    return [write.block("preference", write.MAIN, [*lines[:2], loss, *lines[2:]])]


def _sft(settings: Settings) -> list[str]:
    if not settings["assistant_only_loss"]:
        what = "the user's too, unless rows have `prompt` and `completion`"
        settings.note(f"assistant_only_loss = false: all messages are learnt there, {what}")
    settings.note(
        "`chats` reads `messages` or `conversations`; rows of `prompt` and `completion` are "
        'rows(…, reply = "completion")'
    )
    return [write.block("sft", write.MAIN, _examples(settings, "chats"))]
