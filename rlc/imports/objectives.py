"""What TRL and verl train by, in common: losses over ratios, divergences in them, optimisers.

A loss that the service has is called by name; any other, or one with a divergence in it, becomes a
``loss`` of the recipe's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlc.imports.settings import Settings, shown
from rlc.imports.write import RecipeLine, Word, call, literal, remarks

# What a token gains, by the loss. A name in braces is a setting of it beside `low` and `high`.
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
_UNBOUNDED = ("sapo", "cross_entropy")
_OURS = ("ppo_dual", "ppo_two_sided", "sapo")
DIVERGENCES = {
    "k1": "logp - ref",
    "k2": "(logp - ref) * (logp - ref) / 2",
    "k3": "exp(ref - logp) - (ref - logp) - 1",
    "k3_clamped": "min(exp(clip(ref - logp, -20, 20)) - clip(ref - logp, -20, 20) - 1, 10)",
    "abs": "abs(logp - ref)",
}
CHANGES = "changes what is learnt, and has no words here"
FULL = "all weights are trained there; here an adapter is, which takes about ten times the rate"
SUMMED = "a limit for the mean over tokens; here the gradient is of their sum, so there is none"
STEPS = 100  # where the number of rows decides, which is not known here


def policy_loss(
    kind: str,
    bounds: Sequence[float],
    kl: tuple[str, float],
    updates: int,
    note: str,
    **more: float,
) -> tuple[list[str], list[RecipeLine]]:
    """Return the declarations of a loss, and the lines of its stage. ``bounds`` are those of the
    ratio; ``kl`` is a divergence from the base model, and its weight."""
    (low, high), (divergence, coef) = (max(round(bound, 12), 0.0) for bound in bounds), kl
    note = remarks(note, "" if updates > 1 else "each batch is used once, so the clip never acts")
    limits = {} if kind in _UNBOUNDED else {"low": low, "high": high}
    if kind not in _OURS and not coef:
        named = {f"clip_{name}": value for name, value in limits.items()}
        return [], [RecipeLine("loss", call(kind, **named), note)]
    head = call("loss imported", **limits, coef=coef or None).removesuffix("()")
    token = f"token = coef * ({DIVERGENCES[divergence]}) - gain" if coef else "token = -gain"
    text = "coef = 0: the divergence is a part of the loss"
    line = [RecipeLine("kl", "reference(policy.base, coef = 0)", text)] if coef else []
    declared = f"{head} {{\n{_GAINS[kind].format(**more)}\n{token}\n}}\n"
    use = "imported()" if "(" in head else "imported"
    return [declared], [RecipeLine("loss", use, note), *line]


def sampling(longest: int, heat: float, top_p: float, top_k: int, prompt: int | None = None) -> str:
    """Write how is sampled; a ``top_k`` below 1 means all tokens."""
    named = {"top_p": top_p if top_p != 1 else None, "top_k": top_k if top_k > 0 else None}
    named |= {"max_prompt_tokens": prompt}
    return call("sample", max_tokens=longest, temperature=heat, **named)


def optimizer(
    settings: Settings,
    rate: float,
    note: str,
    schedule: tuple[str, float, float],
    steps: int | None,
    **named: float | None,
) -> RecipeLine:
    """Write Adam with everything that the libraries set otherwise. ``schedule`` is its kind, its
    warm-up, which is a share of ``steps`` below 1, and the share of the rate that it ends with."""
    kind, warmup, floor = schedule
    name = {"constant_with_warmup": "constant", "cosine_with_min_lr": "cosine"}.get(kind, kind)
    if name not in ("constant", "linear", "cosine"):
        settings.note(f"the schedule `{shown(kind)}` has no place here; the rate is constant")
        name = "constant"
    if 0 < warmup < 1 and steps is None:
        share = f"the rate rises in the first {warmup:g} of all steps"
        settings.note(f"{share}, whose number the data decides: write `warmup = …` in steps")
    count = int(warmup * (steps or 0) if warmup < 1 else warmup)
    if count > 0:
        settings.note("warm-up: the first step has a rate of 0 there, and 1 / warmup of it here")
    rises = Word(call(name, warmup=count if count > 0 else None, floor=floor or None))
    shaped = rises if name != "constant" or count > 0 else None
    return RecipeLine("optimizer", call("adam", literal(rate), **named, schedule=shaped), note)
