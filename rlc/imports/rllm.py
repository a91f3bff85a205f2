"""rLLM's trainers on Tinker: Hydra options of the legacy and of the unified configuration."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from attrs import frozen

from rlc.imports.pieces import (
    MAIN,
    POLICY,
    TRAINER,
    base_line,
    current_model,
    default_note,
    header,
    remarks,
    save_line,
    weights_line,
)
from rlc.imports.rllm_credit import advantage_line, is_unified, loss_lines
from rlc.imports.rllm_options import LEGACY, UNIFIED
from rlc.imports.settings import InputError, Settings
from rlc.imports.shown import shown
from rlc.imports.write import (
    Line,
    Word,
    block,
    call,
    declaration,
    literal,
    number,
    pipeline,
    recipe_text,
)
from rlc.lang.source import Source
from rlc.lang.syntax import parse

PREFIX = "rllm."
# Rows of Jiayi-Pan/Countdown-Tasks-3to4, less those of the test split.
COUNTDOWN_TRAIN, COUNTDOWN_TEST = 489_340, 1_024
NO_LIMIT = 1e6  # seconds: the unified trainer's default


@frozen
class Tasks:
    """What a job is trained and tested on. ``roles`` tells the two players of a solver-judge
    workflow."""

    train: str
    test: str | None
    test_tasks: int
    train_tasks: int | None
    roles: bool


def read_settings(pairs: Iterable[tuple[str, Any]], keep_going: bool) -> Settings:
    """The options, in the generation that knows them."""
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
    """The recipe of an rLLM job.

    What it plays stands in its Python code: ``script`` names that, and ``env`` is the user's own
    expression for it.
    """
    tasks = _tasks(settings, script, env)
    parts = [
        block("model", POLICY, _model(settings)),
        declaration("env", "tasks", _timed(settings, tasks.train), _tasks_comment(tasks)),
        block("train", MAIN, _training(settings, tasks)),
    ]
    parts += _evaluation(settings, tasks)
    generation = "unified" if is_unified(settings) else "legacy"
    return recipe_text(header(f"An rLLM job on Tinker ({generation} options)", settings), parts)


def _tasks(settings: Settings, script: str, env: str | None) -> Tasks:
    files = (settings["data.train_files"], settings["data.val_files"])
    if env is not None:
        if parse(Source("--env", f"env tasks = {env}"))[1]:
            raise InputError(f"--env {shown(env)} is no environment", 'write `problems("gsm8k")`')
        settings.note("--env: the evaluation plays the same tasks, unless you change `test_tasks`")
        return Tasks(env, env, 64, None, "solver_judge" in env)
    if "solver_judge" in script or "countdown" in script:
        judged = ["solver_judge(solvers = 2)"] if "solver_judge" in script else []
        return Tasks(
            pipeline([_countdown("train", COUNTDOWN_TRAIN), *judged]),
            pipeline([_countdown("test", None), *judged]),
            COUNTDOWN_TEST,
            COUNTDOWN_TRAIN,
            bool(judged),
        )
    if files[0] is not None:
        test = call("problems", literal(files[1])) if files[1] is not None else None
        return Tasks(call("problems", literal(files[0])), test, 64, None, False)
    raise InputError(
        "what this job plays stands in its Python code, which is not read",
        "say it with --env, for example `--env 'problems(\"gsm8k\")'`",
    )


def _countdown(split: str, samples: int | None) -> str:
    return call(
        "problems",
        literal("countdown"),
        split=split,
        grader=Word("countdown"),
        samples=samples,
        format_coef=0.0,
    )


def _timed(settings: Settings, env: str) -> str:
    """The environment, with the workflow's limit on one rollout where there is one."""
    if not is_unified(settings):
        return env
    names = ("workflow.timeout", "workflow.workflow_args.timeout")
    given = [value for name in names if (value := settings[name]) is not None]
    if not given or given[0] >= NO_LIMIT:
        return env
    return pipeline([env, call("rollouts", timeout=Word(f"{number(given[0])}s"))])


def _tasks_comment(tasks: Tasks) -> list[str]:
    if not tasks.roles:
        return []
    return ["the tasks and their two players stand in the script's Python code, two solvers in it"]


