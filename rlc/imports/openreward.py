"""OpenReward's trainer for Tinker (``main.py`` with a ``tinker-config.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from rlc.catalog import find_builtin
from rlc.imports import write
from rlc.imports.settings import TRAINER, InputError, Option, Settings, options, shown
from rlc.imports.write import RecipeLine, Word, call, literal, pipeline, remarks

OPTIONS = options("openreward")
ENVIRONMENT = options("openreward-environment")
SPLIT = options("openreward-split")

STEPS = 100  # if the configuration never ends
ADVANTAGES = ("centered_normalized", "centered", "direct")


@frozen
class SplitEnv:
    """One split of one environment."""

    name: str
    text: str
    samples: int | None
    top_p: float


def recipe(settings: Settings) -> str:
    """Return the recipe of a configuration."""
    envs = _environments(settings)
    parts = [
        write.model_block(settings, "model_name", "lora_rank", _model(settings)),
        *(env.text for env in envs),
        write.block("train", write.MAIN, _training(settings, envs)),
    ]
    return write.recipe_of("An OpenReward configuration for Tinker", settings, parts)


def _model(settings: Settings) -> list[RecipeLine]:
    base, lines = settings["model_name"], list[RecipeLine]()
    if (resume := settings["resume_from"]) is not None:
        remark = "the trainer starts its steps anew"
        lines.append(write.weights_line(base, resume, remark, with_optimizer=True))
    if not settings["thinking"] and (quiet := write.quiet_renderer(base)):
        lines.append(RecipeLine("renderer", quiet, "thinking: false"))
    return lines


def _environments(settings: Settings) -> list[SplitEnv]:
    envs: list[SplitEnv] = []
    given = settings["environments"]
    for env_id, values in given.items():
        where = f"environments.{shown(env_id)}."
        own = _inner(ENVIRONMENT, values, where, settings)
        splits = own["splits"]
        for split, details in splits.items():
            chosen = _inner(SPLIT, details or {}, f"{where}splits.{shown(split)}.", settings)
            label = f"{env_id}_{split}" if len(splits) > 1 else env_id
            name = write.env_name(label, [env.name for env in envs])
            envs.append(_environment(name, env_id, split, own, chosen, settings))
            chosen.finish()
        if not splits:
            raise InputError(f"`{where}splits` names no split", "for example `train: {}`")
        own.finish()
    if not envs:
        raise InputError("`environments` names no environment", "put one into the configuration")
    return envs


def _inner(options: Mapping[str, Option], values: Any, where: str, settings: Settings) -> Settings:
    if not isinstance(values, dict):
        raise InputError(f"`{where[:-1]}` takes a mapping, not {shown(values)}", "correct it")
    pairs = [(str(name), value) for name, value in values.items()]
    return Settings(options, pairs, settings.keep_going, where, settings.notes)


def _environment(
    name: str, env_id: str, split: str, own: Settings, chosen: Settings, settings: Settings
) -> SplitEnv:
    source = call(
        "openreward",
        literal(env_id),
        split=split,
        shuffle=chosen["shuffle"],
        samples=chosen["num_samples"],
        secrets=_secrets(own, settings) or None,
    )
    temperature, limit = own["temperature"], settings["rollout_timeout"]
    rollouts = call(
        "rollouts",
        group_size=own["num_rollouts"],
        temperature=temperature,
        max_failures=own["max_failing_rollouts"],
        timeout=Word(f"{literal(int(limit) if limit == int(limit) else limit)}s"),
    )
    reductions = ("sum", "mean", "max", "min")
    reward = call(
        "reward",
        own.choice("reward_reduction", own["reward_reduction"], reductions, "sum"),
        nonterminal=own["nonterminal_reward"],
        low=own["min_reward"],
        high=own["max_reward"],
    )
    names = ("max_failing_rollouts", "temperature", "reward_reduction")
    missing = [name for name in names if not own.is_given(name)]
    missing += ["rollout_timeout"] * (not settings.is_given("rollout_timeout"))
    above = [f"{', '.join(missing)}: {TRAINER}"] if missing else []
    if temperature != 1:
        other = "these rollouts come from another distribution than is trained"
        above.append(f"temperature {temperature:g}, as in the original: {other}")
    text = write.declaration("env", name, pipeline(source, rollouts, reward), above)
    return SplitEnv(name, text, chosen["num_samples"], own["top_p"] or 1.0)


def _secrets(own: Settings, settings: Settings) -> list[str]:
    """Return names of variables of the environment; a secret itself is never copied."""
    merged = {**(settings["secrets"] or {}), **(own["secrets"] or {})}
    for name, value in merged.items():
        if value:
            settings.note(f"secrets.{shown(name)}: not copied; export {shown(name).upper()}")
    return [str(name).upper() for name, value in merged.items() if value != ""]


def _training(settings: Settings, envs: list[SplitEnv]) -> list[RecipeLine]:
    sampling, advantage = _sampling(settings, envs), "advantage_calculation"
    kind = settings.choice(advantage, settings[advantage], ADVANTAGES, "centered_normalized")
    left_out = remarks(settings.default_note(advantage), "groups of equals are left out")
    rate, decay = literal(settings["learning_rate"]), settings["weight_decay"]
    adam = call("adam", rate, beta1=0.9, beta2=0.95, eps=1e-12, weight_decay=decay)
    betas = "betas and eps: the SDK's defaults"
    kept = remarks(settings.default_note("save_every"), "the trainer keeps all, rlc the newest 3")
    retries = settings["max_rollout_retries"]
    on_error = f"retry({literal(retries)}) then drop" if retries > 0 else "drop"
    project, run = settings["wandb_project_name"], settings["wandb_run_name"]
    upload = call("openreward_rollouts", literal(settings["openreward_run_name"]))
    return [
        RecipeLine("model", write.POLICY),
        _mixture(envs),
        RecipeLine("batch", call("groups", literal(settings["batch_size"]))),
        sampling,
        RecipeLine("advantage", call(f"openreward.{kind}"), left_out),
        _loss(settings),
        RecipeLine("optimizer", adam, remarks(settings.default_note("learning_rate"), betas)),
        _length(settings, envs),
        *write.save_line(settings["save_every"], kept),
        RecipeLine("on_error", on_error, settings.default_note("max_rollout_retries")),
        RecipeLine("track", f"[{call('wandb', literal(project), run=run)}, {upload}]"),
    ]


def _mixture(envs: list[SplitEnv]) -> RecipeLine:
    """Write the mixture. The trainer samples from the union of all tasks, so that the weight of an
    environment is its number of tasks."""
    if len(envs) == 1:
        return RecipeLine("env", envs[0].name)
    if all(env.samples for env in envs):
        weighted = " + ".join(f"{literal(env.samples)} * {env.name}" for env in envs)
        return RecipeLine("env", weighted, "by their numbers of tasks, as in the trainer")
    text = (
        "the trainer samples from the union of all tasks, so the environment with more of them "
        "comes more often; here they come equally often, until you weigh them (3 * a + 1 * b)"
    )
    return RecipeLine("env", " + ".join(env.name for env in envs), text)


def _sampling(settings: Settings, envs: list[SplitEnv]) -> RecipeLine:
    top_p = {env.top_p for env in envs}
    if len(top_p) > 1:
        settings.problem("the environments differ in `top_p`, which is one for a stage in rlc")
    value = call(
        "sample",
        max_tokens=settings["max_response_tokens"],
        top_p=min(top_p) if min(top_p) != 1 else None,
        max_episode_tokens=settings["max_total_tokens"],
    )
    note = settings.default_note("max_response_tokens", "max_total_tokens")
    return RecipeLine("sampling", value, note)


def _loss(settings: Settings) -> RecipeLine:
    name = settings.choice(
        "loss_fn", settings["loss_fn"], write.TRAINER_LOSSES, "importance_sampling"
    )
    given = settings["loss_fn_config"] or {}
    loss = find_builtin("loss", name)
    assert loss is not None
    # If the trainer passes no configuration, the service takes its defaults.
    config = {param.name: param.default for param in loss.params}
    own_names = {key: own for own, key in loss.traits.config.items()}
    for key, value in given.items():
        if key in own_names:
            typed = Settings({key: Option(key, "float")}, [(key, value)], where="loss_fn_config.")
            config[own_names[key]] = float(typed[key])
        else:
            settings.problem(f"`{name}` takes no `{shown(key)}` in `loss_fn_config`")
    text = settings.default_note("loss_fn")
    if config and not given:
        what = "clip range" if loss.traits.clip else ", ".join(config)
        text = remarks(text, f"{what}: the service's default")
    if loss.traits.clip == "gradient":
        text = remarks(text, "each batch is fresh and used once, so the clip never acts")
    return RecipeLine("loss", call(name, **config), text)


def _length(settings: Settings, envs: list[SplitEnv]) -> RecipeLine:
    epochs = settings["num_epochs"]
    if epochs is None:
        text = "the original never ends (num_epochs: null); a recipe does, so choose how long"
        return RecipeLine("steps", literal(STEPS), text)
    if len(envs) == 1 and envs[0].samples:
        return RecipeLine("epochs", literal(epochs))
    unknown = "only the server knows how many tasks those have, so choose how long"
    return RecipeLine("steps", literal(STEPS), f"the original takes {epochs} epochs; {unknown}")
