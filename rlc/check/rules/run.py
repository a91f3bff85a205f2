"""Rules on how a stage runs: its numbers of tasks and steps, checkpoints, evaluations, budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlc.catalog import env_facts, players_with_work, stays, tracker_traits
from rlc.check.rules.tasks import examples_of, tasks_of
from rlc.check.rules.view import StageView, rule, rule_on_envs
from rlc.check.stages import CheckedStage
from rlc.check.values import said
from rlc.lang import Diagnostics, Label
from rlc.plan import (
    LOCAL,
    EnvPlan,
    StagePlan,
    Training,
    evaluations_of,
    in_dollars,
    is_hosted,
    is_training,
    show,
)
from rlc.records import frozen

if TYPE_CHECKING:
    from rlc.pricing import StageCost


@rule_on_envs()
def _samples_exist(view: StageView, env: EnvPlan) -> None:
    samples, there = env.args.get("samples"), env_facts(env).tasks
    if samples is not None and there is not None and samples > there:
        message = f"`{env.name}` has {there:,} tasks, and not {samples:,}"
        advice = f"`samples = {there:_}`, or leave it out to have all"
        view.error("RL0327", f"envs.{env.name}.args.samples", message, advice)


@rule("batch", "advantage")
def _tasks_for_a_step(view: StageView) -> None:
    batch, envs = view.batch, view.parts.get("envs", ())
    if batch.updates > batch.count:
        message = f"{batch.count:,} {batch.kind} cannot be split into {batch.updates} updates"
        view.error("RL0327", "batch.updates", message, f"at most `updates = {batch.count}`")
    if batch.kind == "turns":
        if envs and batch.parallel > batch.count:
            message = f"{batch.parallel:,} episodes are played for {batch.count:,} turns"
            advice = "each has one turn at least, so the rest is thrown away: lower `parallel`"
            view.warning("RL0439", "batch.parallel", message, advice)
        return
    for env, share in _shares(envs):
        tasks = tasks_of(view, env)
        if tasks is None:
            continue
        if (played := int(share * batch.count)) > tasks:
            message = f"a step plays {played:,} tasks, and `{env.name}` has {tasks:,}"
            advice = f"some are played twice in a step: at most `groups({tasks:_})`"
            view.warning("RL0327", "batch.count", message, advice)
        elif batch.resample and share == 1 and batch.count + batch.resample > tasks:
            message = f"`{env.name}` has {tasks:,} tasks, and {batch.count:,} are in the step"
            spare = tasks - batch.count
            advice = f"`resample = {spare:_}` at most" if spare else "leave `resample` out"
            view.warning("RL0327", "batch.resample", message, advice)


@rule("players", "envs")
def _players_play(view: StageView) -> None:
    """What the players of a stage are given, and how many have something to do."""
    players, parts = view.players, view.parts
    if players is None or players.kind == "here":
        return
    for env in view.envs:
        if (why := stays(env)) is not None:
            message = f"`{env.name}` is played in the process of the run: {why}"
            advice = "`workers(threads)` and `workers(processes)` go to the players"
            label = Label(view.at(f"envs.{env.name}"), "played there")
            view.warning("RL0348", "players", message, advice, label)
    sampling, groups = parts.get("sampling"), parts.get("tasks")
    if groups is None and {"batch", "overlap"} <= parts.keys():
        groups = view.batch.at_once * (1 + view.overlap.max_staleness)
    if sampling is None or groups is None or players.count is None:
        return
    size = parts.get("samples") or max(env.rollouts.group for env in view.envs)
    busy = players_with_work(players.count, groups, size, sampling.concurrency)
    if busy < players.count:
        message = f"{players.count:,} players, and {busy:,} of them have something to do"
        advice = f"a step plays {groups:,} groups at once, and a player whole ones"
        if busy < min(players.count, groups):
            advice = f"a player asks for the {size:,} replies of a group at once, and no more than "
            advice += f"concurrency = {sampling.concurrency:,} may be asked for by all"
        view.warning("RL0349", "players", message, f"{advice}: `count = {busy}`")


@rule("tasks", "envs")
def _tasks_to_evaluate(view: StageView) -> None:
    for env, share in _shares(view.envs):
        tasks, played = tasks_of(view, env), int(share * view.tasks)
        if tasks is not None and played > tasks:
            message = f"{played:,} tasks are evaluated, and `{env.name}` has {tasks:,}"
            advice = f"some would count twice; `tasks = {int(tasks / share):_}` plays each once"
            view.warning("RL0327", "tasks", message, advice)


@rule("data", "batch")
def _examples_for_a_step(view: StageView) -> None:
    count = examples_of(view)
    if count is not None and view.batch > count:
        message = f"a step takes {view.batch:,} examples, and there are {count:,}"
        view.warning("RL0327", "batch", message, f"`batch = {count:_}` is all of them at once")


@rule("envs")
def _every_part_is_played(view: StageView) -> None:
    """Tasks are sampled so that each environment comes nearest to its share."""
    parts, batch = view.parts, view.parts.get("batch")
    if "tasks" in parts:
        count, what = parts["tasks"], "tasks of this evaluation"
    elif "advantage" in parts and parts.get("steps") and batch and batch.kind == "groups":
        count, what = batch.count * view.steps, "groups of all steps"
    else:
        return
    for env, share in _shares(view.envs):
        if share * count < 1 / len(view.envs):
            message = f"`{env.name}` gets none of the {count:,} {what}"
            advice = f"its share is 1 in {1 / share:,.0f}: give it more weight, or remove it"
            view.warning("RL0433", f"envs.{env.name}.weight", message, advice)


def _shares(envs: tuple[EnvPlan, ...]) -> Iterator[tuple[EnvPlan, float]]:
    total = sum(env.weight for env in envs)
    return ((env, env.weight / total) for env in envs)


@rule("every", "after", "tasks")
def _evaluated_on_the_way(view: StageView) -> None:
    stage = view.before[0] if view.before else None
    steps = stage.parts.get("steps") if stage else None
    if stage and steps and (view.every or 0) > steps and not stage.is_from_command_line("steps"):
        message = f"`{view.after}` has {steps:,} steps, so none is the {view.every:,}th"
        advice = "it is evaluated at the end in any case: lower `every`, or leave it out"
        view.warning("RL0436", "every", message, advice)


@rule("steps")
def _happens_within_the_steps(view: StageView) -> None:
    steps, save, limit = view.steps, view.parts.get("save"), view.parts.get("give_up")
    stale = view.overlap.max_staleness if "overlap" in view.parts else 0
    if not steps or view.is_from_command_line("steps"):
        return
    if save and save.every and save.every > steps:
        message = f"there are {steps:,} steps, so none is the {save.every:,}th"
        advice = "the end is saved in any case: lower the number, or leave `save` out"
        view.warning("RL0436", "save.every", message, advice)
    own = view.origins.values.get("give_up")
    is_written = own is not None and not said(own.origin).startswith("default of ")
    if limit and limit.steps > steps and is_written:
        label = Label(view.at("steps"), f"ends after {steps:,}")
        message = f"{limit.steps:,} failed steps in a row never come together"
        view.warning("RL0436", "give_up.steps", message, "lower it, or leave it out", label)
    if stale >= steps > 1:
        message = f"weights are never {stale} steps old in a stage of {steps:,}"
        advice = "all of it could be played with the first weights: lower `max_staleness`"
        view.warning("RL0436", "overlap.max_staleness", message, advice)


_SECONDS_A_STEP = 60  # of a step on the hosted service, at the least, sampling included


@rule("save")
def _checkpoints_are_there(view: StageView) -> None:
    """Choosing the best needs several, and the service must not delete one that is needed."""
    if view.save.every is None and view.save.best:
        message = "`best` needs checkpoints to choose from"
        view.error("RL0312", "save.best", message, "for example `every(20, best = true)`")
    service = view.model.service if "model" in view.parts else LOCAL
    ttl, expected = view.save.ttl_seconds, (view.parts.get("steps") or 0) * _SECONDS_A_STEP
    if ttl is not None and is_hosted(service) and ttl < expected:
        message = f"a checkpoint is deleted after {show(ttl, 'duration')}, and {view.steps:,} "
        message += "steps take longer than that"
        advice = f"at a minute a step they take about {expected / 3_600:.0f}h; raise `ttl`"
        view.warning("RL0416", "save.ttl_seconds", message, advice)


@rule("track", "envs")
def _uploads_something(view: StageView) -> None:
    for tracker in view.track:
        source = tracker_traits(tracker.name).source
        if source is not None and all(env.source != source for env in view.envs):
            message = f"`{tracker.name}()` uploads episodes of OpenReward, and there are none"
            view.error("RL0312", "track", message, "remove it")


@rule("kl_guard", "overlap")
def _has_steps_to_stop(view: StageView) -> None:
    guard = view.kl_guard
    if guard is not None and guard.then == "synchronous" and not view.overlap.max_staleness:
        message = "`then = synchronous` needs asynchronous steps, and these never overlap"
        advice = "use `asynchronous()` as the overlap, or `then = warn` or `stop`"
        view.error("RL0312", "kl_guard.then", message, advice)


@rule("metrics", "samples")
def _enough_samples(view: StageView) -> None:
    for index, metric in enumerate(view.metrics):
        if (metric.k or 0) > view.samples:
            label = Label(view.at("samples"), f"{view.samples} of each task are played")
            message = f"`{metric.name}({metric.k})` needs {metric.k} episodes of each task"
            advice = f"`samples = {metric.k}`, or a smaller k"
            view.error("RL0316", f"metrics.{index}.k", message, advice, label)


@rule("every", "first", "after")
def _during_a_stage(view: StageView) -> None:
    for name, given in (("every", view.every is not None), ("first", view.first)):
        if given and view.after is None:
            message = f"`{name}` needs a stage with steps, and this evaluates a declared model"
            view.error("RL0317", name, message, "`model = main` evaluates the stage `main`")


@frozen
class _Limit:
    """A limit of a budget, and the estimates to compare it with."""

    unit: str
    most: float
    least_step: float  # of one step, at the very least
    step: float  # of one step, with its share of the evaluations
    whole: float
    text: Callable[[float], str]  # an amount as it is shown


def report_budgets(stages: Sequence[CheckedStage], recipe: str, found: Diagnostics) -> None:
    """Refuse budgets that are too small for a step, and warn of those that will not last."""
    plans: tuple[StagePlan, ...] = tuple(stage.plan() for stage in stages)
    if not any(_is_limited(plan) for plan in plans):
        return  # most have no budget, and their files need not be measured
    from rlc.catalog import located_stages
    from rlc.pricing import STATE_PRICES, stage_cost, unknown_prices

    plans = located_stages(plans, recipe)
    by_name = {plan.name: plan for plan in plans}
    for stage, plan in zip(stages, plans, strict=True):
        if not is_training(plan) or not _is_limited(plan):
            continue
        evaluations = evaluations_of(plan, plans)
        costs = [stage_cost(plan), *(stage_cost(other, by_name) for other in evaluations)]
        why = unknown_prices(costs, '"') if plan.budget.usd is not None else None
        if why is not None:
            message = f"a budget in dollars cannot be kept: {why}"
            found.warning("RL0461", stage.origins.at("budget.usd"), message, STATE_PRICES)
        for limit in _limits(plan, costs):
            span = stage.origins.at(f"budget.{limit.unit}")
            most, whole, least = map(limit.text, (limit.most, limit.whole, limit.least_step))
            if limit.least_step > limit.most:
                message = f"a budget of {most} is less than one step takes"
                advice = f"a step takes at least {least}, and a run cannot stop within it; all "
                advice += f"{plan.steps:,} steps are expected to take {whole}"
                found.error("RL0460", span, message, advice)
            elif limit.whole > limit.most:
                steps = int(limit.most / limit.step)
                lasting = f"covers about {steps:,} of {plan.steps:,} steps"
                message = f"a budget of {most} {lasting if steps else 'may not do for one step'}"
                included = ", evaluations included" if evaluations else ""
                advice = f"all of them are expected to take {whole}{included}; "
                found.warning("RL0411", span, message, advice + "the run stops at the budget")


def report_services(stages: Sequence[CheckedStage], found: Diagnostics) -> None:
    """Refuse a job whose stages are on several services."""
    for stage in stages:
        first, service = stages[0], stages[0].parts["model"].service
        if stage.parts["model"].service != service:
            message = f"`{first.name}` is on the service `{service}`, and `{stage.name}` is not"
            label = Label(first.origins.at("model"), f"on `{service}`")
            advice = (
                "one job runs on one service: make it two recipes, or take a model that is there"
            )
            found.error("RL0306", stage.origins.at("model"), message, advice, label)
            return


def report_states(stages: Sequence[CheckedStage], found: Diagnostics) -> None:
    """Refuse a state with its optimiser of a model that no stage trains from there."""
    trained = {
        plan.model.name for plan in (one.plan() for one in stages) if plan.trains and not plan.after
    }
    for stage in stages:
        model = stage.parts["model"]
        if model.with_optimizer and model.name not in trained:
            message = f"`{model.name}` goes on with the state of its optimiser, and is not trained"
            advice = f'name its weights alone: `weights = "{model.weights}"`'
            found.error("RL0870", stage.origins.at("model.weights"), message, advice)
            trained.add(model.name)


def report_evaluations(stages: Sequence[CheckedStage], recipe: str, found: Diagnostics) -> None:
    """Warn where what is evaluated on the way costs more than what it is on the way of."""
    plans: tuple[StagePlan, ...] = tuple(stage.plan() for stage in stages)
    if not any(_is_often_evaluated(plan, plans) for plan in plans):
        return  # the files of most need not be measured
    from rlc.catalog import located_stages
    from rlc.pricing import heldout_count, stage_cost

    plans = located_stages(plans, recipe)
    by_name = {plan.name: plan for plan in plans}
    origins = {stage.name: stage.origins for stage in stages}
    for plan in plans:
        if not is_training(plan) or not _is_often_evaluated(plan, plans):
            continue
        if heldout_count(plan) is None:
            continue  # its price is assumed
        due = [one for one in evaluations_of(plan, plans) if one.every is not None]
        costs = stage_cost(plan), *(stage_cost(one, by_name) for one in due)
        paid = any(cost.total("expected") for cost in costs)
        own, *others = (
            {kind: money.usd for kind, money in cost.bill["expected"].items()}
            if paid
            else cost.parts("expected")
            for cost in costs
        )
        evaluated = own.pop("evaluation", 0.0) + sum(sum(bill.values()) for bill in others)
        if evaluated > sum(own.values()) > 0:
            shown = in_dollars if paid else "{:,.0f} tokens".format
            message = f"evaluations of `{plan.name}` are expected to take {shown(evaluated)}, and "
            message += f"its training {shown(sum(own.values()))}"
            advice = "evaluate less often, or fewer tasks or samples; more at the end is fine"
            place = origins[due[0].name if due else plan.name].at("every")
            found.warning("RL0446", place, message, advice)


def _is_often_evaluated(plan: StagePlan, plans: Sequence[StagePlan]) -> bool:
    """Return whether more episodes are evaluated on the way than there are tasks, or data is."""
    if not is_training(plan):
        return False
    due = [one for one in evaluations_of(plan, plans) if one.every is not None]
    played = sum(one.tasks * one.samples * (plan.steps // (one.every or 1)) for one in due)
    batch: Any = plan.source.batch
    learnt = plan.steps * getattr(batch, "count", batch)
    return played > learnt or (plan.heldout is not None and plan.every is not None)


def _is_limited(plan: StagePlan) -> bool:
    budget = plan.budget if is_training(plan) else None
    return budget is not None and not (budget.usd is None and budget.tokens is None)


def _limits(plan: Training, costs: Sequence[StageCost]) -> Iterator[_Limit]:
    """Yield the limits of a stage; ``costs`` are its own and those of its evaluations."""
    cost = costs[0]
    if (usd := plan.budget.usd) is not None:
        whole = sum(part.total("expected").usd for part in costs)
        least = cost.step["low"].usd
        yield _Limit("usd", usd, least, whole / plan.steps, whole, in_dollars)
    if (tokens := plan.budget.tokens) is not None:
        whole = sum(part.tokens("expected") for part in costs)
        least = cost.step_tokens["low"].total
        yield _Limit("tokens", tokens, least, whole / plan.steps, whole, "{:,.0f} tokens".format)
