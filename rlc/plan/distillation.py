"""The records of what is learnt from other models: their scores of tokens, and what they write."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from rlc.plan.models import ModelState, SamplingPlan
from rlc.records import Record


@frozen(eq=False, repr=False, slots=False)
class TeacherPlan(Record):
    """A model that says of each token that the trained one samples how likely it finds it, or which
    ones it finds likeliest in its place.

    ``name``: the environment whose episodes it reads; None: all of them. ``kind`` is the name of
    the builtin. What it says counts ``coef`` times, in the advantages or, of its ``top_k``
    likeliest tokens, in the loss; with a ``discount`` each token also answers for the later ones.

    The prompt that it reads has ``system`` as its system message (None: the environment's own),
    and shows the field ``demonstration`` of the task's row (None: nothing).
    """

    name: str | None
    kind: Literal["reverse_kl", "forward_kl"]
    model: ModelState
    coef: float
    discount: float
    system: str | None
    demonstration: str | None
    top_k: int | None = None


@frozen(eq=False, repr=False, slots=False)
class KeepPlan(Record):
    """Which of the episodes of a task are learnt from: ``all`` that did not fail, those that are
    ``solved``, the ``best`` one, or those with a reward of ``at_least`` ``reward``."""

    kind: Literal["all", "solved", "best", "at_least"]
    reward: float | None = None


@frozen(eq=False, repr=False, slots=False)
class SamplesPlan(Record):
    """Episodes that a model plays for another to learn from.

    Each task is played ``size`` times. Of those that ``keep`` chooses at most ``per_task`` (None:
    all) of one task are learnt from; at most ``tries`` episodes are played for each that is wanted.
    ``without``: the student learns without the ``system`` message that the model was given. With a
    ``top_k`` it learns the shares of the tokens that the model found likeliest at each place.
    """

    model: ModelState
    keep: KeepPlan
    size: int
    per_task: int | None
    tries: int
    sampling: SamplingPlan
    without: Literal["system"] | None
    top_k: int | None = None


def teacher_of(teachers: tuple[TeacherPlan, ...], env: str) -> TeacherPlan | None:
    """Return the teacher of an environment, by its name."""
    return next((one for one in teachers if one.name in (None, env)), None)


def kept_of_task(samples: SamplesPlan) -> int:
    """Return how many episodes of a task can be learnt from, at most."""
    if samples.keep.kind == "best":
        return 1
    return samples.size if samples.per_task is None else min(samples.per_task, samples.size)
