"""Rules on how a stage learns: its advantages, loss and optimizer, and the overlap of steps."""

from __future__ import annotations

from collections.abc import Iterator

from rlc.algo import IN_TASK, PROCESS, Baseline, Clip, Scale, WeightedSum, divides_by_mean, reads
from rlc.catalog import (
    BUILTINS,
    LIKELIHOOD,
    LORA_RATES,
    NO_ADVANTAGE,
    can_weigh,
    env_facts,
    find_model,
    finds_answers,
    grader_traits,
    learns_targets_alone,
    loss_traits,
    max_turns,
    players_of_role,
    roles_of,
    source_traits,
    teacher_traits,
    with_role,
)
from rlc.check.rules.view import StageView, rule, teacher_paths
from rlc.lang import Label
from rlc.plan import MAX_TURNS, EnvPlan, FailurePlan, barriers, teacher_of


@rule("batch", "advantage", "envs")
def _group_needs_peers(view: StageView) -> None:
    alone = (e for e in view.envs if e.rollouts.group == 1 and players_of_role(e) == 1)
    env = next((env for env in alone if env.play is None), None)  # of games other rules know
    if env is None:
        return
    for path, over, keeps_single in view.compared():
        if over not in IN_TASK or keeps_single:
            continue
        label = Label(view.at(path), f"this compares within a {over}")
        if view.batch.kind == "turns":
            message = "`turns()` plays every task once, so no rollout has a group to compare with"
            advice = "use `groups(16, group_size = 8)`, or compare over the batch, as `rebn()` does"
        else:
            message = "a group of 1 has nothing to compare with: every advantage would be 0"
            advice = "play each task more often, for example `group_size = 8`"
        view.error("RL0308", f"envs.{env.name}.rollouts.group", message, advice, label)
        return


@rule("batch", "advantage", "envs")
def _every_role_has_peers(view: StageView) -> None:
    for env in view.envs:
        game = with_role(env, "game")
        if game is None or env.rollouts.group > 1 or players_of_role(env) == 1:
            continue
        for path, over, keeps_single in view.compared():
            if over == "role" and not keeps_single:
                label = Label(view.at(path), "compares each role with its like")
                message = f"a group of 1 of `{env.name}` has one judge, who gets 0 every time"
                advice = "play each task more often, for example `group_size = 8`"
                view.warning("RL0426", f"envs.{env.name}.rollouts.group", message, advice, label)
                break


@rule("advantage", "envs")
def _roles_are_compared(view: StageView) -> None:
    """Without roles, ``over = role`` means the group; a default of a preset is no mistake."""
    env = next((env for env in view.envs if len(roles_of(env)) > 1), None)
    have_roles = any(env.play is not None or roles_of(env) for env in view.envs)
    means = {} if have_roles else {"role": "group", "batch_role": "batch"}
    for at, over, _ in view.compared():
        if env is not None and over == "group":
            game = with_role(env, "game")
            where = f"`{game.name}()`" if game else f"`{env.name}`"
            message = f"all roles of {where} are compared with each other here"
            advice = "compare each with its like: `scope = role`, or `over = role` in a step"
            view.warning("RL0425", at, message, advice)
            return
        origin = view.origins.provenance().get(at, "default of ")
        if over in means and not origin.startswith("default of "):
            message = f"no environment here has roles, so `{over}` means `{means[over]}`"
            advice = f"write `{means[over]}`, or give roles to one: `|> solver_judge()`"
            view.warning("RL0423", at, message, advice)
            return


@rule("advantage")
def _steps_have_an_effect(view: StageView) -> None:
    for path, step in view.steps_of_scheme():
        match step:
            case Baseline(kind="length_weighted", weight="value"):
                message = (
                    "`weight` has no effect on a `length_weighted` baseline, which counts tokens"
                )
                advice = "leave `weight` out, or write `weight = tokens`"
                view.error("RL0408", f"{path}.weight", message, advice)
            case Baseline(kind="best_of_others", weight="tokens"):
                message = "a `best_of_others` baseline is one value, and weighs nothing"
                view.error("RL0408", f"{path}.weight", message, "leave `weight` out")
            case Scale(kind="mean" | "nonzero_share", ddof=ddof) if ddof != 1:
                message = f"`ddof` belongs to a deviation, and this divides by `{step.kind}`"
                view.error("RL0312", f"{path}.ddof", message, "remove it, or divide by `std`")
            case Clip(low=None | 0 as low, high=high) if low == high:
                nothing = "a clip without a limit changes nothing"
                message = "nothing but 0 is left of the advantages" if low == 0 else nothing
                if view.advantage != NO_ADVANTAGE:
                    view.error("RL0422", path, message, "for example `clip(-5, 5)`")


