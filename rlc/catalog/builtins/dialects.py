"""Advantages as other libraries compute them: the same formula, the same edge cases.

Each names the version that it equals, also with several turns and roles. Two things are
deliberately not copied. A group of equal returns gives exact zeros here, where floating-point noise
divided by itself gives some libraries advantages of up to 1; and a reward that is not a number is
refused. What else differs is said where it does.
"""

from __future__ import annotations

from collections.abc import Iterable

from rlc.algo import AdvantageScheme, AdvantageStep, Returns
from rlc.catalog.builtins.advantages import (
    EPISODE,
    IN_ROLE,
    SCOPE,
    best_margin,
    by_mean,
    eps,
    gamma,
    leave_one_out,
    length_weighted,
    mean,
    nonzero_share,
    one_by_one,
    preset,
    scoped,
    std,
    when,
    whitened,
)
from rlc.catalog.records import Args, Builtin, Param, word

_NORM = Param("norm", "bool", "divide by the standard deviation", True)
_TURN = Returns("turn", 1.0)
_LEVELS = ("group", "batch", "none")
_SOME_LEVEL = tuple(level for level in _LEVELS if level != "none")


def _trl_grpo(args: Args) -> Iterable[AdvantageStep]:
    level = args.scale_rewards.data
    yield mean(args.scope)
    yield from when(level == "group", std(args.scope, 1e-4))
    yield from when(level == "batch", std("batch", 1e-4, of="returns"))


def _nemo_grpo(args: Args) -> Iterable[AdvantageStep]:
    """Yield a baseline and a deviation of the same set: the group, or the others in it."""
    others = args.leave_one_out.data
    yield leave_one_out(args.scope) if others else mean(args.scope)
    kind = "std_of_others" if others else "std"
    yield from when(args.normalize.data, std(args.scope, 1e-6, kind=kind, of="returns"))


def _nemo_reinforce_pp(args: Args) -> Iterable[AdvantageStep]:
    yield from when(args.minus_baseline.data, mean(args.scope))
    yield from whitened(0, "clamp")


def _areal(args: Args) -> Iterable[AdvantageStep]:
    """Yield a mean, then the root mean square of what is left, each over its own level."""
    out, ddof = args.leave_one_out.data, int(args.unbiased.data)
    centred = leave_one_out(args.mean_level, "raw") if out else mean(args.mean_level)
    yield from when(args.mean_level.data != "none", centred)
    yield from when(args.std_level.data != "none", std(args.std_level, args.eps, ddof, "rms"))


def _center(name: str, doc: str, drop_constant: bool) -> Builtin:
    """Subtract the mean; if groups of equals are left out, so is a group of one."""

    def build(args: Args) -> AdvantageScheme:
        drop = args.drop_constant.data
        steps = (mean(args.scope, "drop" if drop else "zero"),)
        return AdvantageScheme(name, EPISODE, steps, "drop" if drop else "keep")

    leave_out = Param("drop_constant", "bool", "leave groups of equal returns out", drop_constant)
    return Builtin(name, "advantage", doc, build, (leave_out, SCOPE))


