"""The tests of recipes: replies graded, the plan looked at, stages rehearsed."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from attrs import evolve, field, frozen

from rlc.catalog import CONTAINS, ENDS, LACKS, NEEDS
from rlc.catalog.packages import described, lacking, name_of
from rlc.catalog.requirements import Requirement, requirements, requirements_of
from rlc.check import (
    CheckedCase,
    CheckedExpectation,
    CheckedTest,
    OfEpisode,
    OfPlan,
    ValueComparison,
    same_tasks,
)
from rlc.compile import load, rehearse_stage
from rlc.data import Reader, forget_code
from rlc.errors import Error
from rlc.lang import Diagnostic, Diagnostics, Severity, finding_dicts
from rlc.plan import (
    COMPARES,
    BudgetPlan,
    EnvPlan,
    Plan,
    StagePlan,
    is_training,
    show,
    shown,
    shown_value,
)
from rlc.pricing import EstimatedQuantities, values_of
from rlc.proof.grading import EpisodeGrade, opened, partial_opinion, stage_environments, to_end
from rlc.runtime import judged_after, read_metrics, run_plan

State = Literal["passed", "failed", "skipped"]
FAILED, BROKEN = "RL0855", "RL0856"
_CLOSE = 1e-9  # numbers of an episode are equal within this: 0.1 + 0.2 == 0.3
MOST_SEATS = 64  # of a game
_LONGEST = 120  # characters of a text in a message
Conversation = tuple[str, ...]


@frozen
class RecipeTestResult:
    """The result of one test.

    Attributes:
        recipe: the file of the test.
        name: its name; empty if the recipe has errors, so that none of its tests can run.
        state: ``passed``, ``failed`` or ``skipped``.
        findings: what failed, each with its place and what was given, expected and found.
        why: the reason why it was skipped; empty if it was not.
        seconds: that it took.
    """

    recipe: str
    name: str
    state: State
    findings: Diagnostics = field(factory=Diagnostics, repr=False)
    why: str = ""
    seconds: float = 0.0


@frozen
class RecipeTestResults:
    """The results of the tests of some recipes; true if none failed.

    Attributes:
        results: a :class:`RecipeTestResult` each, recipe by recipe.
    """

    results: tuple[RecipeTestResult, ...]

    def __bool__(self) -> bool:
        return not self.of("failed")

    def of(self, state: State) -> list[RecipeTestResult]:
        """Return the results with one state."""
        return [one for one in self.results if one.state == state]

    @property
    def findings(self) -> Diagnostics:
        """All that failed."""
        return Diagnostics(finding for one in self.results for finding in one.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the data of `rlc test --json`."""
        tests = [
            {
                "recipe": one.recipe,
                "test": one.name,
                "state": one.state,
                "seconds": round(one.seconds, 3),
                "why": one.why,
                "findings": finding_dicts(one.findings),
            }
            for one in self.results
        ]
        counts = {state: len(self.of(state)) for state in ("passed", "failed", "skipped")}
        return {**counts, "tests": tests}


def run_recipe_tests(paths: Iterable[str], keyword: str = "") -> RecipeTestResults:
    """Run the tests of recipes; see :func:`rlc.test`. Code beside them is read anew: it may
    have changed since this process imported it."""
    paths = list(paths)
    for folder in {os.path.dirname(os.path.abspath(path)) for path in paths}:
        forget_code(folder)
    return RecipeTestResults(tuple(one for path in paths for one in _tests_of(path, keyword)))


def _tests_of(path: str, keyword: str) -> Iterator[RecipeTestResult]:
    compiled = load(path, reader=Reader())
    found, plan = compiled.diagnostics, compiled.plan or compiled.unmet
    chosen = [test for test in compiled.tests if keyword in f"{path}::{test.name}"]
    if found.has_errors and (chosen or keyword in path):
        errors = Diagnostics(one for one in found if one.severity is Severity.ERROR)
        yield RecipeTestResult(path, "", "failed", errors)
    for test in chosen if plan is not None else ():
        assert plan is not None
        began = time.perf_counter()
        result = _Run(path, plan, test).result()
        yield evolve(result, seconds=time.perf_counter() - began)


