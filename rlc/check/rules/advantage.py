"""Rules on the advantage scheme, and on the batch and the rewards that it is computed from."""

from __future__ import annotations

from collections.abc import Iterator

from rlc.algo import (
    AdvantageStep,
    Baseline,
    Clip,
    Scale,
    WeightedSum,
    running_baseline,
    sums_components,
)
from rlc.catalog import (
    NO_ADVANTAGE,
    env_facts,
    finds_answers,
    grader_traits,
    players_of_role,
    roles_of,
    with_role,
)
from rlc.check.view import StageView, rule
from rlc.lang import Label
from rlc.plan import EnvPlan, FailurePlan


@rule("batch", "advantage", "envs")
def _group_needs_peers(view: StageView) -> None:
    """A group of one has nothing to compare with."""
    alone = (e for e in view.envs if e.rollouts.group == 1 and players_of_role(e) == 1)
    env = next((env for env in alone if env.play is None), None)  # of games other rules know
    if env is None:
        return
    for path, step in view.steps_of_scheme():
        over = getattr(step, "over", None)
        if over not in ("group", "role") or _keeps_returns(step):
            continue
        what = "baseline" if isinstance(step, Baseline) else "scale"
        label = Label(view.at(path), f"this {what} compares within a {over}")
        if view.batch.kind == "turns":
            message = "`turns()` plays every task once, so no rollout has a group to compare with"
            advice = "use `groups(16, group_size = 8)`, or compare over the batch, as `rebn()` does"
        else:
            message = "a group of 1 has no peers: every advantage would be 0"
            advice = "play each task more often, for example `group_size = 8`"
        view.error("RL0308", f"envs.{env.name}.rollouts.group", message, advice, label)
        return


def _keeps_returns(step: AdvantageStep) -> bool:
    """Whether what has no peers keeps its return."""
    return isinstance(step, Baseline) and step.singleton == "raw"


@rule("batch", "advantage", "envs")
def _every_role_has_peers(view: StageView) -> None:
    """Of a game that is played once, the role of which there is one has nobody to compare with."""
    for env in view.envs:
        game = with_role(env, "game")
        if game is None or env.rollouts.group > 1 or players_of_role(env) == 1:
            continue
        for path, step in view.steps_of_scheme():
            if getattr(step, "over", None) == "role" and not _keeps_returns(step):
                label = Label(view.at(f"{path}.over"), "compares each role with its like")
                message = f"a group of 1 of `{env.name}` has one judge, who gets 0 every time"
                advice = "play each task more often, for example `group_size = 8`"
                view.warning("RL0426", f"envs.{env.name}.rollouts.group", message, advice, label)
                break


@rule("advantage", "envs")
def _roles_are_compared_apart(view: StageView) -> None:
    """A solver's reward says nothing about a judge's."""
    env = next((env for env in view.envs if len(roles_of(env)) > 1), None)
    for path, step in view.steps_of_scheme():
        if env is not None and getattr(step, "over", None) == "group":
            game = with_role(env, "game")
            where = f"`{game.name}()`" if game else f"`{env.name}`"
            message = f"all roles of {where} are compared with each other here"
            advice = "compare each with its like: `scope = role`, or `over = role` in a step"
            view.warning("RL0425", f"{path}.over", message, advice)
            return


@rule("advantage")
def _weight_counts(view: StageView) -> None:
    """Some baselines ignore ``weight``: they have a way of counting of their own."""
    for path, step in view.steps_of_scheme():
        kind, weight = getattr(step, "kind", None), getattr(step, "weight", None)
        if kind == "length_weighted" and weight == "value":
            message = "a `length_weighted` baseline counts tokens, whatever `weight` says"
            advice = "leave `weight` out, or write `weight = tokens`"
            view.error("RL0408", f"{path}.weight", message, advice)
        if kind == "best_of_others" and weight == "tokens":
            message = "a `best_of_others` baseline is one value, and weighs nothing"
            view.error("RL0408", f"{path}.weight", message, "leave `weight` out")


@rule("advantage")
def _setting_belongs(view: StageView) -> None:
    """``ddof`` is about deviations."""
    for path, step in view.steps_of_scheme():
        if isinstance(step, Scale) and step.kind in ("mean", "nonzero_share") and step.ddof != 1:
            message = f"`ddof` belongs to a deviation, and this divides by `{step.kind}`"
            view.error("RL0312", f"{path}.ddof", message, "take it out, or divide by `std`")


@rule("advantage")
def _spread_after_baseline(view: StageView) -> None:
    """Without a baseline, a spread of 0 turns equal returns into 0, however good they are."""
    if view.advantage.constant == "drop":
        return
    for path, step in view.steps_of_scheme():
        if isinstance(step, Baseline):
            return
        if isinstance(step, Scale) and step.kind == "std" and step.over in ("group", "role"):
            message = f"a {step.over} of equal returns gets 0 here, however good they are"
            advice = f"write `|> baseline(mean, over = {step.over})` before it"
            view.warning("RL0420", path, message, advice)
            return


