"""Rules on the loss: what it asks of the rollouts, of the weights, and of overlap."""

from __future__ import annotations

from rlc.catalog import (
    BUILTINS,
    LIKELIHOOD,
    aggregate_traits,
    learns_targets_alone,
    loss_traits,
    max_turns,
)
from rlc.check.view import StageView, rule
from rlc.lang import Label
from rlc.plan import MAX_TURNS

# What is plausible for the bounds of a clip.
_SEQUENCE = 0.05  # the ratio of a sequence stays so near 1
_TOKEN = 0.5  # the smallest ratio of a token, unless it is 0
_EPSILON = 0.5  # what is no larger may be meant as a distance from 1


@rule("loss", "overlap")
def _fresh_rollouts(view: StageView) -> None:
    """Without a clip, the ratio of a stale rollout can grow without bound."""
    stale, name = view.overlap.max_staleness, view.named("loss")
    if stale > 1 and view.loss.program is None and not loss_traits(view.loss).takes_stale:
        label = Label(view.at("overlap.max_staleness"), f"rollouts may be {stale} steps old")
        message = f"{name} has no clip, and rollouts may come from weights {stale} steps old"
        stable = (b for b in BUILTINS if b.kind == "loss" and b.traits.takes_stale)
        *others, last = (f"`{builtin.usage()}`" for builtin in stable)
        view.error("RL0313", "loss", message, f"take {', '.join(others)} or {last}", label)


@rule("loss", "overlap", "batch")
def _own_loss_is_bounded(view: StageView) -> None:
    """The same of a recipe's own loss, which may be right all the same; and of a second update."""
    stale, updates = view.overlap.max_staleness, view.batch.updates
    if view.loss.program is None or (stale <= 1 and updates == 1):
        return
    if loss_traits(view.loss).takes_stale:
        return
    path = "overlap.max_staleness" if stale > 1 else "batch.updates"
    said = f"rollouts may be {stale} steps old" if stale > 1 else "the later ones are off-policy"
    message = f"nothing in `{view.loss.name}` bounds the weight of a token whose ratio has grown"
    advice = "`min`, `clip` or `sigmoid` of the ratio bounds it, as `ppo()` and `cispo()` do"
    view.warning("RL0651", "loss", message, advice, Label(view.at(path), said))


@rule("loss", "kl", "teacher")
def _reference_is_there(view: StageView) -> None:
    """What a loss compares with a reference is the logprobs of that of the stage."""
    reads = loss_traits(view.loss).reference
    if reads and view.kl is None and not view.teacher:
        message = f"`{view.loss.name}` reads `ref`, and this stage has no reference"
        advice = (
            "`kl = reference(policy.base, coef = 0)` gives it one; a `coef` above 0 takes the "
            "distance off the advantages too"
        )
        label = Label(view.at("loss.program"), "read for this")
        view.error("RL0648", "loss", message, advice, label)
    elif view.kl is not None and not view.kl.coef and not reads:
        message = "the reference reads every sequence, and a `coef` of 0 changes nothing"
        advice = "give it a `coef`, take it out, or read `ref` in a loss of your own"
        view.error("RL0658", "kl.coef", message, advice)


@rule("loss", "advantage", "kl", "teacher")
def _loss_acts(view: StageView) -> None:
    """A loss that only weighs advantages has nothing to weigh where no token has one."""
    if not learns_targets_alone(view.advantage, view.kl, view.teacher):
        return
    traits = loss_traits(view.loss)
    if view.loss == LIKELIHOOD or traits.pull is not None or traits.weighted:
        return
    label = Label(view.at("teacher"), "what it names is learnt by a cross-entropy of its own")
    message = f"{view.named('loss')} has nothing to act on: no token has an advantage"
    advice = f"take `{LIKELIHOOD.name}()`, or give the stage an `advantage`"
    view.error("RL0752", "loss", message, advice, label)


@rule("loss", "overlap", "batch", "advantage", "kl", "teacher")
def _clip_acts(view: StageView) -> None:
    """With one update a batch, and fresh rollouts, every ratio is 1 and no clip ever acts."""
    if loss_traits(view.loss).clip != "gradient":
        return
    if learns_targets_alone(view.advantage, view.kl, view.teacher):  # a rule above
        return
    if view.overlap.max_staleness or view.batch.updates > 1:
        return
    message = f"the clip of {view.named('loss')} never acts: each batch is fresh, and used once"
    advice = "`importance_sampling()` has the same gradient; `updates = 2` would make it matter"
    view.warning("RL0413", "loss", message, advice)


@rule("loss", "advantage")
def _clip_range(view: StageView) -> None:
    """The bounds of a clip are ratios, which are 1 where nothing has changed; elsewhere they are
    often given as distances ε from 1."""
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
    """How bounds are written that were given as distances from 1."""
    below = f"{bounds[0]} = {1 - low:g}" if 0 < low <= _EPSILON else ""
    above = f"{bounds[1]} = {1 + high:g}" if high is not None and high <= _EPSILON else ""
    if written := ", ".join(filter(None, (below, above))):
        return f"an ε is written as the ratio that it leads to: `{written}`"
    return "they are ratios around 1, for example 0.8 and 1.2 for an ε of 0.2"


@rule("loss", "overlap", "batch", "advantage", "kl", "teacher")
def _ratio_matters(view: StageView) -> None:
    """Without a ratio, nothing corrects for weights that are not those that sampled; nothing has
    to, where no advantage is that of a sampled token."""
    if loss_traits(view.loss).sampler_logprobs:
        return
    if learns_targets_alone(view.advantage, view.kl, view.teacher):
        return
    updates, stale = view.batch.updates, view.overlap.max_staleness
    if updates == 1 and not stale:
        return
    path = "overlap.max_staleness" if stale else "batch.updates"
    label = Label(view.at(path), "these weights are others than those that sampled")
    message = f"{view.named('loss')} takes every rollout as fresh, and not all are"
    advice = "`importance_sampling()` corrects for it, `ppo()` and `cispo()` with a limit"
    view.warning("RL0435", "loss", message, advice, label)


@rule("aggregate", "sampling", "envs")
def _norm_length(view: StageView) -> None:
    """A fixed length to divide by is that of the longest episode."""
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
    """Weights that differ by sequence fold into the advantages only if the loss is linear
    in them."""
    uniform = aggregate_traits(view.aggregate.kind).uniform
    if loss_traits(view.loss).pull is not None and not uniform:
        label = Label(view.at("loss"), "its quadratic term does not scale with the advantage")
        message = f"{view.named('loss')} cannot be weighted by `{view.aggregate.kind}()`"
        advice = "take `token_mean()`, or another loss"
        view.error("RL0314", "aggregate", message, advice, label)


@rule("kl")
def _penalty_leaves_the_reward(view: StageView) -> None:
    if view.kl is not None and view.kl.coef > 1:
        message = (
            f"a nat away from the reference costs {view.kl.coef:g}, more than any answer earns"
        )
        view.warning("RL0440", "kl.coef", message, "0.001 to 0.1 is usual")
