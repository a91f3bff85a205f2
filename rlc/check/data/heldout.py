"""Rules on what a stage holds out: it is compared and not learnt from."""

from __future__ import annotations

from rlc.catalog import have_tasks_in_common
from rlc.check.view import StageView, rule
from rlc.lang import Label
from rlc.plan import base_split


@rule("heldout", "every", "steps")
def _heldout_is_compared(view: StageView) -> None:
    if view.every is None:
        return
    if view.heldout is None:
        message = "`every` says when what is held out is compared, and nothing is held out"
        advice = "for example `heldout = {}(…, split = last(10%))`"
        data = view.parts.get("data")
        kind = data.word if data is not None and data.read is not None else "chats"
        view.error("RL0727", "every", message, advice.format(kind))
    elif view.steps and view.every >= view.steps and not view.is_from_command_line("steps"):
        message = f"`every = {view.every}` is never due before the end, after {view.steps} steps"
        view.warning("RL0436", "every", message, "at the end they are compared anyway")


@rule("data", "heldout")
def _heldout_is_held_out(view: StageView) -> None:
    data, other = view.data, view.heldout
    if other is None or other.read is None or other.read != data.read:
        return
    splits = [base_split("train") if one.split is None else one.split for one in (other, data)]
    if have_tasks_in_common(*splits):
        message = "what is held out is among what is learnt from"
        label = Label(view.at("data"), "learnt from")
        advice = "for example `split = first(90%)` here, and `split = last(10%)` there"
        view.warning("RL0728", "heldout", message, advice, label)


@rule("heldout")
def _heldout_is_written(view: StageView) -> None:
    """Examples are held out of files; what is played is evaluated."""
    other = view.heldout
    if other is not None and other.read is None and not other.compares:
        message = f"`{other.word}()` plays its examples, and held-out ones are the rows of a file"
        advice = "take `chats()` or `rows()`, or an `eval` that plays the environment"
        view.error("RL0755", "heldout", message, advice)
