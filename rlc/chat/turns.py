"""A turn of an episode: what the policy is shown, what it replies, and what fails in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from rlc.data import TaskFacts
from rlc.errors import Error


class EnvError(Error):
    """A failure of an environment, in one sentence. Rollouts are counted by ``cause``."""

    cause = "environment"


class ContractError(EnvError):
    """An environment returned what :class:`Observation` does not allow."""

    cause = "contract"


@frozen
class Verdict:
    """What a judge said of an episode: its score, from 0 to 1, and why, as far as it says so."""

    judge: str
    score: float
    reason: str = ""


@frozen
class Observation:
    """What the policy sees next, and whether the episode is over.

    ``metrics`` are numbers about the previous action. A chat shows ``messages``, if there are any,
    in place of ``text``, which is for people. No reduction counts a ``reward`` of None.
    ``truncated``, with ``done``: it was cut off before an end of its own. ``about``, of a first
    observation, is kept with the rollout; ``fields`` are those of the task's row. The reward is the
    weighted sum of ``components``, weight and value by name, unless there are none. In a match
    ``move`` is the number of the next reply among those of all seats, and ``others`` are replies of
    opponents before it, with number and seat."""

    text: str
    reward: float | None = 0.0
    done: bool = False
    metrics: Mapping[str, float] = field(factory=dict)
    messages: tuple[Mapping[str, Any], ...] = ()
    truncated: bool = False
    about: TaskFacts | None = None
    components: Mapping[str, tuple[float, float]] = field(factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    fields: Mapping[str, Any] = field(factory=dict, repr=False)
    move: int | None = None
    others: tuple[tuple[int, int, str], ...] = ()


@frozen
class Action:
    """A reply as the history parsed it. ``message`` is the renderer's parsed message, with tool
    calls; None without a chat. ``cut_off``: the reply is known not to be complete."""

    text: str
    message: Mapping[str, Any] | None = None
    cut_off: bool = False
