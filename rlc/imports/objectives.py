"""What jobs of other trainers have in common: losses over ratios, divergences in them, optimisers.

A loss that the service has is called by name; one with a divergence in it becomes a ``loss`` of the
recipe's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlc.imports.settings import Settings, shown
from rlc.imports.write import RecipeLine, Word, call, literal, remarks

# What a token gains, by the loss of the service.
_GAINS = {
    "ppo": "gain = min(ratio * adv, clip(ratio, low, high) * adv)",
    "gspo": """s = stop(exp(mean(logp - logq))) * exp(logp - stop(logp))
        gain = min(s * adv, clip(s, low, high) * adv)""",
    "cispo": "gain = stop(clip(ratio, low, high)) * adv * logp",
}
DIVERGENCES = {
    "k1": "logp - ref",
    "k2": "(logp - ref) * (logp - ref) / 2",
    "k3": "exp(ref - logp) - (ref - logp) - 1",
    "k3_clamped": "min(exp(clip(ref - logp, -20, 20)) - clip(ref - logp, -20, 20) - 1, 10)",
    "abs": "abs(logp - ref)",
}
SUMMED = "a limit for the mean over tokens; here the gradient is of their sum, so there is none"
STEPS = 100  # where the number of rows decides, which is not known here


def policy_loss(
    kind: str, bounds: Sequence[float], kl: tuple[str, float], updates: int, note: str
) -> tuple[list[str], list[RecipeLine]]:
    """Return the declarations of a loss, and the lines of its stage. ``bounds`` are those of the
    ratio; ``kl`` is a divergence from the base model, and its weight. An unknown kind is PPO's."""
    (low, high), (divergence, coef) = (max(round(bound, 12), 0.0) for bound in bounds), kl
    if kind not in _GAINS:
        note, kind = f"there `{shown(kind)}`, which lib/losses.rl may have", "ppo"
    note = remarks(note, "" if updates > 1 else "each batch is used once, so the clip never acts")
    if not coef:
        return [], [RecipeLine("loss", call(kind, clip_low=low, clip_high=high), note)]
    head = call("loss imported", low=low, high=high, coef=coef)
    token = f"token = coef * ({DIVERGENCES[divergence]}) - gain"
    reference = "reference(policy.base, coef = 0)"
    lines = [
        RecipeLine("loss", "imported()", note),
        RecipeLine("kl", reference, "coef = 0: the divergence is a part of the loss"),
    ]
    return [f"{head} {{\n{_GAINS[kind]}\n{token}\n}}\n"], lines


def sampling(longest: int, heat: float, top_p: float, top_k: int, prompt: int | None = None) -> str:
    """Write how is sampled; a ``top_k`` below 1 means all tokens."""
    named = {"top_p": top_p if top_p != 1 else None, "top_k": top_k if top_k > 0 else None}
    return call("sample", max_tokens=longest, temperature=heat, **named, max_prompt_tokens=prompt)


def optimizer(
    settings: Settings,
    rate: str,
    schedule: tuple[str, float, float],
    steps: int | None,
    **named: Any,
) -> RecipeLine:
    """Write Adam with everything that the libraries set otherwise. ``rate`` is the name of its
    option; ``schedule`` is a kind, its warm-up, which is a share of ``steps`` below 1, and the
    share of the rate that it ends with."""
    kind, warmup, floor = schedule
    kind = {"constant_with_warmup": "constant", "cosine_with_min_lr": "cosine"}.get(kind, kind)
    kind = settings.choice("schedule", kind, ("constant", "linear", "cosine"), "constant")
    if 0 < warmup < 1 and steps is None:
        share = f"the rate rises in the first {warmup:g} of all steps"
        settings.note(f"{share}, whose number the data decides: write `warmup = …` in steps")
    count = int(warmup * (steps or 0) if warmup < 1 else warmup)
    rises = Word(call(kind, warmup=count if count > 0 else None, floor=floor or None))
    named["schedule"] = rises if kind != "constant" or count > 0 else None
    adam = call("adam", literal(settings[rate]), **named)
    return RecipeLine("optimizer", adam, settings.default_note(rate))