def _model(settings: Settings) -> list[Line]:
    base = settings["model.name"]
    lines = [
        base_line(base, _default(settings, "model.name")),
        Line(
            "lora_rank", literal(settings["model.lora_rank"]), _default(settings, "model.lora_rank")
        ),
    ]
    layers = ("train_mlp", "train_attn", "train_unembed")
    lines += [Line(layer, "false") for layer in layers if not settings[f"model.{layer}"]]
    resume = None if is_unified(settings) else settings["trainer.resume_from_tinker_id"]
    if resume is not None:
        text = "the trainer restores weights only, as rlc does here"
        lines.append(weights_line(base, resume, text))
    return lines + _renderer(settings, base)


def _renderer(settings: Settings, base: str) -> list[Line]:
    name = settings["rollout_engine.renderer_name"]
    if name is not None:
        return [Line("renderer", literal(name))]
    quiet = settings["rollout_engine.disable_thinking"]
    quiet |= is_unified(settings) and settings["disable_thinking"]
    model = current_model(base)
    found = [name for name in (model.renderers if model else ()) if "disable_thinking" in name]
    if not quiet:
        return []
    if not found:
        settings.note("disable_thinking: the model has no renderer that does so")
        return []
    return [Line("renderer", literal(found[0]), "disable_thinking")]


def _training(settings: Settings, tasks: Tasks) -> list[Line]:
    size, named = _group_size(settings)
    count = settings["data.train_batch_size"]
    steps, length = _length(settings, tasks, count)
    return [
        Line("model", POLICY),
        Line("env", "tasks"),
        Line(
            "batch",
            call("groups", literal(count), of=size),
            _default(settings, "data.train_batch_size", named),
        ),
        _sampling(settings),
        advantage_line(settings, tasks.roles),
        *loss_lines(settings),
        *_penalty(settings),
        _optimizer(settings, steps),
        *_overlap(settings),
        length,
        *save_line(
            settings["trainer.save_freq"],
            remarks(_default(settings, "trainer.save_freq"), "rlc keeps the newest 3"),
        ),
        _failures(settings),
        *_track(settings),
    ]


def _group_size(settings: Settings) -> tuple[int, str]:
    """The rollouts of a task, and the option that says so."""
    if is_unified(settings) and settings["rollout.n"] is not None:
        return settings["rollout.n"], "rollout.n"
    return settings["training.group_size"], "training.group_size"


def _sampling(settings: Settings) -> Line:
    group = "rollout.train" if is_unified(settings) else "sampling"
    temperature, top_p = settings[f"{group}.temperature"], settings[f"{group}.top_p"]
    longest = settings["data.max_response_length"]
    if is_unified(settings):
        longest = settings["rollout.train.max_tokens"] or longest
    prompt, total = settings["data.max_prompt_length"], settings["training.max_length"]
    value = call(
        "sample",
        max_tokens=longest,
        temperature=temperature,
        top_p=top_p if top_p != 1 else None,
        max_prompt_tokens=prompt,
        max_episode_tokens=total if prompt + longest > total else None,
    )
    if settings.is_given("training.max_length") and prompt + longest <= total:
        settings.note(
            f"training.max_length = {total}: never reached by {prompt} + {longest} tokens"
        )
    tempered = ""
    if temperature != 1 or top_p != 1:
        tempered = "not 1, as in the original: sampled from another distribution than is trained"
        if not is_unified(settings):
            tempered += ", and the trainer itself stops at an assertion"
    names = ("data.max_response_length", f"{group}.temperature", "data.max_prompt_length")
    return Line("sampling", value, remarks(_default(settings, *names), tempered))


def _penalty(settings: Settings) -> list[Line]:
    coef = settings["algorithm.kl_beta"] if is_unified(settings) else 0.0
    return [Line("kl", call("reference", "policy.base", coef=coef))] if coef else []


def _optimizer(settings: Settings, steps: int | None) -> Line:
    value = call(
        "adam",
        literal(settings["training.learning_rate"]),
        beta1=settings["training.beta1"],
        beta2=settings["training.beta2"],
        eps=settings["training.eps"],
        schedule=_schedule(settings, steps),
    )
    return Line("optimizer", value, _default(settings, "training.learning_rate"))