@rule("advantage")
def _spread_after_baseline(view: StageView) -> None:
    if view.advantage.keep is not None:
        return
    for path, step in view.steps_of_scheme():
        if isinstance(step, Baseline):
            return
        if isinstance(step, Scale) and step.kind == "std" and step.over in IN_TASK:
            message = f"a {step.over} of equal returns gets 0 here, however good they are"
            advice = f"write `|> baseline(mean, over = {step.over})` before it"
            view.warning("RL0420", path, message, advice)
            return


@rule("advantage", "envs", "on_error")
def _mean_is_positive(view: StageView) -> None:
    """MaxRL means a success rate by the mean."""
    reason = next(_negative_rewards(view.envs, view.on_error), None)
    if reason is not None and divides_by_mean(view.advantage.result):
        by_mean = (p for p, s in view.steps_of_scheme() if getattr(s, "kind", None) == "mean")
        path = next(by_mean, "advantage")
        message = "it divides by the mean return, and rewards can be negative here"
        advice = f"{reason}; where the mean is not positive all get 0: `reward(low = 0)`"
        view.warning("RL0421", path, message, advice)


def _negative_rewards(envs: tuple[EnvPlan, ...], on_error: FailurePlan) -> Iterator[str]:
    if on_error.penalty is not None and on_error.penalty < 0:
        yield f"a failed rollout counts {on_error.penalty:g}"
    for env in envs:
        if env.reward.low is not None and env.reward.low >= 0:
            continue
        if env.reward.nonterminal is not None and env.reward.nonterminal < 0:
            yield f"an unfinished episode of `{env.name}` counts {env.reward.nonterminal:g}"
        if penalty := env_facts(env).penalty:
            what, amount = penalty
            yield f"{what} in `{env.name}` counts -{amount:g}"


def _sums(view: StageView) -> list[str]:
    """Return the path of what keeps the components of the reward apart; empty if nothing does."""
    if not reads(view.advantage, "parts"):
        return []
    steps = (path for path, step in view.steps_of_scheme() if isinstance(step, WeightedSum))
    return [next(steps, "advantage")]


@rule("advantage", "envs")
def _components_stay_apart(view: StageView) -> None:
    """A reward has several components, and nothing makes one number of them before."""
    paths = _sums(view)
    if len(paths) == 1 and not any(map(_may_have_components, view.envs)):
        message = "the rewards have one component each, so that there is nothing to weigh"
        advice = (
            "give an environment several, `grader = { right = math  brief = grade_with(…) }`, "
            "or take `grpo()`"
        )
        view.warning("RL0775", paths[0], message, advice)
    for env in view.envs if paths else ():
        of_the_whole = ("shaped", "nonterminal", "low", "high")
        shaped = [name for name in of_the_whole if getattr(env.reward, name) is not None]
        if shaped:
            message = (
                f"`{shaped[0]}` is about the whole reward of `{env.name}`, whose components are "
                "normalised one by one here"
            )
            advice = "remove it, or take an advantage of the whole reward, such as `grpo()`"
            view.error("RL0776", f"envs.{env.name}.reward.{shaped[0]}", message, advice)


def _may_have_components(env: EnvPlan) -> bool:
    penalty = finds_answers(env) and bool(env.args.get("format_coef"))
    code = any(grader_traits(part.grader).code for part in env.graders)
    judges = bool(env.judging)  # a rubric may have several criteria
    return code or judges or len(env.graders) + penalty > 1


@rule("advantage", "on_error")
def _a_penalty_is_no_component(view: StageView) -> None:
    if _sums(view) and view.on_error.penalty is not None:
        message = "a failed rollout has no components to compare, so a penalty has no effect"
        advice = "drop failures, or take an advantage of the whole reward, such as `grpo()`"
        view.error("RL0777", "on_error.penalty", message, advice)


# What is plausible for the bounds of a clip.
_SEQUENCE = 0.05  # the ratio of a sequence stays so near 1
_TOKEN = 0.5  # the smallest ratio of a token, unless it is 0
_EPSILON = 0.5  # what is no larger may be meant as a distance from 1


