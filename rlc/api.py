"""rlc from Python: the same as the commands, as functions.

import rlc

recipe = rlc.load("recipes/quickstart.rl", set={"main.steps": 10})
recipe.check()                 # the findings; empty where there are none
recipe.explain()               # shows itself in a notebook, prints as `rlc explain`
summary = rlc.run(recipe)      # the job, as `rlc run` does it
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from rlc.errors import Error

if TYPE_CHECKING:
    from rlc.compile.recipe import Compiled
    from rlc.explanation.diagrams import Format
    from rlc.lang.diagnostics import Diagnostics
    from rlc.plan.records import Plan
    from rlc.pricing.latencies import Latencies

# What a value may be set to: a string is what would stand in the recipe.
Setting = str | int | float | bool | None | Sequence["Setting"]


class RecipeError(Error, ValueError):
    """A recipe with errors; the text is what `rlc check` prints, ``diagnostics`` holds them."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        from rlc.lang.render import render_human

        super().__init__(render_human(diagnostics, color=False))
        self.diagnostics = diagnostics


@frozen
class Recipe:
    """A recipe in a file, with what its user decides beside it. Read anew at each use."""

    path: str
    overrides: tuple[str, ...] = ()
    seed: int | None = None
    rehearse: bool = False
    service: str | None = None

    def compile(self) -> Compiled:
        """The plan, or None where there are errors, with all findings.

        Raise :class:`rlc.compile.services.ServiceMismatchError` if the ``service`` does not have
        the model.
        """
        from rlc.compile.recipe import load

        return load(self.path, self.overrides, self.seed, self.rehearse, self.service)

    def check(self) -> Diagnostics:
        """All that is wrong with it; empty where nothing is."""
        return self.compile().diagnostics

    def plan(self) -> Plan:
        """What it does. Raises RecipeError if it has errors."""
        compiled = self.compile()
        if compiled.plan is None:
            raise RecipeError(compiled.diagnostics)
        return compiled.plan

    def explain(self) -> Explanation:
        """Values, formulas, graph, sizes and cost; of a recipe with errors only these."""
        compiled = self.compile()
        return Explanation(self.path, compiled.plan, compiled.diagnostics)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file that `rlc run` and :func:`load_plan` take.

        Raises RecipeError if the recipe has errors, :class:`rlc.compile.saved.PlanFileError` if the
        file cannot be written.
        """
        from rlc.compile.saved import MadeFrom, save_plan

        overrides = list(self.overrides)
        origin = MadeFrom(self.path, overrides, self.seed, self.rehearse, self.service)
        save_plan(path, self.plan(), origin)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()


@frozen
class Explanation:
    """What a recipe or plan does and costs. Prints as `rlc explain` does; a notebook shows tables.

    ``plan`` is None for a recipe with errors, which ``diagnostics`` holds.
    """

    recipe: str
    plan: Plan | None
    diagnostics: Diagnostics
    latencies: Latencies | None = None  # how long nodes take, where that is known

    def __str__(self) -> str:
        return self.text()

    def text(self, color: bool = False) -> str:
        """For a person; the findings alone where there is no plan."""
        if self.plan is None:
            from rlc.lang.render import render_human

            return render_human(self.diagnostics, color)
        from rlc.explanation import explain_text

        return explain_text(self.plan, self.diagnostics, color, self.latencies)

    def to_dict(self) -> dict[str, Any]:
        """For a program: what `rlc explain --json` prints."""
        from rlc.explanation import explain_dict

        return explain_dict(self.plan, self.recipe, self.diagnostics, self.latencies)

    def graph(self, format: Format = "mermaid") -> str:
        """The job graph as a diagram's text. Raises RecipeError where there is no plan."""
        from rlc.explanation.diagrams import render_graph

        if self.plan is None:
            raise RecipeError(self.diagnostics)
        return render_graph(self.plan, format)

    def _repr_html_(self) -> str:
        if self.plan is None:
            from html import escape

            return f"<pre>{escape(self.text())}</pre>"
        from rlc.explanation.notebook import explain_html

        return explain_html(self.plan, self.diagnostics)

    def _repr_markdown_(self) -> str:
        if self.plan is None:
            return f"```\n{self.text()}```\n"
        from rlc.explanation.notebook import explain_markdown

        return explain_markdown(self.plan, self.diagnostics)


def load(
    path: str | os.PathLike[str],
    set: Mapping[str, Setting] | Sequence[str] = (),
    seed: int | None = None,
    rehearse: bool = False,
    service: str | None = None,
) -> Recipe:
    """A recipe. Nothing is read before it is used.

    Args:
        path: the file (``-``: standard input).
        set: values by name, as ``{"main.steps": 10, "main.advantage": "rloo()"}``, or as the
            command line has them: ``["main.steps=10"]``.
        seed: of every random choice; by default 1.
        rehearse: the same job on the embedded tiny model, small and short.
        service: where it is trained, ``"local"`` or ``"tinker"``; by default where the model is.

    Raises:
        TypeError: a value that a recipe cannot hold.
    """
    settings = set
    if isinstance(settings, Mapping):
        settings = [f"{name}={written(value)}" for name, value in settings.items()]
    return Recipe(os.fspath(path), tuple(settings), seed, rehearse, service)


def written(value: Setting) -> str:
    """A value as a recipe writes it. Raises TypeError for what a recipe cannot hold."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return repr(int(value) if isinstance(value, int) else float(value))
    if isinstance(value, Sequence):
        return f"[{', '.join(map(written, value))}]"
    raise TypeError(f"a recipe cannot hold {value!r}")


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """A saved plan, to run.

    Raise :class:`rlc.compile.saved.PlanFileError` if it was edited, or its recipe has changed.
    """
    from rlc.compile.saved import load_plan as load_saved

    return load_saved(path)


def explain(plan: Plan) -> Explanation:
    """What a plan does and costs."""
    from rlc.lang.diagnostics import Diagnostics

    return Explanation(plan.recipe, plan, Diagnostics())


def is_saved_plan(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a saved plan, by its ending."""
    return os.fspath(path).endswith(".json")
