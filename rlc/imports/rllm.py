"""rLLM's trainers on Tinker: Hydra options of the legacy and of the unified configuration."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from attrs import frozen

from rlc.catalog import renderer_names
from rlc.imports import write
from rlc.imports.objectives import optimizer
from rlc.imports.settings import TRAINER, InputError, Settings, options, shown
from rlc.imports.write import RecipeLine, Word, call, literal, pipeline, remarks
from rlc.lang import Source, nearest
from rlc.lang.syntax import parse

# `tinker_rl_trainer.yaml`; and `rllm/base.yaml` with `rllm/backend/tinker.yaml`.
LEGACY, UNIFIED = options("rllm", "rllm-legacy"), options("rllm", "rllm-unified")
PREFIX = "rllm."  # of keys of the later one
# Rows of Jiayi-Pan/Countdown-Tasks-3to4, less those of the test split.
COUNTDOWN_TRAIN, COUNTDOWN_TEST = 489_340, 1_024
NO_LIMIT = 1e6  # seconds: the unified trainer's default


@frozen
class Tasks:
    """The tasks of a job; ``roles`` if the players of a solver-judge game play them."""

    train: str
    test: str | None
    test_tasks: int
    train_tasks: int | None
    roles: bool


def read_settings(pairs: Iterable[tuple[str, Any]], keep_going: bool) -> Settings:
    """Read the options, in the generation that knows them."""
    given = [(name.lstrip("+"), value) for name, value in pairs]
    plain = [(name.removeprefix(PREFIX), value) for name, value in given]
    unified = any(name.startswith((PREFIX, "rllm/")) for name, _ in given) or any(
        name in UNIFIED and name not in LEGACY for name, _ in plain
    )
    if not unified:
        return Settings(LEGACY, plain, keep_going)
    settings = Settings(UNIFIED, [pair for pair in plain if "/" not in pair[0]], keep_going)
    for name, value in given:
        if name == "rllm/backend" and value != "tinker":
            settings.problem(f"the backend `{shown(value)}` is not Tinker")
    return settings


def recipe(settings: Settings, script: str, env: str | None) -> str:
    """Return the recipe of an rLLM job. Its environment stands in its Python code, ``script``;
    ``env`` is the user's own expression for it, or None."""
    tasks = _tasks(settings, script, env)
    above = ["the tasks and their two players stand in the script's Python code, two solvers in it"]
    names = ("workflow.timeout", "workflow.workflow_args.timeout")
    limits = [value for name in names if (value := settings.get(name)) is not None]
    played = tasks.train
    if limits and limits[0] < NO_LIMIT:
        played = pipeline(played, call("rollouts", timeout=Word(f"{write.number(limits[0])}s")))
    parts = [
        write.model_block(settings, "model.name", "model.lora_rank", _model(settings)),
        write.declaration("env", "tasks", played, above if tasks.roles else []),
        write.block("train", write.MAIN, _training(settings, tasks)),
        *_evaluation(settings, tasks),
    ]
    generation = "unified" if is_unified(settings) else "legacy"
    return write.recipe_of(f"An rLLM job on Tinker ({generation} options)", settings, parts)


def _tasks(settings: Settings, script: str, env: str | None) -> Tasks:
    files = (settings["data.train_files"], settings["data.val_files"])
    if env is not None:
        if parse(Source("--env", f"env tasks = {env}"))[1]:
            raise InputError(f"--env {shown(env)} is no environment", "write `problems(gsm8k)`")
        settings.note("--env: the evaluation plays the same tasks, unless you change `test_tasks`")
        return Tasks(env, env, 64, None, "solver_judge" in env)
    if "solver_judge" in script or "countdown" in script:
        judged = ["solver_judge(solvers = 2)"] if "solver_judge" in script else []
        train, test = (pipeline(_countdown(split), *judged) for split in ("train", "test"))
        return Tasks(train, test, COUNTDOWN_TEST, COUNTDOWN_TRAIN, bool(judged))
    if files[0] is not None:
        heldout = call("problems", literal(files[1])) if files[1] is not None else None
        return Tasks(call("problems", literal(files[0])), heldout, 64, None, False)
    workflow = """`--env 'agent("flow:MyWorkflow", tasks = problems(gsm8k))'`"""
    advice = f"say it with --env: `--env 'problems(gsm8k)'`, or for a class of workflows {workflow}"
    raise InputError("what this job plays stands in its Python code, which is not read", advice)


