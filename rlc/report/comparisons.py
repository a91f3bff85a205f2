"""The preferences of a run: what was compared in a step, and how far apart it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import evolve, frozen

from rlc.plan import Training
from rlc.runtime import COMPARISONS_FILE, Record, parse_line


@frozen
class ComparedReply:
    """``side``: which reply it is, chosen or rejected; ``reward``: the score that it had."""

    side: str
    reward: float
    text: str


@frozen
class StepComparison:
    """What one step compared: ``replies`` to a prompt, the better one first, or one that is
    labelled. ``why``: what it stands for among those of its step; ``place``: its row."""

    stage: str
    step: int
    number: int
    place: str
    prompt: str
    replies: tuple[ComparedReply, ...]
    why: str = ""

    @property
    def margin(self) -> float:
        """By how much the better reply is ahead; of one, how well its reward fits its label."""
        first, *others = self.replies
        if others:
            return first.reward - others[0].reward
        return first.reward if first.side == "chosen" else -first.reward

    def written(self) -> Record:
        """It as JSON data."""
        replies = [{"side": r.side, "reward": r.reward, "text": r.text} for r in self.replies]
        about = {"stage": self.stage, "step": self.step, "example": self.number}
        return {**about, "place": self.place, "prompt": self.prompt, "replies": replies}


def last_compared(metrics: Sequence[Record], stage: str) -> int | None:
    """The last step of a stage; None before the first."""
    return max((int(r["step"]) for r in metrics if r["stage"] == stage), default=None)


def comparisons(path: Path, plan: Training, step: int) -> list[StepComparison]:
    """What a step of a stage compared, in the order of its rows. Where an example can no longer
    be read, its rewards are still known: the texts say what is missing."""
    from rlc.runtime import examples_file  # a base install has no numpy

    file = examples_file(plan, plan.data[0])
    examples = {number: record for number, record in _numbered(path / file) if record is not None}
    gone = f"(no longer in {file})"
    missing = {"place": "?", "shown": dict.fromkeys(("prompt", "chosen", "rejected"), gone)}
    found = []
    for _, record in _numbered(path / COMPARISONS_FILE):
        if record is None or (record["stage"], record["step"]) != (plan.name, step):
            continue
        example = examples.get(record["example"], missing)
        sides = ["chosen", "rejected"]
        if "good" in record:
            sides = ["chosen" if record["good"] else "rejected"]
        shown = example["shown"]
        replies = tuple(
            ComparedReply(side, reward, shown[side])
            for side, reward in zip(sides, record["rewards"], strict=True)
        )
        number, prompt = record["example"], shown["prompt"]
        found.append(StepComparison(plan.name, step, number, example["place"], prompt, replies))
    return sorted(found, key=lambda one: one.number)


def typical(found: Sequence[StepComparison]) -> list[StepComparison]:
    """The widest, the median and the worst margin, each with its ``why``; fewer of fewer."""
    order = sorted(found, key=lambda one: one.margin)
    at = {"best": len(order) - 1, "median": (len(order) - 1) // 2, "worst": 0}
    chosen = {at[why]: why for why in reversed(at)} if order else {}
    return [evolve(order[place], why=chosen[place]) for place in sorted(chosen, reverse=True)]


def _numbered(path: Path) -> Iterator[tuple[int, Record | None]]:
    """Yield each line with its number from 0, None for one that is damaged."""
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as lines:
            yield from enumerate(map(parse_line, lines))