@rule("loss", "overlap")
def _ratios_are_bounded(view: StageView) -> None:
    """Without a clip, the ratio of a stale rollout can grow without bound. A loss of the recipe's
    own may be right all the same, so that is a warning."""
    stale, is_own = view.overlap.max_staleness, view.loss.program is not None
    batch = view.parts.get("batch")
    if loss_traits(view.loss).takes_stale:
        return
    path, why = "overlap.max_staleness", f"rollouts may be {stale} steps old"
    if stale <= 1:
        path, why = "batch.updates", "the later ones are off-policy"
    if stale > 1 and not is_own:
        label = Label(view.at(path), why)
        message = f"{view.named('loss')} has no clip, and rollouts may come from weights {stale} "
        message += "steps old"
        stable = (b for b in BUILTINS if b.kind == "loss" and b.traits.takes_stale)
        *others, last = (f"`{builtin.usage()}`" for builtin in stable)
        view.error("RL0313", "loss", message, f"use {', '.join(others)} or {last}", label)
    elif is_own and batch and (stale > 1 or batch.updates > 1):
        message = (
            f"nothing in `{view.loss.name}` bounds the weight of a token whose ratio has grown"
        )
        advice = "`min`, `clip` or `sigmoid` of the ratio bounds it, as `ppo()` and `cispo()` do"
        view.warning("RL0651", "loss", message, advice, Label(view.at(path), why))


@rule("loss", "advantage", "kl", "teacher")
def _reference_is_there(view: StageView) -> None:
    of_loss = loss_traits(view.loss).reference
    if of_loss and view.kl is None and not view.teacher:
        message = f"`{view.loss.name}` reads `ref`, and this stage has no reference"
        advice = (
            "`kl = reference(policy.base, coef = 0)` gives it one; a `coef` above 0 takes the "
            "distance off the advantages too"
        )
        label = Label(view.at("loss.program"), "read for this")
        view.error("RL0648", "loss", message, advice, label)
    elif of_loss or reads(view.advantage, "ref") or view.kl is None:
        return
    elif not view.kl.coef:
        message = "the reference reads every sequence, and a `coef` of 0 changes nothing"
        advice = "give it a `coef`, remove it, or read `ref` in a loss or advantage of your own"
        view.error("RL0658", "kl.coef", message, advice)


@rule("advantage", "kl", "teacher", "envs")
def _scores_are_there(view: StageView) -> None:
    """What an advantage reads of other models is asked of these, and counts once."""
    name, kl = view.advantage.name, view.kl
    if reads(view.advantage, "ref"):
        if kl is None:
            message = f"`{name}` reads `ref`, and this stage has no reference"
            advice = "`kl = reference(policy.base, coef = 0)` gives it one"
            view.error("RL0648", "advantage", message, advice)
        elif kl.coef:
            message = f"`{name}` reads `ref`, and `kl` takes the distance off the advantages again"
            view.warning("RL0662", "kl.coef", message, "`coef = 0` leaves it to the advantage")
    if reads(view.advantage, PROCESS):
        for env in view.envs:
            own = source_traits(env.source).code
            if not own and not any(grader_traits(one.grader).code for one in env.graders):
                message = f"`{name}` reads `{PROCESS}`, and `{env.name}` gives no process rewards"
                advice = "a function of `grade_with(…)` returns them as `steps`, an environment of "
                advice += "your own with each observation"
                view.error("RL0648", "advantage", message, advice)
    if not reads(view.advantage, "teacher"):
        return
    without = [e.name for e in view.envs if teacher_of(view.teacher, e.name) is None]
    if without:
        message = f"`{name}` reads `teacher`, and nothing teaches `{without[0]}`"
        advice = "`teacher = reverse_kl(…, coef = 0)` gives it one"
        view.error("RL0648", "advantage", message, advice)
    for path, teacher in teacher_paths(view):
        if teacher.coef and not teacher_traits(teacher.kind).targets:
            message = f"`{name}` reads `teacher`, whose scores are added to the advantages again"
            advice = "`coef = 0` leaves them to the advantage"
            view.warning("RL0662", f"{path}.coef", message, advice)


@rule("loss", "advantage", "kl", "teacher")
def _loss_acts(view: StageView) -> None:
    if not learns_targets_alone(view.advantage, view.kl, view.teacher):
        return
    traits = loss_traits(view.loss)
    if view.loss == LIKELIHOOD or traits.pull is not None or traits.weighted:
        return
    label = Label(view.at("teacher"), "what it names is learnt by a cross-entropy of its own")
    message = f"{view.named('loss')} has nothing to act on: no token has an advantage"
    advice = f"use `{LIKELIHOOD.name}()`, or give the stage an `advantage`"
    view.error("RL0752", "loss", message, advice, label)


