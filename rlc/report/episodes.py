"""The episodes of a run: found in ``rollouts.jsonl``, and the most representative chosen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from attrs import define, field, frozen

from rlc.runtime import EpisodeHead, EpisodeIndex, Record, episode_of


@frozen
class ShownEpisode:
    """A rollout's record, and why it was chosen: ``best``, ``median``, ``worst``, ``failed``."""

    record: Record
    why: str = ""


@frozen
class EpisodeFilter:
    """Which episodes are wanted; None stands for any."""

    stage: str | None = None
    step: int | None = None
    env: str | None = None
    task: int | None = None
    member: int | None = None
    failed: bool = False
    row: str | None = None  # the id of a row, as text

    def fits(self, head: EpisodeHead) -> bool:
        """Whether an episode is wanted by what its line begins with: by all but its row."""
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

    Of those that are not wanted no more is parsed than the beginning of their lines; nothing at all
    if stage and step are given, with which a line begins.
    """
    one_step = wanted.stage is not None and wanted.step is not None
    start = _start(wanted.stage or "", wanted.step or 0) if one_step else b""
    found = list[
        tuple[EpisodeHead, Record]
    ]()  # of one step: then the replies of a role are numbered
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
    """Yield records with which ``reply`` in its role each is, if there are several."""
    for head, record in found:
        yield {**record, "reply": head.reply} if head.reply else record


@define(eq=False)
class StepEpisodes:
    """The episodes of a run folder by step. What has been looked at once is not looked at again
    while the run goes on; in memory is only where the episodes are."""

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


def _start(stage: str, step: int) -> bytes:
    """How the line of an episode begins."""
    return f"{json.dumps({'stage': stage, 'step': step})[:-1]},".encode()


def representatives(records: Sequence[Record]) -> list[ShownEpisode]:
    """Choose of each environment the best, the median and the worst episode, and of its failures
    one of each cause.

    Ranked by reward, then by advantage; of equals the first. Fewer if there are not as many
    different ones.
    """
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
