"""Graders: what says how good a reply is."""

from __future__ import annotations

from rlc.catalog.records import Args, Builtin, Param, builtin, code
from rlc.catalog.traits import BOX, TAG, GraderTraits
from rlc.plan.environments import EnvPlan, GraderPlan

# The metrics of graders that compare with the row's answer: of one, and of whether all find one.
CORRECT, FORMAT = "correct", "format"


def _compared(
    name: str, doc: str, *params: Param, marks: tuple[str, ...] = (), package: str | None = None
) -> Builtin:
    """A grader that finds an answer in the reply and compares it with the row's."""
    return builtin(
        name,
        "grader",
        doc,
        lambda args: GraderPlan(CORRECT, 1.0, name, dict(args.values)),
        *params,
        word=not params,
        traits=GraderTraits(compares=True, marks=marks, package=package),
    )


def _own(args: Args) -> GraderPlan:
    """Named after its function."""
    name = args.function.data.rpartition(":")[2]
    return GraderPlan(name, 1.0, "grade_with", dict(args.values))


GRADERS = (
    _compared(
        "math",
        "the answer in `\\boxed{…}` or `<answer>` means the same, by math-verify",
        marks=(BOX, TAG),
        package="math-verify[antlr4_13_2]",
    ),
    _compared("numeric", "the answer, else the last number of the reply, is the same number"),
    _compared("exact", "the answer, else the whole reply, is the same text"),
    _compared(
        "regex",
        "what a pattern finds is the same text",
        Param("pattern", "string", "finds the answer: its first group, or all of it"),
    ),
    _compared("countdown", "the answer in `<answer>` uses the row's numbers for its target"),
    builtin(
        "grade_with",
        "grader",
        "a function of one's own, of the reply and the row",
        _own,
        code("function", "where it is", "reward"),
        Param(
            "weights",
            "record",
            "what each of the numbers weighs that it returns by name; by default 1",
            {},
        ),
        hint="its own weight stands before it: `0.5 * grade_with(…)`",
        traits=GraderTraits(code=True),
    ),
)

_TRAITS: dict[str, GraderTraits] = {grader.name: grader.traits for grader in GRADERS}


def finds_answers(env: EnvPlan) -> bool:
    """Whether one of an environment's graders looks for an answer, so that replies can lack one."""
    return any(_TRAITS[part.grader].compares for part in env.graders)


def marks_read(env: EnvPlan, able: tuple[str, ...]) -> tuple[str, ...]:
    """The marks in which alone an environment's graders find an answer; of those that are ``able``
    to grade its rows, if that is known."""
    known = (_TRAITS[part.grader] for part in env.graders if not able or part.grader in able)
    return next((traits.marks for traits in known if traits.marks), ())
