"""A probe: a few episodes of each environment of a job with its real model, and no training.

It is a run of evaluations, in a folder of its own: what it played can be looked at like any other
episodes, and one that was interrupted goes on. What it says of a job is worked out from that
folder, so a second probe of the same plays nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rlc.catalog import NO_ADVANTAGE
from rlc.plan import (
    PLAN_FILE,
    SOLVED,
    EnvPlan,
    Evaluation,
    Plan,
    StagePlan,
    build_graph,
    elapsed,
    evaluations_of,
    in_dollars,
    plan_hash,
)
from rlc.plan.leaves import needed_stages
from rlc.pricing import (
    LEVELS,
    STATE_PRICES,
    Seen,
    StageCost,
    measured_sentences,
    needs_signal,
    plan_cost,
    total_cost,
    unknown_prices,
)
from rlc.proof.evidence import (
    PROBE,
    RUNS,
    episodes_key,
    episodes_seen,
    played_stages,
    probe_stage,
)
from rlc.records import evolve, field, frozen, values_of
from rlc.runtime import (
    AGREEMENT,
    METRICS_FILE,
    ROLLOUTS_FILE,
    Observer,
    Record,
    RunError,
    RunFolder,
    grouped,
    new_folder,
    play_few_episodes,
    read_failures,
    read_lines,
    read_run,
    require_runnable,
)
from rlc.service import require_service

GROUPS = 16  # of each environment
SHARE, MOST_USD = 0.01, 1.0  # the default budget: of the expected cost, and in dollars
_MANY_CUT_OFF = 0.5  # of the replies: training would punish length
_SOME_CUT_OFF = 0.1
_FAILING = 0.2  # of the rollouts
_APART = 0.01  # nats a token, beyond which training tends to become unstable


@frozen
class Obstacle:
    """``text`` says what was seen of ``env``, ``advice`` what to do. If it ``stops``, nothing can
    be learnt."""

    stage: str
    env: str
    text: str
    advice: str
    stops: bool = False

    def __str__(self) -> str:
        return f"{self.env}: {self.text}: {self.advice}"


@frozen
class EnvProbe:
    """What a probe has seen of an environment of a stage.

    Attributes:
        groups, episodes: how many were played to their end.
        reward, lowest, highest: the mean, and the ends, of the rewards that a run would learn from.
        solved: the share of episodes that solved their task.
        signal: the share of groups whose members had different rewards.
        turns, reply, prompt: means: turns of an episode, tokens of a reply and of a first prompt.
        longest: the tokens of the longest reply.
        cut_off: the share of replies that ended at max_tokens.
        format: the share of episodes whose answer could be read; None if that is not measured.
        failures: failed rollouts by cause; ``failure`` is the first of them in words.
        sampling, environment: median seconds that an episode took there.
        apart: nats a token by which the logprobs of sampler and trainer differ, or None.
    """

    stage: str
    env: str
    groups: int
    episodes: int
    reward: float | None
    lowest: float | None
    highest: float | None
    solved: float
    signal: float
    turns: float
    reply: float
    longest: int
    prompt: float
    cut_off: float
    format: float | None
    failures: dict[str, int]
    failure: str | None
    sampling: float
    environment: float
    apart: float | None


@frozen
class ProbeResult:
    """What a probe has found out about a job, by :func:`rlc.probe`.

    Attributes:
        plan: the plan of the job.
        folder: the folder of the probe, for `rlc show`.
        budget: USD that it could spend, or None on a service that bills nothing.
        spent: USD that it has spent; None if a price is unknown.
        played: episodes that this call has played; 0 if an earlier probe had played them.
        envs: what was seen of each environment.
        findings: what is in the way of learning.
        costs: the cost of each stage, from what was seen.
        over_budget: why the budget of the job would not last; empty if it would.
    """

    plan: Plan
    folder: Path
    budget: float | None
    spent: float | None
    played: int
    envs: tuple[EnvProbe, ...]
    findings: tuple[Obstacle, ...]
    costs: tuple[StageCost, ...] = field(repr=False)
    seen: dict[str, Seen] = field(repr=False)
    over_budget: str = ""

    @property
    def stops(self) -> list[str]:
        """Return why the job should not be run as it is; empty if it may."""
        found = [str(one) for one in self.findings if one.stops]
        return [*found, *filter(None, [self.over_budget])]

    def to_dict(self) -> dict[str, Any]:
        """Return the data of `rlc probe --json`."""
        totals = {level: total_cost(self.costs, level).total for level in LEVELS}
        tokens = {level: sum(cost.tokens(level) for cost in self.costs) for level in LEVELS}
        return {
            "plan_hash": plan_hash(self.plan),
            "folder": str(self.folder),
            "budget": self.budget,
            "spent": self.spent,
            "played": self.played,
            "environments": [values_of(one) for one in self.envs],
            "findings": [values_of(one) for one in self.findings],
            "cost": {"currency": "USD", **totals},
            "tokens": {level: n if isfinite(n) else None for level, n in tokens.items()},
            "measured": {
                stage: {env: one.to_dict() for env, one in own.items()}
                for stage, own in self.seen.items()
            },
            "over_budget": self.over_budget,
            "stops": self.stops,
        }


class NothingToProbeError(RunError):
    """A job whose own model plays no episodes."""


def probe_budget(plan: Plan, given: float | None = None) -> float | None:
    """Return what a probe may spend in USD: what is ``given``, else the smaller of 1 % of the
    job's expected cost and $1; None if nothing is billed. Raise RunError if a price is unknown."""
    costs = plan_cost(plan)
    if all(cost.free for cost in costs):
        return None
    if (why := unknown_prices(costs)) is not None:
        raise RunError(f"the budget of the probe cannot be kept: {why}", STATE_PRICES)
    if given is not None:
        return given
    return min(SHARE * total_cost(costs, "expected").usd, MOST_USD)


