"""What is learnt from other models, in formulas and in words."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rlc.catalog import find_builtin
from rlc.explanation.layout import Lines, wrapped
from rlc.lang.render import Paint
from rlc.plan import ModelState, PolicyGradient, Samples, TeacherPlan, is_text_file


def whose(state: ModelState) -> str:
    """Which model is asked: `Qwen/Qwen3-32B`, or the one that a stage leaves."""
    weights = state.after or state.model.weights
    return state.model.base if weights is None else f"{state.model.base} from {weights}"


def reference_name(state: ModelState) -> str:
    """What a penalty holds on to: a stage, saved weights, or a base model, as a recipe names it."""
    return state.after or f'"{state.model.weights or state.model.base}"'


def teaching(teacher: TeacherPlan) -> str:
    """A teacher in a few words."""
    of = f" in {teacher.name}" if teacher.name else ""
    return f"{teacher.coef:g} × {teacher.kind} from {whose(teacher.model)}{of}"


_KEPT = {"all": "", "solved": " that solve it", "best": ", the best of a task"}


def sampled(samples: Samples) -> Iterator[str]:
    """What is sampled to be imitated, and how much of it is kept."""
    keep, env, count = samples.keep, samples.env, samples.count
    kept = _KEPT.get(keep.kind, f" with a reward of at least {keep.reward or 0:g}")
    yield f"{count:,} episodes of {env.name}{kept}, played by {whose(samples.model)}"
    most = f", of which at most {samples.per_task:,} are kept" if samples.per_task else ""
    each = "once" if samples.size == 1 else f"{samples.size:,} times"
    yield f"each task played {each}{most}, at most {count * samples.tries:,} episodes in all"
    if samples.without is not None:
        yield f"learnt without the {samples.without} message that they are played with"
    if samples.top_k is not None:
        yield f"of each token the {samples.top_k:,} that it finds most likely in its place are kept"


def teacher_formula(teacher: TeacherPlan) -> list[str]:
    """The formula of what a teacher says, with the discount if it has one."""
    if not teacher.coef:
        return ["log p_teacher,t is read by the loss, and nothing is taken off the advantages"]
    builtin = find_builtin("teacher", teacher.kind)
    assert builtin is not None
    lines = list(builtin.formula)
    if teacher.discount:
        lines[-1:] = ["P_t = − coef d_t + discount P_t+1", "A_t = A_t + P_t"]
    return lines


def teacher_sections(objective: PolicyGradient, paint: Paint) -> Iterator[tuple[str, Lines]]:
    """Titles and lines, one section for each teacher."""
    for teacher in objective.teacher:
        where = f" of {teacher.name}" if teacher.name else ""
        yield f"teacher{where}: {teacher.kind}", _teacher(teacher, paint)


def _teacher(teacher: TeacherPlan, paint: Paint) -> Lines:
    yield from teacher_formula(teacher)
    more = f", discount = {teacher.discount:g}" if teacher.discount else ""
    more += "" if teacher.top_k is None else f", top_k = {teacher.top_k:,}"
    yield f"teacher = {whose(teacher.model)}, coef = {teacher.coef:g}{more}"
    if teacher.system is not None:
        shown = f'"{teacher.system}"' if teacher.system else "none"
        if is_text_file(teacher.system):
            shown = f"the text of {os.path.basename(teacher.system)}"
        yield from wrapped(f"the system message that it reads: {shown}", hang=2)
    if teacher.demonstration is not None:
        yield f"it is shown the field `{teacher.demonstration}` of the row, after the question"
    yield paint.dim("it reads every sequence once, as soon as that is played")
