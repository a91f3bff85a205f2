"""What someone who knows the field would notice in the numbers of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean

from attrs import frozen

from rlc.catalog import NO_ADVANTAGE, with_role
from rlc.plan import PolicyGradient, StagePlan, compares_in_groups
from rlc.report.run_files import RunFiles
from rlc.runtime import Record, evaluation_results, failures_by_cause

_RECENT = 10  # steps that are looked at


@frozen
class Finding:
    """``text`` says what was found, ``advice`` what to do; ``code`` is that of a check's rule."""

    text: str
    advice: str = ""
    code: str = ""


def findings(files: RunFiles) -> list[Finding]:
    """Return the warnings of the recipe, data that changed, then what the run itself shows."""
    found = [Finding(w.message, w.help or "", w.code) for w in files.warnings]
    for change in files.data_changed:
        what = f"the run went on with other files than it began with: {change}"
        found.append(Finding(what, "its steps before and after are not of the same job"))
    for stage in files.plan.stages:
        found.extend(stage_findings(stage, files.of_stage(stage.name)))
    for evaluation in files.plan.evaluations:
        found.extend(_fallen(evaluation.name, files.of_stage(evaluation.name)))
    return found


def stage_findings(stage: StagePlan, records: Sequence[Record]) -> list[Finding]:
    """Return what the metrics of a stage's steps so far show; nothing of an evaluation."""
    if stage.policy_gradient is None or not records:
        return []
    in_groups = compares_in_groups(stage.policy_gradient.advantage)
    return [
        *_of_steps(stage.name, in_groups, records[-_RECENT:]),
        *_reward(stage, stage.policy_gradient, records),
    ]


def _of_steps(name: str, in_groups: bool, recent: Sequence[Record]) -> Iterator[Finding]:
    """Yield what the last steps show; ``in_groups``: the members of a group are compared."""
    steps = f"{len(recent)} steps" if len(recent) > 1 else "step"
    last = f"in the last {steps} of {name}"

    def mean(key: str) -> float:
        return fmean(float(record.get(key, 0.0)) for record in recent)

    if (share := mean("groups/constant")) > 0.5 and in_groups:
        good = mean("groups/all_good") > mean("groups/all_bad")
        text = f"{share:.0%} of the groups had members that were all alike {last}"
        remedy = "harder tasks would" if good else "easier tasks or larger groups would"
        if share > 0.9 and mean("groups/all_good") == 0 and mean("reward/mean") > 0.05:
            remedy = (
                "all replies earn the same part of the reward: `rlc show` prints them, as there "
                "may be a way to earn it that was not meant"
            )
        yield Finding(text, f"they teach nothing: {remedy}")
    if (share := mean("turns/cut_off")) > 0.1:
        advice = "raise max_tokens, or the reward punishes length more than mistakes"
        yield Finding(f"{share:.0%} of the replies ran into max_tokens {last}", advice)
    rewarded = [record for record in recent if "reward/mean" in record]
    skipped = sum(float(record.get("optim/skipped", 0.0)) for record in rewarded)
    if skipped > 0.2 * len(recent):
        text = f"{skipped / len(recent):.0%} of the updates were skipped {last}"
        yield Finding(text, "no rollout was better than its group")
    if (kl := abs(mean("kl/sample_train"))) > 0.01:
        advice = "training tends to become unstable: fewer updates a batch, less staleness"
        text = f"sampler and trainer disagree by {kl:.3f} nats a token {last}"
        yield Finding(text, f"beyond 0.01 {advice}")
    played = mean("rollouts/played") + mean("rollouts/failed")
    if played and (share := mean("rollouts/retried") / played) > 0.05:
        advice = "an attempt had failed: `rlc show` says why"
        yield Finding(f"{share:.0%} of the rollouts were played again {last}", advice)
    if played and (share := mean("rollouts/failed") / played) > 0.05:
        causes = Counter[str]()
        for record in recent:
            causes.update(failures_by_cause(record))
        counts = ", ".join(f"{number:,} {cause}" for cause, number in causes.most_common())
        yield Finding(f"{share:.0%} of the rollouts failed {last}", counts)


def _reward(
    stage: StagePlan, objective: PolicyGradient, records: Sequence[Record]
) -> Iterator[Finding]:
    """Find a reward that has not risen, except where it is relative, as in games and comparisons,
    where tasks become harder, or where it is not what is learnt from."""
    rewards = [float(record["reward/mean"]) for record in records if "reward/mean" in record]
    envs = stage.environments
    relative = any(env.play or with_role(env, "curriculum", "game", "judge") for env in envs)
    taught = objective.teacher or objective.advantage == NO_ADVANTAGE
    if len(rewards) < 2 * _RECENT or relative or taught:
        return
    first, last = fmean(rewards[:_RECENT]), fmean(rewards[-_RECENT:])
    if last <= first:
        ends = f"{first:.3f} in its first {_RECENT} steps, {last:.3f} in the last"
        advice = (
            "is the learning rate too low or too high, and do some members of a group do better?"
        )
        yield Finding(f"the reward of {stage.name} has not risen: {ends}", advice)


def _fallen(name: str, records: Sequence[Record]) -> Iterator[Finding]:
    """Find an evaluation that ended by a quarter worse than it was before the first step."""
    results = [(record["step"], evaluation_results(record, name)) for record in records]
    if len(results) < 2 or results[0][0] != 0:
        return
    (_, before), (step, after) = results[0], results[-1]
    for metric in [metric for metric in before if metric in after][:1]:
        if after[metric] < 0.75 * before[metric]:
            ends = f"{before[metric]:.3f} before the first step, {after[metric]:.3f} after {step}"
            advice = "a smaller learning rate, or another reward; `save = every(10, best = true)`"
            text = f"{metric} of {name} has fallen: {ends}"
            yield Finding(text, f"{advice} keeps the best state")
