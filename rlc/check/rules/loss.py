"""Rules on the loss: what it asks of the rollouts, of the weights, and of overlap."""

from __future__ import annotations

from rlc.catalog.index import BUILTINS, aggregate_traits, loss_traits
from rlc.check.rules.base import View, rule
from rlc.lang.diagnostics import Label


@rule("loss", "overlap")
def _fresh_rollouts(view: View) -> None:
    """Without a clip, the ratio of a stale rollout can grow without bound."""
    stale, name = view.overlap.max_staleness, view.loss.name
    if stale > 1 and not loss_traits(name).takes_stale:
        label = Label(view.at("overlap.max_staleness"), f"rollouts may be {stale} steps old")
        message = f"`{name}()` has no clip, and rollouts may come from weights {stale} steps old"
        stable = (b for b in BUILTINS if b.kind == "loss" and b.traits.takes_stale)
        *others, last = (f"`{builtin.usage()}`" for builtin in stable)
        view.error("RL0313", "loss", message, f"take {', '.join(others)} or {last}", label)


@rule("loss", "overlap", "batch")
def _clip_acts(view: View) -> None:
    """With one update a batch, and fresh rollouts, every ratio is 1 and no clip ever acts."""
    if loss_traits(view.loss.name).clip != "gradient":
        return
    if view.overlap.max_staleness or view.batch.updates > 1:
        return
    message = f"the clip of `{view.loss.name}()` never acts: each batch is fresh, and used once"
    advice = "`importance_sampling()` has the same gradient; `updates = 2` would make it matter"
    view.warning("RL0413", "loss", message, advice)


@rule("loss", "aggregate")
def _weighable(view: View) -> None:
    """Weights that differ by sequence fold into the advantages only if the loss is linear
    in them."""
    uniform = aggregate_traits(view.aggregate.kind).uniform
    if loss_traits(view.loss.name).pull is not None and not uniform:
        label = Label(view.at("loss"), "its quadratic term does not scale with the advantage")
        message = f"`{view.loss.name}()` cannot be weighted by `{view.aggregate.kind}()`"
        advice = "take `token_mean()`, or another loss"
        view.error("RL0314", "aggregate", message, advice, label)
