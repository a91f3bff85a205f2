"""The episodes of a run: found in ``rollouts.jsonl``, chosen, and told apart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from attrs import frozen

from rlc.report.files import Record, parse_line
from rlc.runtime.journal.metrics import ROLLOUTS_FILE


@frozen
class Episode:
    """A rollout's record, and why it was chosen: ``best``, ``median``, ``worst``, ``failed``."""

    record: Record
    why: str = ""


@frozen
class EpisodeFilter:
    """Which episodes are looked for; None: any."""

    stage: str | None = None
    step: int | None = None
    env: str | None = None
    task: int | None = None
    member: int | None = None
    failed: bool = False

    def matches(self, record: Record) -> bool:
        pairs = (
            (self.stage, record.get("stage")),
            (self.step, record.get("step")),
            (self.env, record.get("env")),
            (self.task, record.get("task")),
            (self.member, record.get("member")),
        )
        fits = all(wanted is None or wanted == found for wanted, found in pairs)
        return fits and (not self.failed or record.get("error") is not None)


def last_step(metrics: Sequence[Record], stage: str | None) -> EpisodeFilter | None:
    """The last step whose episodes were written down, of ``stage``, or of the stage that trained
    last, or was evaluated last; None where there is none."""
    trained = [record for record in metrics if "rollouts/played" in record]
    played = [r for r in metrics if "rollouts/played" in r or _is_evaluation(r)]
    mine = [r for r in played if r["stage"] == stage] if stage is not None else trained or played
    return EpisodeFilter(stage=mine[-1]["stage"], step=mine[-1]["step"]) if mine else None


def _is_evaluation(metrics: Record) -> bool:
    return any(key.startswith("eval/") for key in metrics)


def read_episodes(path: Path, wanted: EpisodeFilter) -> Iterator[Record]:
    """The episodes of a run folder, in the order they were written.

    Where stage and step are given, the lines of others are passed over unread: a line begins
    with both, and the file of a long run has gigabytes.
    """
    file = path / ROLLOUTS_FILE
    if not file.is_file():
        return
    start = ""
    if wanted.stage is not None and wanted.step is not None:
        start = json.dumps({"stage": wanted.stage, "step": wanted.step}).removesuffix("}") + ","
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if start and not line.startswith(start):
                continue
            record = parse_line(line)
            if record is not None and wanted.matches(record):
                yield record


def representatives(records: Sequence[Record]) -> list[Episode]:
    """Of each environment the best, the median and the worst episode, then one that failed.

    Ranked by reward, then by advantage; of equals the first. Fewer where there are not as many
    different ones.
    """
    chosen, by_env = list[Episode](), dict[str, list[Record]]()
    for record in records:
        by_env.setdefault(str(record["env"]), []).append(record)
    for mine in by_env.values():
        played = [record for record in mine if record["error"] is None]
        chosen.extend(_ranked(played))
        chosen.extend(Episode(record, "failed") for record in mine if record["error"] is not None)
    return _one_failure_each(chosen)


def _ranked(played: Sequence[Record]) -> Iterator[Episode]:
    if not played:
        return
    order = sorted(played, key=_merit)
    best = max(played, key=_merit)
    if _reward(best) == _reward(order[0]):  # none stands out
        yield Episode(best, "median")
        return
    median = order[(len(order) - 1) // 2]
    yield Episode(best, "best")
    if median is not best and median is not order[0]:
        yield Episode(median, "median")
    yield Episode(order[0], "worst")


def _reward(record: Record) -> float:
    return float(record["reward"])


def advantage(record: Record) -> float:
    """Of the whole episode: the mean of its turns; 0 where it has none."""
    return fmean(record["advantages"]) if record["advantages"] else 0.0


def _merit(record: Record) -> tuple[float, float]:
    return _reward(record), advantage(record)


def _one_failure_each(episodes: Iterable[Episode]) -> list[Episode]:
    """Of an environment's failures, one of each cause."""
    kept, causes = list[Episode](), set[tuple[str, str]]()
    for episode in episodes:
        key = (str(episode.record["env"]), str(episode.record["error"]))
        if episode.why != "failed" or key not in causes:
            kept.append(episode)
        causes.add(key)
    return kept