@rule("advantage", "envs", "on_error")
def _mean_is_positive(view: StageView) -> None:
    """MaxRL means a success rate by the mean."""
    for path, step in view.steps_of_scheme():
        if isinstance(step, Scale) and step.kind == "mean":
            reason = next(_negative_rewards(view.envs, view.on_error), None)
            if reason is not None:
                message = "it divides by the mean return, and rewards can be negative here"
                advice = f"{reason}; where the mean is not positive all get 0: `reward(low = 0)`"
                view.warning("RL0421", path, message, advice)
            return


def _negative_rewards(envs: tuple[EnvPlan, ...], on_error: FailurePlan) -> Iterator[str]:
    """Where rewards below 0 are known to come from."""
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


@rule("advantage")
def _average_of_the_whole_reward(view: StageView) -> None:
    """A moving average is of returns, and components of a reward have none of their own."""
    if running_baseline(view.advantage) is not None and sums_components(view.advantage):
        message = "one moving average is kept, of returns, and components of a reward are added up"
        advice = "take out `weighted_sum()`, or compare the components within groups: `gdpo()`"
        view.error("RL0789", "advantage", message, advice)


@rule("advantage")
def _clip_leaves_something(view: StageView) -> None:
    """A clip has a limit, and leaves more than 0."""
    if view.advantage == NO_ADVANTAGE:
        return
    for path, step in view.steps_of_scheme():
        if isinstance(step, Clip) and step.low == step.high and step.low in (None, 0):
            nothing = "a clip without a limit changes nothing"
            message = "nothing but 0 is left of the advantages" if step.low == 0 else nothing
            view.error("RL0422", path, message, "for example `clip(-5, 5)`")


@rule("advantage", "envs")
def _roles_exist(view: StageView) -> None:
    """Without roles, a comparison within roles is one within groups, or the batch. It is no mistake
    if nobody wrote it: some presets do so by themselves."""
    if any(env.play is not None or roles_of(env) for env in view.envs):
        return
    means = {"role": "group", "batch_role": "batch"}
    for path, step in view.steps_of_scheme():
        over, at = getattr(step, "over", ""), f"{path}.over"
        if over in means and view.at(at) != view.at(path) and not view.origins.is_default(at):
            message = f"no environment here has roles, so `{over}` means `{means[over]}`"
            advice = f"write `{means[over]}`, or give roles to one: `|> solver_judge()`"
            view.warning("RL0423", at, message, advice)
            return


def _sums(view: StageView) -> list[str]:
    """The paths of the steps that add up the components of the reward."""
    return [path for path, step in view.steps_of_scheme() if isinstance(step, WeightedSum)]


@rule("advantage")
def _components_are_summed_once(view: StageView) -> None:
    for path in _sums(view)[1:]:
        message = "the components of the reward are added up before this"
        view.error("RL0774", path, message, "take it out: one `weighted_sum()` is enough")


@rule("advantage", "envs")
def _there_are_components(view: StageView) -> None:
    """What a function of the user's own returns is not known here."""
    paths = _sums(view)
    if len(paths) == 1 and not any(_may_have_components(env) for env in view.envs):
        message = "the rewards have one component each, so that there is nothing to weigh"
        advice = (
            "give an environment several, `grader = { right = math  brief = grade_with(…) }`, "
            "or take `grpo()`"
        )
        view.warning("RL0775", paths[0], message, advice)


def _may_have_components(env: EnvPlan) -> bool:
    penalty = finds_answers(env) and bool(env.args.get("format_coef"))
    code = any(grader_traits(part.grader).code for part in env.graders)
    judges = bool(env.judging)  # a rubric may have several criteria
    return code or judges or len(env.graders) + penalty > 1


@rule("advantage", "envs")
def _components_stay_apart(view: StageView) -> None:
    """What is made of the whole reward makes it one number again."""
    for env in view.envs if _sums(view) else ():
        of_the_whole = ("shaped", "nonterminal", "low", "high")
        shaped = [name for name in of_the_whole if getattr(env.reward, name) is not None]
        if shaped:
            message = (
                f"`{shaped[0]}` is about the whole reward of `{env.name}`, whose components are "
                "normalised one by one here"
            )
            advice = "take it out, or take an advantage of the whole reward, such as `grpo()`"
            view.error("RL0776", f"envs.{env.name}.reward.{shaped[0]}", message, advice)


@rule("advantage", "on_error")
def _a_penalty_is_no_component(view: StageView) -> None:
    if _sums(view) and view.on_error.penalty is not None:
        message = "a failed rollout has no components to compare, whatever its penalty"
        advice = "drop failures, or take an advantage of the whole reward, such as `grpo()`"
        view.error("RL0777", "on_error.penalty", message, advice)