@rule("loss", "advantage")
def _clip_range(view: StageView) -> None:
    """The bounds of a clip are ratios around 1; elsewhere they are often distances ε from 1."""
    traits = loss_traits(view.loss)
    bounds, between = traits.bounds, traits.range_of(view.loss)
    if bounds is None or between is None:
        return
    first, last = (f"loss.config.{traits.config[name]}" for name in bounds)
    low, high = between
    if low >= high:
        message = f"{bounds[0]} = {low:g} is not below {bounds[1]} = {high:g}: no ratio is between"
        view.error("RL0424", first, message, _as_ratios(bounds, low, high))
    elif high < 1 or low > 1:
        path, of = (last, bounds[1]) if high < 1 else (first, bounds[0])
        bound = high if high < 1 else low
        message = f"{of} = {bound:g} cuts off even the ratio 1, that of a token sampled just now"
        view.error("RL0424", path, message, _as_ratios(bounds, low, high))
    elif traits.per_sequence and (0 < low < 1 - _SEQUENCE or high > 1 + _SEQUENCE):
        path = first if 0 < low < 1 - _SEQUENCE else last
        message = f"the ratio of a whole sequence hardly ever leaves {low:g} to {high:g}"
        advice = "it is a geometric mean over the tokens, and moves by thousandths: 0.9997, 1.0004"
        view.warning("RL0424", path, message, advice)
    elif 0 < low < _TOKEN:
        message = f"{bounds[0]} = {low:g} is the smallest ratio that counts, and no distance from 1"
        view.warning("RL0424", first, message, _as_ratios(bounds, low, None))


def _as_ratios(bounds: tuple[str, str], low: float, high: float | None) -> str:
    below = f"{bounds[0]} = {1 - low:g}" if 0 < low <= _EPSILON else ""
    above = f"{bounds[1]} = {1 + high:g}" if high is not None and high <= _EPSILON else ""
    if written := ", ".join(filter(None, (below, above))):
        return f"an ε is written as the ratio that it leads to: `{written}`"
    return "they are ratios around 1, for example 0.8 and 1.2 for an ε of 0.2"


@rule("loss", "overlap", "batch", "advantage", "kl", "teacher")
def _ratio_matters(view: StageView) -> None:
    """With fresh rollouts and one update a batch, every ratio is 1. Otherwise nothing but a ratio
    corrects for weights that differ from those that sampled."""
    traits, stale = loss_traits(view.loss), view.overlap.max_staleness
    if learns_targets_alone(view.advantage, view.kl, view.teacher):  # a rule above
        return
    is_fresh = not stale and view.batch.updates == 1
    if is_fresh and traits.clip == "gradient":
        message = f"{view.named('loss')} never clips: each batch is new and used for one update"
        advice = "`importance_sampling()` has the same gradient; `updates = 2` would make it matter"
        view.warning("RL0413", "loss", message, advice)
    elif not is_fresh and not traits.sampler_logprobs:
        path = "overlap.max_staleness" if stale else "batch.updates"
        label = Label(view.at(path), "these weights are others than those that sampled")
        message = f"{view.named('loss')} takes every rollout as fresh, and not all are"
        advice = "`importance_sampling()` corrects for it, `ppo()` and `cispo()` with a limit"
        view.warning("RL0435", "loss", message, advice, label)


@rule("aggregate", "sampling", "envs")
def _norm_length(view: StageView) -> None:
    length = view.aggregate.length
    longest = max(
        ((max_turns(env) or MAX_TURNS) * env.rollouts.max_tokens for env in view.envs), default=0
    )
    if length is None or length <= longest:
        return
    message = f"no episode has {length:,} sampled tokens: the longest has {longest:,}"
    advice = f"dividing by more than that only shrinks the gradient; `length = {longest:_}`"
    view.warning("RL0438", "aggregate.length", message, advice)


@rule("loss", "aggregate")
def _weighable(view: StageView) -> None:
    """Weights of sequences fold into the advantages only if the loss is linear in them."""
    if not can_weigh(view.aggregate, view.loss):
        pull, kind = loss_traits(view.loss).pull, view.aggregate.kind
        label = Label(view.at("loss"), "its quadratic term does not scale with the advantage")
        message = f"{view.named('loss')} cannot be weighted by `{kind}()`"
        advice = "use `token_mean()`, or another loss"
        if pull not in view.loss.config:
            advice = f"give `{pull}`, which is the service's own here, or use `token_sum()`"
        view.error("RL0314", "aggregate", message, advice, label)