def probe_plan(plan: Plan, groups: int = GROUPS) -> Plan:
    """Return the plan of a probe: an evaluation of each environment that a job plays with its own
    model, those that are the same once, without those that :func:`left_out` names. Raise
    NothingToProbeError if there is none."""
    stages: dict[str, Evaluation] = {}
    for stage, env in played_stages(plan):
        if not needed_stages(env):
            name = f"{stage.name}_{env.name}"
            stages.setdefault(episodes_key(stage, env, plan), probe_stage(stage, env, name, groups))
    if not stages:
        why = "; ".join(left_out(plan)) or "no stage plays episodes with its own model"
        advice = "`rlc explain` prices the job from what is assumed"
        raise NothingToProbeError(f"there is nothing to probe: {why}", advice)
    made = tuple(stages.values())
    return evolve(plan, stages=made, graph=build_graph(made), provenance={}, expectations=())


def left_out(plan: Plan) -> list[str]:
    """Return which environments cannot be probed, and why."""
    found = (
        f"{env.name} asks {' and '.join(needed)}, which is not trained yet"
        for _, env in played_stages(plan)
        if (needed := needed_stages(env))
    )
    return list(dict.fromkeys(found))


def run_probe(
    plan: Plan,
    groups: int = GROUPS,
    budget: float | None = None,
    base_url: str | None = None,
    fresh: bool = False,
    observer: Observer | None = None,
    root: Path = RUNS,
) -> ProbeResult:
    """Probe a job; see :func:`rlc.api.probe`. Folders of probes are in ``root``."""
    observer, probing = observer or Observer(), probe_plan(plan, groups)
    usd = probe_budget(plan, budget)
    require_runnable(probing)
    found = None if fresh else _earlier(probing, root)
    played = 0
    if found is None or read_run(found).state != "finished":
        require_service(probing, base_url)
        for why in left_out(plan):
            observer.note(f"not probed: {why}")
        observer.note(_announced(usd, groups))
        if found is None:
            path = new_folder(root, f"{Path(plan.recipe).stem or 'recipe'}{PROBE[:-1]}")
            folder = RunFolder.create(path, probing)
        else:
            folder = RunFolder.resume(found)
        found, before = folder.path, _episodes(folder.path)
        play_few_episodes(folder, base_url, usd, observer)
        played = _episodes(found) - before
    return _result(plan, probing, found, usd, played, root)


def _announced(usd: float | None, groups: int) -> str:
    what = f"the probe plays up to {groups} groups of each environment"
    return f"{what}, which cost nothing here" if usd is None else f"{what} for up to ${usd:.2f}"


