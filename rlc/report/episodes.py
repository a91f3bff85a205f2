"""Episodes and compared preferences in the files of a run, and the most representative of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from attrs import define, evolve, field, frozen

from rlc.plan import Training
from rlc.runtime import COMPARISONS_FILE, EpisodeHead, EpisodeIndex, Record, episode_of, parse_line


@frozen
class ShownEpisode:
    """A rollout's record, and why it was chosen: ``best``, ``median``, ``worst``, ``failed``."""

    record: Record
    why: str = ""


@frozen
class EpisodeFilter:
    """Conditions on episodes; None stands for any."""

    stage: str | None = None
    step: int | None = None
    env: str | None = None
    task: int | None = None
    member: int | None = None
    failed: bool = False
    row: str | None = None  # the id of a row, as text

    def fits(self, head: EpisodeHead) -> bool:
        """Return whether the beginning of an episode's line meets all conditions but the row."""
        names = ("stage", "step", "env", "task", "member")
        fits = all(getattr(self, n) in (None, getattr(head, n)) for n in names)
        return fits and (not self.failed or head.error is not None)

    def has_row(self, record: Record) -> bool:
        return self.row is None or self.row == str((record.get("about") or {}).get("id"))


def last_step(metrics: Sequence[Record], stage: str | None) -> EpisodeFilter | None:
    """Return the last step whose episodes were written: of ``stage``, or of the stage that trained
    last, or was evaluated last. None if there is none."""
    trained = [record for record in metrics if "rollouts/played" in record]
    played = [
        record
        for record in metrics
        if "rollouts/played" in record or any(key.startswith("eval/") for key in record)
    ]
    mine = [r for r in played if r["stage"] == stage] if stage is not None else trained or played
    return EpisodeFilter(stage=mine[-1]["stage"], step=mine[-1]["step"]) if mine else None


def read_episodes(path: Path, wanted: EpisodeFilter) -> Iterator[Record]:
    """Yield the episodes of a run folder, in the order they were written.

    Of the others no more is parsed than the beginning of their lines; nothing at all if stage and
    step are given, with which a line begins.
    """
    start = b""
    if wanted.stage is not None and wanted.step is not None:
        step = {"stage": wanted.stage, "step": wanted.step}
        start = f"{json.dumps(step)[:-1]},".encode()
    found: list[tuple[EpisodeHead, Record]] = []  # of one step, to number the replies of a role
    for head, line in EpisodeIndex(path).read_on(start):
        if found and (found[0][0].stage, found[0][0].step) != (head.stage, head.step):
            yield from _numbered(found)
            found = []
        if wanted.fits(head):
            record = episode_of(line)
            if record is not None and wanted.has_row(record):
                found.append((head, record))
    yield from _numbered(found)


def _numbered(found: Iterable[tuple[EpisodeHead, Record]]) -> Iterator[Record]:
    """Yield records with the number of their ``reply``, if a role has several."""
    for head, record in found:
        yield {**record, "reply": head.reply} if head.reply else record


