"""What a rule is and what it sees."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlc.algo import (
    OPERATIONS,
    AdvantageScheme,
    AdvantageStep,
    keeps_single,
    scope_of,
    statistics,
)
from rlc.check.values import Origins, is_command_line
from rlc.lang import Diagnostics, Label, Span
from rlc.plan import EnvPlan, TeacherPlan, hub_dataset, located
from rlc.records import frozen

if TYPE_CHECKING:
    from rlc.data import Reader


_DEFAULT = "default of "


@frozen(eq=False)
class StageView:
    """The parts of one stage that could be read, and their places. ``before`` are the stages whose
    weights it continues, the latest first. With a ``reader`` its files may be read."""

    parts: Mapping[str, Any]
    origins: Origins
    found: Diagnostics
    before: tuple[StageView, ...] = ()
    reader: Reader | None = None

    def __getattr__(self, name: str) -> Any:
        return self.parts[name]

    def at(self, path: str) -> Span:
        """Return the place of ``batch.size`` and the like."""
        return self.origins.at(path)

    def named(self, part: str) -> str:
        """Return the recipe's name of a part, or the builtin's."""
        text = self.at(part).text
        return f"`{text}`" if text.isidentifier() else f"`{self.parts[part].name}()`"

    def located(self, path: str) -> str:
        """Return the file path of a path of the plan."""
        return located(path, self.origins.span.source.name)

    @property
    def is_run_here(self) -> bool:
        """Whether modules may be imported (`--import`): the recipe runs on this machine."""
        return self.reader is not None and bool(self.reader.imports)

    def has_file(self, path: str) -> bool:
        """Return whether a path of the plan is that of a file that exists, or of a hub data set."""
        return hub_dataset(path) is not None or os.path.isfile(self.located(path))

    def is_from_command_line(self, part: str) -> bool:
        """Return whether a part was set there: a rule on the recipe's own numbers need not hold."""
        value = self.origins.values.get(part)
        return value is not None and is_command_line(value.origin)

    def is_given(self, path: str) -> bool:
        """Return whether the recipe has a value at that path, not only a default."""
        return not self.origins.provenance().get(path, _DEFAULT).startswith(_DEFAULT)

    def compared(self) -> Iterator[tuple[str, str, bool]]:
        """Yield each scope that values of the advantage are compared in, with the path of what says
        it, and whether a single value gives another result there than 0."""
        advantage: AdvantageScheme = self.parts["advantage"]
        for path, node in statistics(advantage):
            if node in advantage.result.nodes and OPERATIONS[node.op].word not in ("count", "rank"):
                yield path, str(scope_of(node)), keeps_single(advantage.result, node)

    def steps_of_scheme(self) -> Iterator[tuple[str, AdvantageStep]]:
        """Yield the steps of the advantage scheme, each with its path."""
        for index, step in enumerate(self.parts["advantage"].steps):
            yield f"advantage.steps.{index}", step

    def error(
        self,
        code: str,
        path: str,
        message: str,
        help: str | None = None,
        *labels: Label,
        hides: bool = False,
    ) -> None:
        if not self._known(code, path):
            self.found.error(code, self.at(path), message, help, *labels, hides=hides)

    def warning(
        self, code: str, path: str, message: str, help: str | None = None, *labels: Label
    ) -> None:
        if not self._known(code, path):
            self.found.warning(code, self.at(path), message, help, *labels)

    def report(
        self, code: str, path: str, message: str, help: str | None = None, *labels: Label
    ) -> None:
        """Report an error, of which there may be several with one code at one place."""
        span = self.at(path)
        if not any((item.span, item.message) == (span, message) for item in self.found):
            self.found.error(code, span, message, help, *labels)

    def _known(self, code: str, path: str) -> bool:
        """Return whether it was reported for another stage that uses the same thing."""
        span = self.at(path)
        return any(item.code == code and item.span == span for item in self.found)


@frozen(eq=False)
class Rule:
    """A check on the parts ``needs`` of a stage."""

    needs: frozenset[str]
    check: Callable[[StageView], None]


def rule(*needs: str) -> Callable[[Callable[[StageView], None]], Rule]:
    """Return a decorator for a rule on the parts ``needs`` of a stage."""
    return lambda check: Rule(frozenset(needs), check)


def rule_on_envs(*needs: str) -> Callable[[Callable[[StageView, EnvPlan], None]], Rule]:
    """Return a decorator for a rule on each environment, which needs the parts ``needs`` too."""

    def declared(check: Callable[[StageView, EnvPlan], None]) -> Rule:
        def check_all(view: StageView) -> None:
            for env in view.envs:
                check(view, env)

        return Rule(frozenset({"envs", *needs}), check_all)

    return declared


def teacher_paths(view: StageView) -> list[tuple[str, TeacherPlan]]:
    """Return the teachers of a stage, each with its path."""
    teachers = view.teacher
    named = len({one.name for one in teachers} - {None}) == len(teachers)
    return [(f"teacher.{t.name if named else i}", t) for i, t in enumerate(teachers)]