def _earlier(probing: Plan, root: Path) -> Path | None:
    """Return the folder of the newest probe of the same."""
    wanted = plan_hash(probing)
    for path in sorted(root.glob(f"*{PROBE}*/{PLAN_FILE}"), reverse=True):
        with suppress(OSError, ValueError, AttributeError):
            data = json.loads(path.read_text(encoding="utf-8"))
            if data.get("plan_hash") == wanted:
                return path.parent
    return None


def _episodes(folder: Path) -> int:
    return sum(1 for _ in read_lines(folder / ROLLOUTS_FILE))


def _result(
    plan: Plan, probing: Plan, folder: Path, budget: float | None, played: int, root: Path
) -> ProbeResult:
    """Return what the probe in a folder says of a job."""
    by_key = {
        episodes_key(stage, env, probing): stage.name for stage, env in played_stages(probing)
    }
    records = grouped(read_lines(folder / ROLLOUTS_FILE), lambda one: str(one.get("stage")))
    metrics = {str(one.get("stage")): one for one in read_lines(folder / METRICS_FILE)}
    envs, findings = list[EnvProbe](), list[Obstacle]()
    for stage, env in played_stages(plan):
        name = by_key.get(episodes_key(stage, env, plan), "")
        if own := records.get(name):
            failures = [str(one) for one in read_failures(folder) if one.stage == name]
            envs.append(_env_probe(stage, env, own, metrics.get(name, {}), failures))
            if stage.trains:
                findings += _findings(stage, env, envs[-1])
    seen = episodes_seen(plan, root)
    costs = plan_cost(plan, seen)
    return ProbeResult(
        plan=plan,
        folder=folder,
        budget=budget,
        spent=read_run(folder).spent_usd,
        played=played,
        envs=tuple(envs),
        findings=tuple(sorted(findings, key=lambda one: not one.stops)),
        costs=costs,
        seen=seen,
        over_budget="; ".join(_over_budget(plan, costs)),
    )


def _env_probe(
    stage: StagePlan,
    env: EnvPlan,
    records: Sequence[Record],
    metrics: Record,
    failures: Sequence[str],
) -> EnvProbe:
    played = [one for one in records if one["error"] is None]
    turns = [turn for one in played for turn in one["turns"]]
    rewards = [float(one["reward"]) for one in played if one["turns"]]
    raw = [float(one["raw_reward" if "raw_reward" in one else "reward"]) for one in played]
    groups = grouped(played, lambda one: (one["task"], one["role"])).values()
    differ = [len({one["reward"] for one in group}) > 1 for group in groups]
    last = [one["turns"][-1]["metrics"] for one in played if one["turns"]]
    read = [float(found["format"]) for found in last if "format" in found]
    seconds = [one["seconds"] for one in played]
    return EnvProbe(
        stage=stage.name,
        env=env.name,
        groups=len({one["task"] for one in played}),
        episodes=len(played),
        reward=fmean(rewards) if rewards else None,
        lowest=min(rewards, default=None),
        highest=max(rewards, default=None),
        solved=_mean([one >= SOLVED for one in raw]),
        signal=_mean(differ),
        turns=_mean([len(one["turns"]) for one in played]),
        reply=_mean([turn["tokens"] for turn in turns]),
        longest=max((turn["tokens"] for turn in turns), default=0),
        prompt=_mean([one["turns"][0]["prompt_tokens"] for one in played if one["turns"]]),
        cut_off=_mean([turn["stop_reason"] == "length" for turn in turns]),
        format=fmean(read) if read else None,
        failures=dict(Counter(str(one["cause"]) for one in records if one["error"] is not None)),
        failure=next(iter(failures), None),
        sampling=median([float(one.get("sampling", 0.0)) for one in seconds] or [0.0]),
        environment=median([float(one.get("environment", 0.0)) for one in seconds] or [0.0]),
        apart=metrics.get(AGREEMENT),
    )


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def _findings(stage: StagePlan, env: EnvPlan, seen: EnvProbe) -> Iterator[Obstacle]:
    """Yield what is in the way of learning."""
    found = partial(Obstacle, stage.name, env.name)
    failed = sum(seen.failures.values())
    if not seen.episodes:
        yield found(f"all {failed} episodes failed", seen.failure or "see `rlc show`", True)
        return
    if failed > _FAILING * (failed + seen.episodes):
        share = f"{failed:,} of {failed + seen.episodes:,} episodes failed"
        yield found(share, seen.failure or ", ".join(seen.failures))
    if seen.format == 0:
        yield found(
            "no reply had the format that the environment reads",
            "say it in the prompt (`chat(instruction = …)`), or teach it with an `sft` stage first",
            seen.signal == 0 and needs_signal(stage),
        )
    if seen.cut_off > _SOME_CUT_OFF:
        yield found(
            f"{seen.cut_off:.0%} of the replies were cut off at max_tokens",
            "raise max_tokens, or the reward punishes length more than mistakes",
            seen.cut_off > _MANY_CUT_OFF and seen.signal == 0 and needs_signal(stage),
        )
    if needs_signal(stage) and seen.signal == 0:
        yield found(*_nothing_differs(seen), True)
    elif not needs_signal(stage) and seen.lowest == seen.highest and _by_reward(stage):
        yield found(f"every reward was {seen.lowest:g}", "nothing says what is better", True)
    elif seen.solved == 0 and seen.highest is not None and seen.highest < SOLVED:
        yield found(
            f"nothing was solved, though rewards differ (up to {seen.highest:g})",
            "partial rewards teach; if none are meant to be there, `rlc show` prints the replies",
        )
    if seen.apart is not None and abs(seen.apart) > _APART:
        yield found(
            f"sampler and trainer disagree by {seen.apart:.3f} nats a token",
            "training tends to become unstable beyond 0.01: ask who runs the service",
        )