@define(eq=False)
class StepEpisodes:
    """The episodes of a run folder by step. Each is read once while the run goes on; only their
    places are kept in memory."""

    folder: Path
    _index: EpisodeIndex = field(init=False)
    _heads: dict[tuple[str, int], list[EpisodeHead]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._index = EpisodeIndex(self.folder)

    def of(self, stage: str, step: int) -> list[Record]:
        """Return the episodes of a step that are written, in the order they were."""
        if self._index.was_replaced():
            self._heads.clear()
        for head, _ in self._index.read_on():
            self._heads.setdefault((head.stage, head.step), []).append(head)
        records = map(self._index.record, self._heads.get((stage, step), ()))
        return [record for record in records if record is not None]


def representatives(records: Sequence[Record]) -> list[ShownEpisode]:
    """Choose of each environment the best, the median and the worst episode, by reward, then by
    advantage, of equals the first; and of its failures one of each cause. Fewer if there are not
    as many different ones."""
    chosen, by_env = list[ShownEpisode](), dict[str, list[Record]]()
    for record in records:
        by_env.setdefault(str(record["env"]), []).append(record)
    for mine in by_env.values():
        chosen.extend(_ranked([record for record in mine if record["error"] is None]))
        by_cause = dict[str, Record]()
        for record in mine:
            if record["error"] is not None:
                by_cause.setdefault(str(record["error"]), record)
        chosen.extend(ShownEpisode(record, "failed") for record in by_cause.values())
    return chosen


def _ranked(played: Sequence[Record]) -> Iterator[ShownEpisode]:
    if not played:
        return
    order = sorted(played, key=_merit)
    best = max(played, key=_merit)
    if float(best["reward"]) == float(order[0]["reward"]):  # none stands out
        yield ShownEpisode(best, "median")
        return
    median = order[(len(order) - 1) // 2]
    yield ShownEpisode(best, "best")
    if median is not best and median is not order[0]:
        yield ShownEpisode(median, "median")
    yield ShownEpisode(order[0], "worst")


def _merit(record: Record) -> tuple[float, float]:
    return float(record["reward"]), advantage(record)


def advantage(record: Record) -> float:
    """Return the mean advantage of an episode's turns; 0 if it has none."""
    return fmean(record["advantages"]) if record["advantages"] else 0.0


def about_line(record: Record) -> str:
    """Return what is known of the row behind an episode's task; "" if nothing is."""
    about = record.get("about")
    if not about:
        return ""
    named = [f"id {about['id']}"] if "id" in about else []
    return " · ".join([*named, about["place"], *(f"{n} {v}" for n, v in about["fields"].items())])


@frozen
class ComparedReply:
    """``side``: which reply it is, chosen or rejected; ``reward``: the score that it had."""

    side: str
    reward: float
    text: str


@frozen
class StepComparison:
    """A comparison of a step: ``replies`` to a prompt, the better one first, or one that is
    labelled. ``why``: best, median or worst of its step; ``place``: its row."""

    stage: str
    step: int
    number: int
    place: str
    prompt: str
    replies: tuple[ComparedReply, ...]
    why: str = ""

    @property
    def margin(self) -> float:
        """The reward of the better reply less the other's; of one reply, by its label."""
        first, *others = self.replies
        if others:
            return first.reward - others[0].reward
        return first.reward if first.side == "chosen" else -first.reward

    def written(self) -> Record:
        """Return the comparison as JSON data."""
        replies = [{"side": r.side, "reward": r.reward, "text": r.text} for r in self.replies]
        about = {"stage": self.stage, "step": self.step, "example": self.number}
        return {**about, "place": self.place, "prompt": self.prompt, "replies": replies}


def last_compared(metrics: Sequence[Record], stage: str) -> int | None:
    """Return the last step of a stage; None before the first."""
    return max((int(r["step"]) for r in metrics if r["stage"] == stage), default=None)


def comparisons(path: Path, plan: Training, step: int) -> list[StepComparison]:
    """Return what a step of a stage compared, in the order of its rows. If an example can no longer
    be read, the texts say that it is missing."""
    from rlc.runtime import examples_file  # a base install has no numpy

    file = examples_file(plan, plan.data[0])
    examples = {n: record for n, record in _numbered_lines(path / file) if record is not None}
    gone = f"(no longer in {file})"
    missing = {"place": "?", "shown": dict.fromkeys(("prompt", "chosen", "rejected"), gone)}
    found = []
    for _, record in _numbered_lines(path / COMPARISONS_FILE):
        if record is None or (record["stage"], record["step"]) != (plan.name, step):
            continue
        example = examples.get(record["example"], missing)
        sides = ["chosen", "rejected"]
        if "good" in record:
            sides = ["chosen" if record["good"] else "rejected"]
        shown = example["shown"]
        pairs = zip(sides, record["rewards"], strict=True)
        replies = tuple(ComparedReply(side, reward, shown[side]) for side, reward in pairs)
        number, prompt = record["example"], shown["prompt"]
        found.append(StepComparison(plan.name, step, number, example["place"], prompt, replies))
    return sorted(found, key=lambda one: one.number)


def typical(found: Sequence[StepComparison]) -> list[StepComparison]:
    """Return the widest, the median and the worst margin, each with its ``why``."""
    order = sorted(found, key=lambda one: one.margin)
    at = {"best": len(order) - 1, "median": (len(order) - 1) // 2, "worst": 0}
    chosen = {at[why]: why for why in reversed(at)} if order else {}
    return [evolve(order[place], why=chosen[place]) for place in sorted(chosen, reverse=True)]


def _numbered_lines(path: Path) -> Iterator[tuple[int, Record | None]]:
    """Yield each line with its number from 0, None for one that is damaged."""
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as lines:
            yield from enumerate(map(parse_line, lines))