def _schedule(settings: Settings, steps: int | None) -> Word | None:
    """What `training` says, else what `algorithm` says; a warm-up ratio is of all steps."""
    if not is_unified(settings):
        return None
    kind = settings["training.lr_schedule"] or settings["algorithm.lr_schedule"]
    if kind not in ("constant", "linear", "cosine"):
        settings.problem(
            f"there is no lr_schedule `{shown(kind)}`", "known: constant, linear, cosine"
        )
        kind = "constant"
    ratio = settings["training.warmup_steps_ratio"]
    ratio = settings["algorithm.warmup_steps_ratio"] if ratio is None else ratio
    warmup = settings["algorithm.warmup_steps"]
    if warmup <= 0:
        warmup = round(ratio * steps) if steps else 0
        if ratio and not steps:
            settings.problem("`warmup_steps_ratio` is of a number of steps that is not known")
    if kind == "constant" and not warmup:
        return None
    return Word(call(kind, warmup=warmup or None))


def _overlap(settings: Settings) -> list[Line]:
    if not is_unified(settings) or not settings["async_training.enable"]:
        return []
    staleness = math.ceil(settings["async_training.staleness_threshold"])
    if staleness <= 0:
        return []
    return [Line("overlap", call("asynchronous", max_staleness=staleness))]


def _length(settings: Settings, tasks: Tasks, count: int) -> tuple[int | None, Line]:
    """The number of steps where it is known, and the line that says how long."""
    batches = settings["trainer.total_batches"] if is_unified(settings) else -1
    if batches > 0:
        return batches, Line("steps", literal(batches))
    epochs = settings["trainer.total_epochs"]
    note = _default(settings, "trainer.total_epochs")
    if tasks.train_tasks is not None:
        steps = math.ceil(epochs * tasks.train_tasks / count) if count > 0 else None
        return steps, Line("epochs", literal(epochs), note)
    text = f"the original takes {epochs} epochs of tasks that are not counted here; choose how long"
    return None, Line("steps", literal(100), remarks(note, text))


def _failures(settings: Settings) -> Line:
    """The limit counts attempts, so one less are retries."""
    attempts = settings["workflow.retry_limit"]
    then = "stop" if settings["workflow.raise_on_error"] else "drop"
    value = f"retry({literal(attempts - 1)}) then {then}" if attempts > 1 else then
    text = f"{attempts} attempts in all" if attempts > 1 else ""
    return Line("on_error", value, remarks(text, _default(settings, "workflow.retry_limit")))


def _track(settings: Settings) -> list[Line]:
    loggers = settings["trainer.logger"]
    trackers = []
    if "wandb" in loggers:
        project, run = settings["trainer.project_name"], settings["trainer.experiment_name"]
        trackers.append(call("wandb", literal(project), run=run))
    else:
        for name in ("trainer.project_name", "trainer.experiment_name"):
            if settings.is_given(name):
                settings.note(
                    f"{name} = {shown(settings[name])}: names a W&B run, and there is none"
                )
    if "tensorboard" in loggers:
        trackers.append("tensorboard()")
    for name in loggers:
        if name not in ("console", "wandb", "tensorboard"):
            settings.problem(f"there is no logger `{shown(name)}` in rlc")
    return [Line("track", f"[{', '.join(trackers)}]")] if trackers else []


def _evaluation(settings: Settings, tasks: Tasks) -> list[str]:
    every, first = settings["trainer.test_freq"], settings["trainer.val_before_train"]
    samples, named = _val_group_size(settings)
    if tasks.test is None or (every <= 0 and not first):
        return []
    metrics = ["pass_at(1)", f"any_at({samples})"] if samples > 1 else ["pass_at(1)"]
    lines = [
        Line("model", MAIN),
        Line("env", "test_tasks"),
        Line("tasks", literal(tasks.test_tasks)),
        Line("samples", literal(samples), _default(settings, named)),
        *_val_sampling(settings),
        Line("metrics", f"[{', '.join(metrics)}]"),
    ]
    if every > 0:
        lines.append(Line("every", literal(every), _default(settings, "trainer.test_freq")))
    if first:
        lines.append(Line("first", "true", _default(settings, "trainer.val_before_train")))
    return [declaration("env", "test_tasks", tasks.test), block("eval", "heldout", lines)]


def _val_group_size(settings: Settings) -> tuple[int, str]:
    if not is_unified(settings):
        return settings["training.val_group_size"], "training.val_group_size"
    if settings["rollout.n_val"] is not None:
        return settings["rollout.n_val"], "rollout.n_val"
    return settings["validation.group_size"], "validation.group_size"


def _val_sampling(settings: Settings) -> list[Line]:
    """Where validation samples in another way than training."""
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
    return [Line("sampling", value)]


def _default(settings: Settings, *names: str) -> str:
    return default_note(settings, *names, whose=TRAINER)