@frozen(eq=False, slots=False)
class _Run:
    """One test of a recipe with this plan."""

    recipe: str
    plan: Plan
    test: CheckedTest

    def result(self) -> RecipeTestResult:
        if lacks := self._lacks():
            return RecipeTestResult(self.recipe, self.test.name, "skipped", why=lacks)
        try:
            findings = Diagnostics(filter(None, self._findings()))
        except Error as error:
            what = f"test `{self.test.name}` cannot run: {error.message}"
            findings = Diagnostics()
            findings.error(BROKEN, self.test.decl.name.span, what, error.hint)
        state: State = "failed" if findings else "passed"
        return RecipeTestResult(self.recipe, self.test.name, state, findings)

    def _lacks(self) -> str:
        """Return what the test needs and is not here, as a reason to skip it; else nothing."""
        needed: list[Requirement] = []
        if self.test.env is not None and self._conversations(with_prompt=True):
            needed += requirements_of("", {"envs": (self._played[1],)})
        if self.test.rehearse is not None:
            needed += requirements(self._rehearsal)
        for one in needed:
            if one.kind == "package" and (wrong := lacking(one.name)) is not None:
                return f"`{one.by.strip('`')}` needs {described(one.name, wrong)}"
            if one.kind == "data set" and not isinstance(self.test.task, dict):
                return f"`{one.by.strip('`')}` downloads {one.name}"
        return ""

    @cached_property
    def _played(self) -> tuple[StagePlan, EnvPlan]:
        """The environment as a stage plays it, and that stage."""
        assert self.test.env is not None
        pairs = stage_environments(self.plan)
        return next(pair for pair in pairs if same_tasks(pair[1], self.test.env))

    @cached_property
    def _rehearsal(self) -> Plan:
        test = self.test
        assert test.rehearse is not None
        plan = rehearse_stage(self.plan, test.rehearse, test.steps, test.rehearsed)
        limit = BudgetPlan(None, None, test.within)
        stages = (evolve(s, budget=limit) if is_training(s) else s for s in plan.stages)
        return evolve(plan, stages=tuple(stages))

    def _findings(self) -> Iterator[Diagnostic | None]:
        episodes, metrics = self._episodes(), self._rehearse()
        estimated = EstimatedQuantities(self.plan.stages, self.plan.recipe)
        for one in self.test.expectations:
            if isinstance(one.that, ValueComparison):
                yield self._compared(one, one.that, episodes)
            else:
                yield self._judged(one, one.that, estimated, metrics)

    def _judged(
        self,
        one: CheckedCase,
        that: CheckedExpectation,
        estimated: EstimatedQuantities,
        metrics: Sequence[Mapping[str, Any]],
    ) -> Diagnostic | None:
        """Judge a comparison of numbers of the job."""
        if that.plan.after:
            (judged,) = judged_after(
                [that.plan],
                lambda name: [record for record in metrics if record["stage"] == name],
                lambda _: True,
                ended=True,
                rehearses=False,
            )
            about = f"in the rehearsal: {self.test.steps} steps on the tiny model"
        else:
            judged = that.plan.judged(estimated.value)
            about = "`rlc explain --full` shows what it is made of"
        if judged.holds:
            return None
        path, unit = that.plan.quantity.path, that.plan.quantity.unit
        if judged.found is None or judged.expected is None:
            return self._failed(one, f"`{path}` is not known: {judged.why}", about)
        than = "" if that.plan.op == "==" else f"{that.plan.op} "
        expected = f"{than}{shown(judged.expected, unit)}"
        return self._failed(one, f"`{path}` is {shown(judged.found, unit)}, not {expected}", about)

    def _compared(
        self,
        one: CheckedCase,
        that: ValueComparison,
        episodes: Mapping[Conversation, EpisodeGrade],
    ) -> Diagnostic | None:
        left, op, right = that.left, that.op, that.right
        found = self._value(left, episodes)
        expected, wanted = right, _said(right)
        if isinstance(right, OfEpisode | OfPlan):
            expected = self._value(right, episodes)
            wanted = f"`{right.text}`, which is {_said(expected)}"
        if op in (CONTAINS, LACKS):
            holds = found is not None and (str(right) in found) == (op == CONTAINS)
            no = "no " if op == CONTAINS else ""
            message = f"`{left.text}` contains {no}{wanted}: it is {_said(found)}"
        else:
            holds = _holds(found, op, expected)
            than = "" if op == "==" else f"{op} "
            message = f"`{left.text}` is {_said(found)}, not {than}{wanted}"
        if holds:
            return None
        given = left if isinstance(left, OfEpisode) else right
        if isinstance(given, OfEpisode):
            return self._failed(one, message, _about(episodes[given.replies], given.replies))
        return self._failed(one, message, "`rlc explain --full` shows the plan")

    def _failed(self, one: CheckedCase, message: str, about: str) -> Diagnostic:
        message = f"test `{self.test.name}`: {message}"
        return Diagnostic(FAILED, Severity.ERROR, message, one.span, about)

    def _value(self, what: OfEpisode | OfPlan, episodes: Mapping[Conversation, Any]) -> Any:
        if isinstance(what, OfEpisode):
            return _of_episode(what, episodes[what.replies])
        if what.path == NEEDS:
            every = requirements(self.plan)
            prefix = "stages." if what.stage is None else f"stages.{what.stage}."
            return sorted({name_of(one.name) for one in every if one.path.startswith(prefix)})
        (stage,) = (stage for stage in self.plan.stages if stage.name == what.stage)
        return values_of(stage)[what.path]

    def _conversations(self, with_prompt: bool = False) -> list[Conversation]:
        """Return the conversations that the expectations name, each once; only asking for the
        prompt is an empty one."""
        sides = (
            side
            for one in self.test.expectations
            if isinstance(one.that, ValueComparison)
            for side in (one.that.left, one.that.right)
        )
        named = (side.replies for side in sides if isinstance(side, OfEpisode))
        return [one for one in dict.fromkeys(named) if one or with_prompt]

    def _episodes(self) -> dict[Conversation, EpisodeGrade]:
        """Play each conversation alone, or, where judges compare replies, all as one group. In a
        game every seat says the same, and so do solvers and their judge."""
        said = self._conversations() or self._conversations(with_prompt=True)
        if not said:
            return {}
        (stage, env), test = self._played, self.test
        plan = evolve(self.plan, stages=(stage,))
        row = None if isinstance(test.task, int) else test.task
        number = test.task if isinstance(test.task, int) else 0
        opinion = None if test.judge is None else partial_opinion(test.judge, said)

        async def play() -> dict[Conversation, EpisodeGrade]:
            async with opened(plan, env.name, row, opinion) as bench:
                if bench.env.comparing:
                    group = await bench.grade(number, said)
                    return dict(zip(said, group.episodes, strict=True))
                alone = env.play is None and bench.env.roles is None
                seats = 1 if alone else MOST_SEATS
                return {one: (await bench.grade(number, [one] * seats)).episodes[0] for one in said}

        played = to_end(play)
        return {(): played[said[0]], **played}  # whose prompt is that of all

    def _rehearse(self) -> Sequence[Mapping[str, Any]]:
        """Run the rehearsal; return the metrics of its steps and evaluations."""
        if self.test.rehearse is None:
            return ()
        plan = self._rehearsal
        with tempfile.TemporaryDirectory(prefix="rlc-test-") as folder:
            summary = run_plan(plan, os.path.join(folder, "run"))
            if summary.state != "finished":
                done = ", ".join(f"{s.stage} {s.done} of {s.planned}" for s in summary.stages)
                why = summary.cause or summary.state
                raise Error(f"its rehearsal did not come to its end ({done} steps): {why}")
            return read_metrics(Path(summary.folder))