@rule("kl")
def _penalty_leaves_the_reward(view: StageView) -> None:
    coef = max(view.kl.coef, view.kl.final or 0) if view.kl is not None else 0
    if view.kl is not None and view.kl.final is not None and not view.kl.coef:
        message = "`final` has no effect: with a `coef` of 0 there is no penalty in any step"
        view.error("RL0312", "kl.final", message, "begin above 0, for example `coef = 0.001`")
    if coef > 1:
        message = f"a nat away from the reference costs {coef:g}, more than any answer earns"
        view.warning("RL0440", "kl.coef", message, "0.001 to 0.1 is usual")


_LARGEST_EPS = 1e-4  # beyond, it weighs more than most gradients and Adam no longer adapts


@rule("model", "optimizer")
def _learning_rate(view: StageView) -> None:
    rate, model = view.optimizer.learning_rate, find_model(view.model.base)
    low, high = model.learning_rates if model else (LORA_RATES[0], 1.0)
    path = "optimizer.learning_rate"
    if rate == 0:
        message = "with a learning rate of 0 the model does not change"
        view.warning("RL0403", path, message, "fine for a control run")
    elif rate < low:
        message = f"a learning rate of {rate:g} hardly moves a LoRA adapter"
        full = "such rates are for full fine-tuning; " if rate >= low / 100 else ""
        advice = f"{full}LoRA mostly takes between {low:g} and {min(high, LORA_RATES[1]):g}"
        view.warning("RL0403", path, message, advice)
    elif rate > high:
        message = f"a learning rate of {rate:g} is far from what works with `{view.model.base}`"
        advice = f"LoRA with RL mostly takes between {low:g} and {high:g}"
        view.warning("RL0403", path, message, advice)


@rule("optimizer")
def _optimizer_is_plausible(view: StageView) -> None:
    adam, schedule, steps = view.optimizer, view.optimizer.schedule, view.parts.get("steps")
    if steps and schedule.warmup >= steps and not view.is_from_command_line("steps"):
        message = f"the rate still rises when the run ends: warmup = {schedule.warmup} of {steps}"
        advice = "a few steps are usual, at most a tenth of all"
        view.warning("RL0431", "optimizer.schedule.warmup", message, advice)
    if "steps" in view.parts and schedule.kind != "constant" and schedule.floor == 1:
        message = f"`{schedule.kind}()` with a floor of the whole rate never falls"
        advice = "use a smaller floor, or `constant()`"
        view.warning("RL0431", "optimizer.schedule.floor", message, advice)
    if adam.beta1 > adam.beta2:
        message = f"beta1 = {adam.beta1:g} is more than beta2 = {adam.beta2:g}"
        advice = "the mean of the gradient forgets sooner than that of its square; swap them"
        view.warning("RL0432", "optimizer.beta1", message, advice)
    if adam.eps > _LARGEST_EPS:
        message = f"eps = {adam.eps:g} outweighs most gradients, and Adam no longer adapts"
        view.warning("RL0432", "optimizer.eps", message, "1e-8 is usual, or 1e-12")


@rule("overlap", "batch")
def _parts_have_groups(view: StageView) -> None:
    parts, batch = view.overlap.minibatches, view.batch
    groups = batch.at_once
    if parts > groups:
        message = f"{groups:,} groups cannot come in {parts:,} parts"
        advice = f"at most `minibatches = {groups}`"
        if groups == 1:
            message, advice = "one group cannot come in parts", "use `synchronous()`"
        view.warning("RL0327", "overlap.minibatches", message, advice)


@rule("overlap", "batch", "advantage", "loss", "aggregate", "kl", "teacher")
def _something_is_streamed(view: StageView) -> None:
    """Where the gradient waits for the whole batch, other models can still read its parts."""
    overlap = view.overlap
    if overlap.minibatches == 1:
        return
    if view.kl is not None or view.teacher:
        return
    found = barriers(view.advantage, view.loss, view.aggregate, None, view.batch)
    waits = {barrier.why: barrier.path for barrier in found}
    if waits:
        labels = (Label(view.at(path), why) for why, path in waits.items())
        path, what = "overlap", "`streamed()`"
        advice = "use `synchronous()`, which does the same, or `asynchronous()`, which overlaps"
        if overlap.kind == "asynchronous":
            path, what = "overlap.minibatches", f"`minibatches = {overlap.minibatches}`"
            advice = "leave it out"
        message = f"{what} has no effect: the gradient waits for the whole batch"
        advice += (
            "; a gradient can be streamed that compares within groups, adds up by `token_sum()` "
            "and is one update"
        )
        view.warning("RL0319", path, message, advice, *labels)
