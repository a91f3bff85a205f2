"""A plan of one stage as a Python program: its values, and the calls of the pieces."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from attrs import frozen

from rlc.catalog.packages import package_of
from rlc.emit.errors import EmitError
from rlc.emit.script.common import IMPORTS
from rlc.emit.script.imitate import imitation_body
from rlc.emit.script.prefer import preference_body
from rlc.emit.script.reinforce import reinforcement_body, variants
from rlc.emit.script.stitch import imported, stitched
from rlc.emit.script.unsupported import misfits
from rlc.plan import Likelihood, Plan, PolicyGradient, PreferenceLoss, Table, Training, plan_hash
from rlc.version import __version__


@frozen
class ScriptKind:
    """How stages with an objective are written: what stands in a script for one alone, and the
    modules of pieces that stand for others in it."""

    body: Callable[[Plan, Training, str], str]
    instead: Callable[[Training], Sequence[str]] = lambda _: ()


_BY_KIND: Table[ScriptKind] = Table(
    {
        PolicyGradient: ScriptKind(reinforcement_body, variants),
        Likelihood: ScriptKind(imitation_body),
        PreferenceLoss: ScriptKind(preference_body),
    }
)


def script(plan: Plan, path: str = "train.py") -> str:
    """Return the program of a plan, as it would be saved at ``path``. Raise EmitError if a script
    cannot do what it says."""
    if found := misfits(plan):
        raise EmitError(found)
    (stage,) = plan.trainings
    kind = _BY_KIND[stage]
    body = kind.body(plan, stage, path)
    if "HERE" in body:
        body = f"HERE = Path(__file__).parent\n{body}"
    text = stitched(body, IMPORTS, kind.instead(stage))
    needed = {one.module.partition(".")[0] for one in imported(ast.parse(text))}
    of_others = sorted(needed - {*sys.stdlib_module_names, "numpy"})
    packages = [package_of(module) for module in of_others]
    return "\n".join([*_docstring(plan, stage, os.path.basename(path), packages), "", text])


def _docstring(plan: Plan, stage: Training, name: str, packages: Sequence[str]) -> Iterator[str]:
    usage = f"python {name} [--steps N] [--metrics metrics.jsonl]"
    yield f'"""{os.path.basename(plan.recipe)}: {stage.name}, on Tinker: {usage}'
    yield ""
    yield f"Written by rlc {__version__} (plan {plan_hash(plan)[:12]}); comments name the place in"
    yield "the recipe that decided a value. The same seed gives what `rlc run` gives on a server."
    yield f"It needs {', '.join(packages)}; TINKER_API_KEY, or TINKER_BASE_URL."
    for one in plan.expectations:
        yield f"Expected{'' if one.after else ', and so when this was written'}: {one.text}"
    yield '"""'
