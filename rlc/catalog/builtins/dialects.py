"""Advantages as other libraries compute them: the same formula, the same edge cases.

Two things are deliberately not copied. A group of equal returns gives exact zeros here, where
floating-point noise divided by itself gives some libraries advantages of up to 1; and a reward
that is not a number is refused. What else differs is said where it does.
"""

from __future__ import annotations

from typing import Any

from rlc.algo.scheme import AdvantageScheme, Baseline, Returns, Scale
from rlc.catalog.builtins.schemes import (
    SCOPE,
    best_margin,
    by_mean,
    eps,
    gamma,
    leave_one_out,
    length_weighted,
    mean,
    nonzero_share,
    preset,
    scheme,
    std,
    whitened,
    word,
)
from rlc.catalog.records import Args, Param

_NORM = Param("norm", "bool", "divide by the standard deviation", True)
_TURN = Returns("turn", 1.0)
_LEVELS = ("group", "batch", "none")
_SOME_LEVEL = tuple(level for level in _LEVELS if level != "none")


def _normed(name: str, args: Args, singleton: str, *scales: Scale) -> AdvantageScheme:
    """Less the mean; with ``norm`` divided too."""
    return scheme(name, mean(args.scope, singleton), *(scales if args.norm.data else ()))


def _verl_passk(args: Args) -> AdvantageScheme:
    scales = (std(args.scope, 1e-6, of="returns"),) if args.norm.data else ()
    return scheme("verl.grpo_passk", *best_margin(args.scope, "error"), *scales)


VERL = (
    preset(
        "verl.grpo",
        "GRPO of verl 0.9.1; a group of one keeps its return",
        lambda args: _normed("verl.grpo", args, "raw", std(args.scope, 1e-6)),
        _NORM,
        SCOPE,
    ),
    preset(
        "verl.rloo",
        "RLOO of verl 0.9.1; a group of one keeps its return",
        lambda args: scheme("verl.rloo", leave_one_out(args.scope, "raw")),
        SCOPE,
    ),
    preset(
        "verl.rloo_vectorized",
        "RLOO of verl 0.9.1, vectorised; a group of one gets 0",
        lambda args: scheme("verl.rloo_vectorized", leave_one_out(args.scope)),
        SCOPE,
    ),
    preset(
        "verl.opo",
        "OPO of verl 0.9.1; a group of one keeps its return",
        lambda args: scheme("verl.opo", length_weighted(args.scope, "raw")),
        SCOPE,
    ),
    preset(
        "verl.reinforce_pp_baseline",
        "REINFORCE++-baseline of verl 0.9.1; a group of one keeps its return before whitening",
        lambda args: scheme(
            "verl.reinforce_pp_baseline", mean(args.scope, "raw"), *whitened(1, "inside")
        ),
        SCOPE,
    ),
    preset(
        "verl.reinforce_pp",
        "REINFORCE++ of verl 0.9.1 at its gamma of 1 (a discount by token cannot be expressed)",
        lambda _: scheme("verl.reinforce_pp", *whitened(1, "inside"), returns=_TURN),
    ),
    preset(
        "verl.grpo_passk",
        "pass@k training of verl 0.9.1; a group of one is an error",
        _verl_passk,
        _NORM,
        SCOPE,
    ),
    preset(
        "verl.gpg",
        "GPG of verl 0.9.1 at its f_norm of 1; a group of one keeps its return",
        lambda args: scheme("verl.gpg", mean(args.scope, "raw"), nonzero_share("batch")),
        SCOPE,
    ),
)


def _trl_grpo(args: Args) -> AdvantageScheme:
    level = args.scale_rewards.data
    scales = {
        "group": (std(args.scope, 1e-4),),
        "batch": (std("batch", 1e-4, of="returns"),),
        "none": (),
    }
    return scheme("trl.grpo", mean(args.scope), *scales[level])


def _trl_rloo(args: Args) -> AdvantageScheme:
    steps = (mean("batch"), std("batch", 1e-4)) if args.normalize.data else ()
    return scheme("trl.rloo", leave_one_out(args.scope, "error"), *steps)