def _holds(found: Any, op: str, expected: Any) -> bool:
    if isinstance(found, bool) or not isinstance(found, int | float):
        return found is not None and (found == expected) == (op == "==")
    if expected is None or isinstance(expected, str):
        return op == "!="
    if op in ("==", "!=", "<=", ">=") and abs(found - expected) <= _CLOSE:
        return op != "!="
    return op == "!=" or COMPARES[op](found, expected)


def _of_episode(what: OfEpisode, episode: EpisodeGrade) -> Any:
    """Return a value of an episode; None if it has none: a reward, where it failed."""
    match what.name:
        case "reward" if what.part is not None:
            return {**episode.metrics, **episode.components}.get(what.part)
        case "reward":
            return episode.reward
        case "turns":
            return len(episode.turns)
        case "end":
            return episode.ended
        case "prompt":
            return episode.prompt
    turns = ((turn.observation, turn.reply) for turn in episode.turns)
    return "\n".join(part for turn in turns for part in turn)


def _about(episode: EpisodeGrade, replies: Conversation) -> str:
    """Return what was given, and what became of it."""
    told = [f"given {', '.join(map(_said, replies))}"] if replies else []
    asked = episode.turns[0].observation if episode.turns else episode.prompt
    told.append(f"asked {_said(asked)}")
    parts = ", ".join(f"{name} {value:g}" for name, value in episode.components.items())
    told += [f"components: {parts}"] if len(episode.components) > 1 else []
    cut = (turn.reply for turn in episode.turns if turn.stop_reason == "length")
    told += [f"cut off at `max_tokens` to {_said(reply)}" for reply in cut]
    told += [f"it ended: {episode.ended}"] if episode.ended != "done" else []
    told += [f"it failed: {episode.error}"] if episode.error else []
    return "; ".join(told)


def _said(value: Any) -> str:
    """Return a value as a message has it."""
    if isinstance(value, str) and value not in ENDS:
        return show(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…", "string")
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "nothing"
    if isinstance(value, float):
        return f"{value:.10g}"
    return shown_value("", value)
