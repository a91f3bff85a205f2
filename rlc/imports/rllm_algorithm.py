"""The `algorithm` of rLLM: advantages by task and role, and losses."""

from __future__ import annotations

from rlc.imports.common import TRAINER_LOSSES, remarks
from rlc.imports.errors import shown
from rlc.imports.rllm_options import UNIFIED
from rlc.imports.settings import TRAINER, Settings
from rlc.imports.write import RecipeLine, Word, call, pipeline
from rlc.lang import nearest

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
    judged = "the judges of one task saw different solutions, and are compared all the same"
    text = settings.default_note("algorithm.adv_estimator")
    return RecipeLine(
        "advantage", schemes[kind], remarks(text, judged if roles and kind != "reinforce" else "")
    )


def _legacy(settings: Settings, over: Word) -> dict[str, str]:
    """The legacy trainer always divides by the deviation, without eps."""
    if not settings["algorithm.remove_constant_reward_groups"]:
        grpo = call("rllm.legacy_grpo", scope=over if over.text == "role" else None)
        return {"grpo": grpo, "reinforce": "returns()"}
    start = "returns(constant = drop)"
    spread = call("scale", "std", over=over, ddof=0, eps=0.0)
    return {
        "grpo": pipeline([start, _mean(over, Word("raw")), spread]),
        "reinforce": start,
    }


def _unified(settings: Settings, over: Word) -> dict[str, str]:
    """The unified trainer leaves groups of one out by default."""
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
    return {kind: pipeline(steps) for kind, steps in schemes.items()}


def _mean(over: Word, singleton: Word) -> str:
    return call("baseline", "mean", over=over, singleton=singleton)


def loss_lines(settings: Settings) -> list[RecipeLine]:
    """Write the loss, and how its tokens add up if that is given."""
    if not is_unified(settings):
        return [RecipeLine("loss", "importance_sampling()", "the trainer's only one")]
    _refuse_filters(settings)
    name = settings["algorithm.loss_fn"]
    text = ""
    if name is None:
        name = "ppo" if settings["algorithm.adv_estimator"] == "grpo" else "importance_sampling"
        text = TRAINER
    name = settings.choice("loss_fn", name, TRAINER_LOSSES, "importance_sampling")
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


def _refuse_filters(settings: Settings) -> None:
    for name in ("compact_filtering.enable", "rejection_sample.enable", "mask_truncated_samples"):
        if settings[name]:
            settings.problem(f"`{name}` leaves rollouts out in a way that rlc has no words for")
    for name in ("algorithm.env_loss_coef", "algorithm.rollout_correction.tis_mode"):
        if settings[name]:
            settings.problem(f"`{name}` changes the loss in a way that rlc has no words for")
    if settings["trainer.val_only"]:
        settings.problem("`trainer.val_only` trains nothing", "take the `eval` of the recipe alone")
