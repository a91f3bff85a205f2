"""The records of what is learnt from other models: their grades of tokens, and what they say."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from rlc.plan.models import ModelState
from rlc.records import Record


@frozen(eq=False, repr=False)
class TeacherPlan(Record):
    """A model that grades each token that the trained one samples.

    ``name``: the environment whose episodes it grades; None: all of them. ``kind`` is the name of
    the builtin. What it says counts ``coef`` times in the advantages; with a ``discount`` each
    token also answers for the later ones.

    The prompt that it reads has ``system`` as its system message (None: the environment's own),
    and shows the field ``demonstration`` of the task's row (None: nothing).
    """

    name: str | None
    kind: Literal["reverse_kl"]
    model: ModelState
    coef: float
    discount: float
    system: str | None
    demonstration: str | None


def teacher_of(teachers: tuple[TeacherPlan, ...], env: str) -> TeacherPlan | None:
    """Return the teacher of an environment, by its name."""
    return next((one for one in teachers if one.name in (None, env)), None)
