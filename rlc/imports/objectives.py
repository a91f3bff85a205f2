"""What TRL and verl train by, in common: losses over ratios, divergences in them, schedules.

A loss that the service has is called by name; any other, or one with a divergence in it, becomes a
``loss`` of the recipe's own.
"""

from __future__ import annotations

from collections.abc import Callable

from rlc.imports.settings import Settings, shown
from rlc.imports.write import RecipeLine, Word, call, remarks

# What a token gains, by the loss. Beside `low` and `high` a name in braces is a setting of it.
_GAINS = {
    "ppo": "gain = min(ratio * adv, clip(ratio, low, high) * adv)",
    "ppo_dual": """clipped = min(ratio * adv, clip(ratio, low, high) * adv)
        gain = where(adv < 0, max(clipped, {most} * adv), clipped)""",
    "ppo_two_sided": "gain = min(min(ratio, {most}) * adv, clip(ratio, low, high) * adv)",
    "gspo": """s = stop(exp(mean(logp - logq))) * exp(logp - stop(logp))
        gain = min(s * adv, clip(s, low, high) * adv)""",
    "cispo": "gain = stop(clip(ratio, low, high)) * adv * logp",
    "sapo": """tau = where(adv > 0, {pos}, {neg})
        gain = 4 / tau * sigmoid(tau * (ratio - 1)) * adv""",
    "cross_entropy": "gain = logp * adv",
}
_SERVICE = {"ppo", "gspo", "cispo", "cross_entropy"}
DIVERGENCES = {
    "k1": "logp - ref",
    "k2": "(logp - ref) * (logp - ref) / 2",
    "k3": "exp(ref - logp) - (ref - logp) - 1",
    "k3_clamped": "min(exp(clip(ref - logp, -20, 20)) - clip(ref - logp, -20, 20) - 1, 10)",
    "abs": "abs(logp - ref)",
}
LOSS = "imported"
FULL_TRAINING = (
    "all weights are trained there; here an adapter is, which takes about ten times the rate"
)


def policy_loss(
    kind: str, low: float, high: float, coef: float, divergence: str, note: str, **more: float
) -> tuple[list[str], list[RecipeLine]]:
    """Return the declarations that a stage needs for its loss, and the lines of the stage. ``low``
    and ``high`` bound the ratio; ``coef`` weighs the divergence from the base model."""
    low, high = round(low, 12), round(high, 12)
    bounds = {} if kind in ("sapo", "cross_entropy") else {"low": low, "high": high}
    if kind in _SERVICE and not coef:
        named = {f"clip_{name}": value for name, value in bounds.items()}
        return [], [RecipeLine("loss", call(kind, **named), note)]
    named = {**bounds, **({"coef": coef} if coef else {})}
    head = call(f"loss {LOSS}", **named).removesuffix("()")
    token = f"token = coef * ({DIVERGENCES[divergence]}) - gain" if coef else "token = -gain"
    lines = [RecipeLine("loss", f"{LOSS}()", note)]
    if coef:
        text = "coef = 0: the divergence is a part of the loss"
        lines.append(RecipeLine("kl", "reference(policy.base, coef = 0)", text))
    return [f"{head} {{\n{_GAINS[kind].format(**more)}\n{token}\n}}\n"], lines


def clip_note(updates: int, note: str = "") -> str:
    """Return the comment on a loss whose ratio is 1 there, as each batch is used once."""
    return remarks(note, "" if updates > 1 else "each batch is used once, so the clip never acts")


def schedule(
    settings: Settings,
    kind: str,
    warmup: float,
    steps: int | None,
    floor: float = 0.0,
    rounded: Callable[[float], int] = int,
) -> Word | None:
    """Return the schedule of a rate; a ``warmup`` below 1 is a share of ``steps``."""
    names = {"constant_with_warmup": "constant", "cosine_with_min_lr": "cosine"}
    name = names.get(kind, kind)
    if name not in ("constant", "linear", "cosine"):
        settings.note(f"the schedule `{shown(kind)}` has no place here; the rate is constant")
        name = "constant"
    if 0 < warmup < 1 and steps is None:
        share = f"the rate rises in the first {warmup:g} of all steps"
        settings.note(f"{share}, whose number the data decides: write `warmup = …` in steps")
    count = rounded(round(warmup * (steps or 0), 9)) if warmup < 1 else int(warmup)
    if count > 0:
        settings.note("warm-up: the first step has a rate of 0 there, and 1 / warmup of it here")
    if name == "constant" and count <= 0:
        return None
    return Word(call(name, warmup=count if count > 0 else None, floor=floor or None))