TRL = (
    preset(
        "trl.grpo",
        "GRPO of TRL 1.16; scaled over the batch it divides by the spread of the raw returns",
        _trl_grpo,
        word("scale_rewards", "over what the spread is taken", _LEVELS, "group"),
        SCOPE,
    ),
    preset(
        "trl.rloo",
        "RLOO of TRL 1.16; a group of one is an error",
        _trl_rloo,
        Param("normalize", "bool", "normalise the advantages over the batch", False),
        SCOPE,
    ),
)

OPENRLHF = (
    preset(
        "openrlhf.grpo",
        "group_norm of OpenRLHF 0.11.2; a group of one is an error",
        lambda args: scheme("openrlhf.grpo", mean(args.scope, "error"), std(args.scope, 1e-9)),
        SCOPE,
    ),
    preset(
        "openrlhf.reinforce_pp_baseline",
        "REINFORCE++-baseline of OpenRLHF 0.11.2; a group of one is an error",
        lambda args: scheme(
            "openrlhf.reinforce_pp_baseline", mean(args.scope, "error"), *whitened(0, "clamp")
        ),
        SCOPE,
    ),
    preset(
        "openrlhf.reinforce_pp",
        "REINFORCE++ of OpenRLHF 0.11.2 at a gamma of 1 (a discount by token cannot be expressed)",
        lambda _: scheme("openrlhf.reinforce_pp", *whitened(0, "clamp"), returns=_TURN),
    ),
    preset(
        "openrlhf.flash_reinforce",
        "flash_reinforce of OpenRLHF 0.11.2: return less the batch's mean",
        lambda _: scheme("openrlhf.flash_reinforce", mean("batch")),
    ),
)

RLLM = (
    preset(
        "rllm.grpo",
        "GRPO of rLLM, with the biased deviation; a group of one keeps its return",
        lambda args: _normed("rllm.grpo", args, "raw", std(args.scope, 1e-6, ddof=0)),
        _NORM,
        SCOPE,
    ),
    preset(
        "rllm.legacy_grpo",
        "GRPO of earlier versions of rLLM, without eps; a group of one keeps its return",
        lambda args: scheme("rllm.legacy_grpo", mean(args.scope, "raw"), std(args.scope, 0.0, 0)),
        SCOPE,
    ),
    preset(
        "rllm.rloo",
        "RLOO of rLLM; a group of one keeps its return",
        lambda args: scheme("rllm.rloo", leave_one_out(args.scope, "raw")),
        SCOPE,
    ),
    preset(
        "rllm.reinforce_pp_baseline",
        "REINFORCE++-baseline of rLLM: over the spread of the batch's rollouts, not of its tokens",
        lambda args: scheme(
            "rllm.reinforce_pp_baseline", mean(args.scope), std("batch", 1e-6, ddof=0)
        ),
        SCOPE,
    ),
    preset(
        "rllm.prpo",
        "PRPO of rLLM: return less the batch's mean, over the batch's spread",
        lambda _: scheme("rllm.prpo", mean("batch"), std("batch", 1e-6, ddof=0)),
    ),
)

SKYRL = (
    preset(
        "skyrl.grpo",
        "GRPO of SkyRL 0.3.0, as verl's; a group of one keeps its return",
        lambda args: _normed("skyrl.grpo", args, "raw", std(args.scope, 1e-6)),
        _NORM,
        SCOPE,
    ),
    preset(
        "skyrl.rloo",
        "RLOO of SkyRL 0.3.0; a group of one gets 0",
        lambda args: scheme("skyrl.rloo", leave_one_out(args.scope)),
        SCOPE,
    ),
    preset(
        "skyrl.maxrl",
        "MaxRL of SkyRL 0.3.0; a group of one keeps its return, "
        "and a mean that is not positive gives 0 where SkyRL turns signs around",
        lambda args: scheme("skyrl.maxrl", mean(args.scope, "raw"), by_mean(args.scope, 1e-6)),
        SCOPE,
    ),
)


def _nemo_grpo(args: Args) -> AdvantageScheme:
    """NeMo-RL takes baseline and deviation from the same set: the group, or the others in it."""
    others = args.leave_one_out.data
    baseline = leave_one_out(args.scope) if others else mean(args.scope)
    if not args.normalize.data:
        return scheme("nemo.grpo", baseline)
    kind: Any = "std_of_others" if others else "std"
    return scheme("nemo.grpo", baseline, std(args.scope, 1e-6, 0, kind, of="returns"))