def _countdown(split: str) -> str:
    named = {"split": split, "grader": Word("countdown"), "format_coef": 0.0}
    return call("problems", "countdown_tasks", **named)


def _model(settings: Settings) -> list[RecipeLine]:
    base = settings["model.name"]
    layers = ("train_mlp", "train_attn", "train_unembed")
    lines = [RecipeLine(layer, "false") for layer in layers if not settings[f"model.{layer}"]]
    if (resume := settings.get("trainer.resume_from_tinker_id")) is not None:
        text = "the trainer restores weights only, as rlc does here"
        lines.append(write.weights_line(base, resume, text))
    if (renderer := settings["rollout_engine.renderer_name"]) is not None:
        return [*lines, RecipeLine("renderer", write.choice(renderer, renderer_names()))]
    if any((settings["rollout_engine.disable_thinking"], settings.get("disable_thinking"))):
        if quiet := write.quiet_renderer(base):
            return [*lines, RecipeLine("renderer", quiet, "disable_thinking")]
        settings.note("disable_thinking: the model has no renderer that does so")
    return lines


def _training(settings: Settings, tasks: Tasks) -> list[RecipeLine]:
    size, count = _group(settings), settings["data.train_batch_size"]
    batch = call("groups", literal(count), group_size=settings[size])
    coef = settings.get("algorithm.kl_beta")
    steps, length = _length(settings, tasks, count)
    is_async = settings.get("async_training.enable")
    stale = math.ceil(settings["async_training.staleness_threshold"]) if is_async else 0
    attempts = settings["workflow.retry_limit"]  # of which the first is no retry
    on_error = "stop" if settings["workflow.raise_on_error"] else "drop"
    tried = settings.default_note("workflow.retry_limit")
    if attempts > 1:
        on_error = f"retry({literal(attempts - 1)}) then {on_error}"
        tried = remarks(f"{attempts} attempts in all", tried)
    saved = remarks(settings.default_note("trainer.save_freq"), "rlc keeps the newest 3")
    return [
        RecipeLine("model", write.POLICY),
        RecipeLine("env", "tasks"),
        RecipeLine("batch", batch, settings.default_note("data.train_batch_size", size)),
        _sampling(settings),
        advantage_line(settings, tasks.roles),
        *loss_lines(settings),
        *([RecipeLine("kl", call("reference", "policy.base", coef=coef))] if coef else []),
        _optimizer(settings, steps),
        *([RecipeLine("overlap", call("asynchronous", max_staleness=stale))] if stale > 0 else []),
        length,
        *write.save_line(settings["trainer.save_freq"], saved),
        RecipeLine("on_error", on_error, tried),
        *write.track_lines(settings),
    ]