DIALECTS = (
    scoped(
        "verl.grpo",
        "GRPO of verl 0.9.1; a group of one keeps its return",
        lambda args: [mean(args.scope, "raw"), *when(args.norm.data, std(args.scope, 1e-6))],
        _NORM,
    ),
    scoped(
        "verl.rloo",
        "RLOO of verl 0.9.1; a group of one keeps its return",
        lambda args: [leave_one_out(args.scope, "raw")],
    ),
    scoped(
        "verl.rloo_vectorized",
        "RLOO of verl 0.9.1, vectorised; a group of one gets 0",
        lambda args: [leave_one_out(args.scope)],
    ),
    scoped(
        "verl.opo",
        "OPO of verl 0.9.1; a group of one keeps its return",
        lambda args: [length_weighted(args.scope, "raw")],
    ),
    scoped(
        "verl.reinforce_pp_baseline",
        "REINFORCE++-baseline of verl 0.9.1; a group of one keeps its return before whitening",
        lambda args: [mean(args.scope, "raw"), *whitened(1, "inside")],
    ),
    scoped(
        "verl.gdpo",
        "GDPO of verl 0.9.1: each reward within its group, the sum whitened over all tokens",
        lambda args: one_by_one(
            mean(args.scope, "raw"),
            *when(args.norm.data, std(args.scope, 1e-6)),
            summed=whitened(1, "inside"),
        ),
        _NORM,
    ),
    preset(
        "verl.reinforce_pp",
        "REINFORCE++ of verl 0.9.1 at its gamma of 1: every turn gets the rewards from it on",
        lambda _: whitened(1, "inside"),
        returns=_TURN,
    ),
    scoped(
        "verl.grpo_passk",
        "pass@k training of verl 0.9.1; a group of one is an error",
        lambda args: [
            *best_margin(args.scope, "error"),
            *when(args.norm.data, std(args.scope, 1e-6, of="returns")),
        ],
        _NORM,
    ),
    scoped(
        "verl.gpg",
        "GPG of verl 0.9.1 at its f_norm of 1; a group of one keeps its return",
        lambda args: [mean(args.scope, "raw"), nonzero_share("batch")],
    ),
    scoped(
        "trl.grpo",
        "GRPO of TRL 1.16; scaled over the batch it divides by the spread of the raw returns",
        _trl_grpo,
        word("scale_rewards", "over what the spread is taken", _LEVELS, "group"),
    ),
    scoped(
        "trl.rloo",
        "RLOO of TRL 1.16; a group of one is left out",
        lambda args: [
            leave_one_out(args.scope, "drop"),
            *when(args.normalize.data, mean("batch"), std("batch", 1e-4)),
        ],
        Param("normalize", "bool", "normalise the advantages over the batch", False),
    ),
    scoped(
        "trl.gdpo",
        "normalize_then_sum of TRL 1.16: each reward within its group, then the sum over the batch",
        lambda args: one_by_one(
            mean(args.scope), std(args.scope, 1e-4), summed=(mean("batch"), std("batch", 1e-4))
        ),
    ),
    scoped(
        "openrlhf.grpo",
        "group_norm of OpenRLHF 0.11.2; a group of one is an error",
        lambda args: [mean(args.scope, "error"), std(args.scope, 1e-9)],
    ),
    scoped(
        "openrlhf.reinforce_pp_baseline",
        "REINFORCE++-baseline of OpenRLHF 0.11.2; a group of one is an error",
        lambda args: [mean(args.scope, "error"), *whitened(0, "clamp")],
    ),
    preset(
        "openrlhf.reinforce_pp",
        "REINFORCE++ of OpenRLHF 0.11.2 at its gamma of 1: every turn gets the whole return",
        lambda _: whitened(0, "clamp"),
    ),
    preset(
        "openrlhf.flash_reinforce",
        "flash_reinforce of OpenRLHF 0.11.2: return less the batch's mean",
        lambda _: [mean("batch")],
    ),
    scoped(
        "rllm.grpo",
        "GRPO of rLLM 0.3, with the biased deviation; a group of one keeps its return",
        lambda args: [
            mean(args.scope, "raw"),
            *when(args.norm.data, std(args.scope, 1e-6, ddof=0)),
        ],
        _NORM,
        scope=IN_ROLE,
    ),
    scoped(
        "rllm.legacy_grpo",
        "GRPO of rLLM 0.2, without eps; a group of one keeps its return",
        lambda args: [mean(args.scope, "raw"), std(args.scope, 0.0, 0)],
        scope=IN_ROLE,
    ),
    scoped(
        "rllm.rloo",
        "RLOO of rLLM 0.3; a group of one keeps its return",
        lambda args: [leave_one_out(args.scope, "raw")],
        scope=IN_ROLE,
    ),
    scoped(
        "rllm.reinforce_pp_baseline",
        "REINFORCE++-baseline of rLLM 0.3: over the spread of the role's rollouts, not of tokens",
        lambda args: [mean(args.scope), std("batch_role", 1e-6, ddof=0)],
        scope=IN_ROLE,
    ),
    preset(
        "rllm.prpo",
        "PRPO of rLLM 0.3: return less the mean of its role in the batch, over that role's spread",
        lambda _: [mean("batch_role"), std("batch_role", 1e-6, ddof=0)],
    ),
    scoped(
        "skyrl.grpo",
        "GRPO of SkyRL 0.3.0, as verl's; a group of one keeps its return",
        lambda args: [mean(args.scope, "raw"), *when(args.norm.data, std(args.scope, 1e-6))],
        _NORM,
    ),
    scoped(
        "skyrl.rloo",
        "RLOO of SkyRL 0.3.0; a group of one gets 0",
        lambda args: [leave_one_out(args.scope)],
    ),
    scoped(
        "skyrl.maxrl",
        "MaxRL of SkyRL 0.3.0; a group of one keeps its return, "
        "and a mean that is not positive gives 0 where SkyRL turns signs around",
        lambda args: [mean(args.scope, "raw"), by_mean(args.scope, 1e-6)],
    ),
    scoped(
        "nemo.grpo",
        "GRPO of NeMo-RL 0.4 to 0.7; a group of one gets 0",
        _nemo_grpo,
        Param("leave_one_out", "bool", "take mean and deviation of the others only", True),
        Param("normalize", "bool", "divide by the standard deviation", True),
    ),
    scoped(
        "nemo.reinforce_pp",
        "REINFORCE++ of NeMo-RL 0.7: return less the group's mean, whitened over all tokens",
        _nemo_reinforce_pp,
        Param("minus_baseline", "bool", "subtract the group's mean", True),
    ),
    _center(
        "prime.center",
        "the default of prime-rl 0.5: return less the group's mean, groups of equals left out",
        drop_constant=True,
    ),
    scoped(
        "prime.maxrl",
        "MaxRL of prime-rl 0.5; 0 where the mean is not positive, and for a group of one",
        lambda args: [mean(args.scope), by_mean(args.scope, 0.0)],
    ),
    scoped(
        "openreward.centered_normalized",
        "the default of OpenReward's trainer (Nov 2026): groups with a deviation below 1e-8 get 0",
        lambda args: [mean(args.scope), std(args.scope, 0.0, tolerance=1e-8)],
        constant="drop",
    ),
    scoped(
        "openreward.centered",
        "OpenReward's trainer (Nov 2026) without the deviation; groups of equals are left out",
        lambda args: [mean(args.scope)],
        constant="drop",
    ),
    preset(
        "openreward.direct",
        "OpenReward's trainer (Nov 2026) without a baseline; groups of equals are left out",
        lambda _: [],
        constant="drop",
    ),
    _center(
        "cookbook.center",
        "the one scheme of tinker-cookbook 0.5.8; a batch of equals only is skipped, "
        "where the cookbook keeps a group of it",
        drop_constant=False,
    ),
    preset(
        "gem.rebn",
        "return batch normalisation of GEM 0.1.0; a single turn gets 0 where GEM gives NaN",
        lambda _: [mean("batch"), std("batch", 1e-9)],
        gamma(0.9),
    ),
    preset(
        "oat.rebn",
        "return batch normalisation of GEM 0.1.0's trainer for OAT, with the biased deviation",
        lambda _: [mean("batch"), std("batch", 1e-9, 0)],
        gamma(1.0),
    ),
    preset(
        "areal.normalize",
        "the reward normalisation of AReaL 1.0.4: a mean and a deviation, each over its own level",
        _areal,
        word("mean_level", "over what the mean is taken", _LEVELS, "batch"),
        word("std_level", "over what the deviation is taken", _LEVELS, "batch"),
        Param(
            "leave_one_out",
            "bool",
            "the mean is that of the others",
            False,
            only_if=("mean_level", _SOME_LEVEL),
        ),
        Param(
            "unbiased",
            "bool",
            "divide squares by n - 1, not n",
            True,
            only_if=("std_level", _SOME_LEVEL),
        ),
        eps(1e-5, only_if=("std_level", _SOME_LEVEL)),
    ),
)