NEMO = (
    preset(
        "nemo.grpo",
        "GRPO of NeMo-RL, with the biased deviation; a group of one gets 0",
        _nemo_grpo,
        Param("leave_one_out", "bool", "take mean and deviation of the others only", True),
        Param("normalize", "bool", "divide by the standard deviation", True),
        SCOPE,
    ),
    preset(
        "nemo.reinforce_pp",
        "REINFORCE++ of NeMo-RL at a gamma of 1 (a discount by token cannot be expressed)",
        lambda _: scheme("nemo.reinforce_pp", *whitened(0, "clamp"), returns=_TURN),
    ),
)


def _without_equals(name: str, drop: bool, args: Args, *scales: Scale) -> AdvantageScheme:
    """Less the mean; where groups of equals are left out, a group of one is one of them."""
    baseline = mean(args.scope, "drop" if drop else "zero")
    return scheme(name, baseline, *scales, constant="drop" if drop else "keep")


def _drop_constant(default: bool) -> Param:
    return Param("drop_constant", "bool", "leave groups of equal returns out", default)


PRIME = (
    preset(
        "prime.center",
        "the default of prime-rl: return less the group's mean, groups of equals left out",
        lambda args: _without_equals("prime.center", args.drop_constant.data, args),
        _drop_constant(True),
        SCOPE,
    ),
    preset(
        "prime.maxrl",
        "MaxRL of prime-rl; 0 where the mean is not positive, and for a group of one",
        lambda args: scheme("prime.maxrl", mean(args.scope), by_mean(args.scope, 0.0)),
        SCOPE,
    ),
)

OPENREWARD = (
    preset(
        "openreward.centered_normalized",
        "the default of OpenReward's trainer: groups with a deviation below 1e-8 get nothing",
        lambda args: _without_equals(
            "openreward.centered_normalized", True, args, std(args.scope, 0.0, tolerance=1e-8)
        ),
        SCOPE,
    ),
    preset(
        "openreward.centered",
        "OpenReward's trainer without the deviation: return less the group's mean",
        lambda args: scheme("openreward.centered", mean(args.scope)),
        SCOPE,
    ),
    preset(
        "openreward.direct",
        "OpenReward's trainer without a baseline: the return itself",
        lambda _: scheme("openreward.direct"),
    ),
)

COOKBOOK = (
    preset(
        "cookbook.center",
        "the one scheme of tinker-cookbook 0.5.8; a batch of equals only is skipped, "
        "where the cookbook keeps a group of it",
        lambda args: _without_equals("cookbook.center", args.drop_constant.data, args),
        _drop_constant(False),
        SCOPE,
    ),
)

REBN = (
    preset(
        "gem.rebn",
        "return batch normalisation of GEM 0.1.0; a single turn gets 0 where GEM gives NaN",
        lambda args: scheme(
            "gem.rebn", mean("batch"), std("batch", 1e-9), returns=Returns("turn", args.gamma)
        ),
        gamma(0.9),
    ),
    preset(
        "oat.rebn",
        "return batch normalisation of OAT, with the biased deviation and without a discount",
        lambda _: scheme("oat.rebn", mean("batch"), std("batch", 1e-9, 0), returns=_TURN),
    ),
)


def _areal(args: Args) -> AdvantageScheme:
    """AReaL measures the spread of what is left after its mean, over whichever group that was."""
    steps: list[Baseline | Scale] = []
    if args.mean_level.data != "none":
        out = args.leave_one_out.data
        steps.append(leave_one_out(args.mean_level, "raw") if out else mean(args.mean_level))
    if args.std_level.data != "none":
        steps.append(std(args.std_level, args.eps, 1 if args.unbiased.data else 0, "rms"))
    return scheme("areal.normalize", *steps)


AREAL = (
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

DIALECTS = (
    *VERL,
    *TRL,
    *OPENRLHF,
    *RLLM,
    *SKYRL,
    *NEMO,
    *PRIME,
    *OPENREWARD,
    *COOKBOOK,
    *REBN,
    *AREAL,
)