def _sampling(settings: Settings) -> RecipeLine:
    group = "rollout.train" if is_unified(settings) else "sampling"
    temperature, top_p = settings[f"{group}.temperature"], settings[f"{group}.top_p"]
    longest = settings["data.max_response_length"]
    if is_unified(settings):
        longest = settings["rollout.train.max_tokens"] or longest
    prompt, total = settings["data.max_prompt_length"], settings["training.max_length"]
    shortened = ""
    if longest >= total:  # there a reply has what its prompt leaves, here all have one length
        left = f"the longest prompt leaves that of training.max_length = {total}"
        shortened = f"not {longest}: {left}"
        longest = max(total - prompt, total // 2)
    value = call(
        "sample",
        max_tokens=longest,
        temperature=temperature,
        top_p=top_p if top_p != 1 else None,
        max_prompt_tokens=prompt,
        max_episode_tokens=total if prompt + longest > total else None,
    )
    if settings.is_given("training.max_length") and prompt + longest <= total and not shortened:
        unreached = f"never reached by {prompt} + {longest} tokens"
        settings.note(f"training.max_length = {total}: {unreached}")
    tempered = ""
    if temperature != 1 or top_p != 1:
        tempered = "not 1, as in the original: sampled from another distribution than is trained"
        if not is_unified(settings):
            tempered += ", and the trainer itself stops at an assertion"
    names = ("data.max_response_length", f"{group}.temperature", "data.max_prompt_length")
    note = settings.default_note(*names)
    return RecipeLine("sampling", value, remarks(note, shortened, tempered))


def _optimizer(settings: Settings, steps: int | None) -> RecipeLine:
    named = {name: settings[f"training.{name}"] for name in ("beta1", "beta2", "eps")}
    return optimizer(settings, "training.learning_rate", _schedule(settings), steps, **named)


def _schedule(settings: Settings) -> tuple[str, float, float]:
    """Use the option in `training`, else in `algorithm`."""
    if not is_unified(settings):
        return "constant", 0, 0.0
    kind = settings["training.lr_schedule"] or settings["algorithm.lr_schedule"]
    ratio, warmup = settings["training.warmup_steps_ratio"], settings["algorithm.warmup_steps"]
    ratio = settings["algorithm.warmup_steps_ratio"] if ratio is None else ratio
    return kind, warmup if warmup > 0 else ratio, 0.0


def _length(settings: Settings, tasks: Tasks, count: int) -> tuple[int | None, RecipeLine]:
    """Return the number of steps if it is known, and the line that says how long."""
    if (batches := settings.get("trainer.total_batches") or -1) > 0:
        return batches, RecipeLine("steps", literal(batches))
    epochs = settings["trainer.total_epochs"]
    note = settings.default_note("trainer.total_epochs")
    if tasks.train_tasks is not None:
        steps = math.ceil(epochs * tasks.train_tasks / count) if count > 0 else None
        return steps, RecipeLine("epochs", literal(epochs), note)
    text = f"the original takes {epochs} epochs of tasks that are not counted here; choose how long"
    return None, RecipeLine("steps", literal(100), remarks(note, text))


def _group(settings: Settings) -> str:
    """Return the option that has the size of a group."""
    return "training.group_size" if settings.get("rollout.n") is None else "rollout.n"


def _evaluation(settings: Settings, tasks: Tasks) -> list[str]:
    every, first = settings["trainer.test_freq"], settings["trainer.val_before_train"]
    size = "validation.group_size" if is_unified(settings) else "training.val_group_size"
    if settings.get("rollout.n_val") is not None:
        size = "rollout.n_val"
    samples = settings[size]
    if tasks.test is None or (every <= 0 and not first):
        return []
    metrics = f"[pass_at(1), any_at({samples})]" if samples > 1 else "[pass_at(1)]"
    lines = [
        RecipeLine("model", write.MAIN),
        RecipeLine("env", "test_tasks"),
        RecipeLine("tasks", literal(tasks.test_tasks)),
        RecipeLine("samples", literal(samples), settings.default_note(size)),
        *_val_sampling(settings),
        RecipeLine("metrics", metrics),
    ]
    if every > 0:
        note = settings.default_note("trainer.test_freq")
        trained = every * settings["data.train_batch_size"] * settings[_group(settings)]
        if tasks.test_tasks * samples > trained:
            note = remarks(
                note, "this plays more episodes than the training: raise it to save them"
            )
        lines.append(RecipeLine("every", literal(every), note))
    if first:
        lines.append(RecipeLine("first", "true", settings.default_note("trainer.val_before_train")))
    return [
        write.declaration("env", "test_tasks", tasks.test),
        write.block("eval", "heldout", lines),
    ]


def _val_sampling(settings: Settings) -> list[RecipeLine]:
    """Write how validation samples, if its options are given."""
    group = "rollout.val" if is_unified(settings) else "val_sampling"
    names = ("temperature", "top_p", "max_tokens")
    if not any(settings.is_given(f"{group}.{name}") for name in names):
        return []
    train = "rollout.train" if is_unified(settings) else "sampling"
    temperature, top_p, longest = (settings[f"{group}.{name}"] for name in names)
    value = call(
        "sample",
        max_tokens=longest or settings["data.max_response_length"],
        temperature=settings[f"{train}.temperature"] if temperature is None else temperature,
        top_p=settings[f"{train}.top_p"] if top_p is None else top_p,
    )
    return [RecipeLine("sampling", value)]


AGGREGATES = {
    "token-mean": "token_mean",
    "seq-mean-token-sum": "seq_mean_token_sum",
    "seq-mean-token-mean": "seq_mean_token_mean",
}


def is_unified(settings: Settings) -> bool:
    """Return whether the options are of the unified generation."""
    return settings.options is UNIFIED


def advantage_line(settings: Settings, roles: bool) -> RecipeLine:
    """Write how rewards become advantages; with ``roles``, by the players of a workflow too."""
    kind = settings["algorithm.adv_estimator"].lower()
    level = settings.get("algorithm.grouping_level")
    if level not in (None, "trajectory", "step"):
        settings.problem(f"the grouping_level `{shown(level)}` compares a rollout with itself")
    if level == "step":
        settings.note("algorithm.grouping_level = step: each player takes one, as by `trajectory`")
    # Rollouts are grouped by task, and the players of a workflow by role.
    over = Word("role" if roles else "group")
    schemes = _unified(settings, over) if is_unified(settings) else _legacy(settings, over)
    if kind not in schemes:
        close = nearest(kind, schemes)
        advice = f"did you mean `{close}`?" if close else f"known: {', '.join(schemes)}"
        settings.problem(f"the adv_estimator `{shown(kind)}` has no counterpart", advice)
        kind = "grpo"
    text = settings.default_note("algorithm.adv_estimator")
    if roles and kind != "reinforce":
        judged = "the judges of one task saw different solutions, and are compared all the same"
        text = remarks(text, judged)
    return RecipeLine("advantage", schemes[kind], text)


def _legacy(settings: Settings, over: Word) -> dict[str, str]:
    """Return the schemes of the legacy trainer: it divides by the deviation, without eps."""
    if not settings["algorithm.remove_constant_reward_groups"]:
        grpo = call("rllm.legacy_grpo", scope=over if over.text == "role" else None)
        return {"grpo": grpo, "reinforce": "returns()"}
    start = "returns(constant = drop)"
    spread = call("scale", "std", over=over, ddof=0, eps=0.0)
    return {"grpo": pipeline(start, _mean(over, Word("raw")), spread), "reinforce": start}


def _unified(settings: Settings, over: Word) -> dict[str, str]:
    """Return the schemes of the unified trainer: it leaves groups of one out by default."""
    if settings["algorithm.use_precomputed_advantage"]:
        settings.problem("`algorithm.use_precomputed_advantage` has no counterpart")
    alone = Word("drop" if settings["rejection_sample.min_trajs_per_group"] > 1 else "raw")
    centred = alone if alone.text == "drop" else Word("zero")
    drop = settings["rejection_sample.filter_uniform_groups"]
    start = call("returns", constant=Word("drop") if drop else None)
    batch = Word("batch_role" if over.text == "role" else "batch")  # each role for itself
    spread = call("scale", "std", over=over, ddof=0, eps=1e-6)
    whitened = call("scale", "std", over=batch, ddof=0, eps=1e-6)
    normed = [spread] if settings["algorithm.norm_adv_by_std_in_grpo"] else []
    others = call("baseline", "leave_one_out", over=over, singleton=alone)
    schemes = {
        "grpo": [start, _mean(over, alone), *normed],
        "reinforce": [start],
        "rloo": [start, others],
        "reinforce_plus_plus_baseline": [start, _mean(over, centred), whitened],
        "prpo": [start, _mean(batch, Word("zero")), whitened],
    }
    return {kind: pipeline(*steps) for kind, steps in schemes.items()}


def _mean(over: Word, singleton: Word) -> str:
    return call("baseline", "mean", over=over, singleton=singleton)


def loss_lines(settings: Settings) -> list[RecipeLine]:
    """Write the loss, and how its tokens add up if that is given."""
    if not is_unified(settings):
        return [RecipeLine("loss", "importance_sampling()", "the trainer's only one")]
    for name in ("compact_filtering.enable", "rejection_sample.enable", "mask_truncated_samples"):
        if settings[name]:
            settings.problem(f"`{name}` leaves rollouts out in a way that rlc has no words for")
    for name in ("algorithm.env_loss_coef", "algorithm.rollout_correction.tis_mode"):
        if settings[name]:
            settings.problem(f"`{name}` changes the loss in a way that rlc has no words for")
    if settings["trainer.val_only"]:
        settings.problem("`trainer.val_only` trains nothing", "use the `eval` of the recipe alone")
    name, text = settings["algorithm.loss_fn"], ""
    if name is None:
        name = "ppo" if settings["algorithm.adv_estimator"] == "grpo" else "importance_sampling"
        text = TRAINER
    name = settings.choice("loss_fn", name, write.TRAINER_LOSSES, "importance_sampling")
    loss, low = call(name), settings["algorithm.eps_clip"]
    high = settings["algorithm.eps_clip_high"]
    if name == "ppo":
        high = low if high is None else high
        loss = call("ppo", clip_low=round(1 - low, 12), clip_high=round(1 + high, 12))
        stale = settings["async_training.enable"]
        if not (stale and settings["async_training.staleness_threshold"] > 0):
            text = remarks(text, "each batch is fresh and used once, so the clip never acts")
    lines = [RecipeLine("loss", loss, text)]
    mode = settings["algorithm.loss_agg_mode"]
    if mode is not None and (mode := settings.choice("loss_agg_mode", mode, AGGREGATES, "")):
        lines.append(RecipeLine("aggregate", call(AGGREGATES[mode])))
    return lines