def _nothing_differs(seen: EnvProbe) -> tuple[str, str]:
    """Return what is said of groups that are all of equals, and what to do."""
    all_equal = f"the members of each of the {seen.groups:,} groups had the same reward"
    if seen.solved >= 1:
        return f"{all_equal}: all of it is solved", "harder tasks would teach something"
    if seen.solved == 0:
        remedy = "easier tasks, larger groups, or an `sft` stage before would teach something"
        return f"{all_equal}: nothing was solved", remedy
    remedy = "tasks between those, larger groups, or a higher temperature would teach something"
    return f"{all_equal}: each task was solved by all or by none", remedy


def _by_reward(stage: StagePlan) -> bool:
    """Return whether the rewards alone say what is learnt."""
    objective = stage.policy_gradient
    return objective is not None and not objective.teacher and objective.advantage != NO_ADVANTAGE


def _over_budget(plan: Plan, costs: Sequence[StageCost]) -> Iterator[str]:
    """Yield the budgets that the expected cost exceeds."""
    by_stage = {cost.stage: cost for cost in costs}
    for stage in plan.trainings:
        names = [stage.name, *(one.name for one in evaluations_of(stage, plan.stages))]
        counted = [by_stage[name] for name in names]
        usd = total_cost(counted, "expected").usd
        tokens = sum(cost.tokens("expected") for cost in counted)
        for most, expected, written in (
            (stage.budget.usd, usd, in_dollars),
            (stage.budget.tokens, tokens, "{:,.0f} tokens".format),
        ):
            if most is not None and expected > most:
                yield (
                    f"the budget of {stage.name}, {written(most)}, would not last: "
                    f"{written(expected)} is expected"
                )


def probe_lines(result: ProbeResult) -> Iterator[str]:
    """Yield what a probe has found out, for people."""
    for one in result.envs:
        yield f"{one.env} (of {one.stage}): {one.episodes:,} episodes in {one.groups:,} groups"
        if one.reward is not None:
            yield (
                f"  reward {one.reward:.3f}, from {one.lowest:g} to {one.highest:g}; "
                f"{one.solved:.0%} solved; {one.signal:.0%} of the groups differ"
            )
        yield (
            f"  {one.turns:.3g} turns, replies of {one.reply:,.0f} tokens (the longest "
            f"{one.longest:,}), {one.cut_off:.0%} cut off; first prompts of {one.prompt:,.0f}"
        )
        yield f"  {elapsed(one.sampling)} of sampling, {elapsed(one.environment)} of environment"
        if one.failures:
            causes = ", ".join(f"{number:,} {cause}" for cause, number in one.failures.items())
            yield f"  failed: {causes}; the first: {one.failure}"
        if one.apart is not None:
            yield f"  sampler and trainer differ by {one.apart:.2g} nats a token"
    for stage in result.plan.stages:
        yield from measured_sentences(stage, result.seen.get(stage.name, {}))
    for finding in result.findings:
        yield f"{'error' if finding.stops else 'warning'}: {finding}"
