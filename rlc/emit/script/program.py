"""A plan of one stage as a Python program: its values, and the calls of the pieces."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import fill

from attrs import frozen

from rlc.algo import advantage_functions, pair_functions, torch_function, trained
from rlc.catalog import loss_traits, preference_program
from rlc.catalog.packages import package_of
from rlc.emit.errors import EmitError
from rlc.emit.script.environments import environments
from rlc.emit.script.learnt import data_sets
from rlc.emit.script.literals import WIDTH, CallText, literal, written
from rlc.emit.script.stitch import imported, stitched
from rlc.emit.script.unsupported import misfits
from rlc.emit.script.values import Found, data_values, episode_values, job_values, pair_values
from rlc.plan import Likelihood, Plan, PolicyGradient, PreferenceLoss, Table, Training, plan_hash
from rlc.version import __version__

Lines = Iterable[str]
_GAP = ("", "")


@frozen
class ScriptKind:
    """How stages with an objective are written: the piece whose ``train`` is called, the values
    that it reads, and the functions that are written for a stage alone."""

    loop: str
    values: Callable[[Training], Iterable[Found]]
    functions: Callable[[Plan, Training, str], Lines]


def _of_episodes(plan: Plan, stage: Training, path: str) -> Iterator[str]:
    objective = stage.of(PolicyGradient)
    yield from environments(stage, plan.recipe, os.path.dirname(path))
    yield from (*_GAP, *advantage_functions(objective.advantage))
    if (program := objective.loss.program) is not None:
        own = torch_function(program, "own_loss", loss_traits(objective.loss).weighted)
        yield from (*_GAP, f"# {objective.loss.name}")
        yield from ("# fmt: off", own.source.rstrip("\n"), "# fmt: on")


def _of_pairs(plan: Plan, stage: Training, path: str) -> Iterator[str]:
    yield from data_sets(plan, stage, path)
    program = preference_program(stage.of(PreferenceLoss).loss)
    yield from (*_GAP, *pair_functions(program), *_GAP)
    slopes = {name: f"slope_of_{name}" for name in trained(program)}
    items = [f"{literal(name)}: {function}" for name, function in slopes.items()]
    yield f"SLOPES = {written(CallText('', items, '{}'), 0, 9)}"


_BY_KIND: Table[ScriptKind] = Table(
    {
        PolicyGradient: ScriptKind("reinforce", episode_values, _of_episodes),
        Likelihood: ScriptKind("imitation", data_values, data_sets),
        PreferenceLoss: ScriptKind("preferences", pair_values, _of_pairs),
    }
)


def script(plan: Plan, path: str = "train.py") -> str:
    """Return the program of a plan, as it would be saved at ``path``. Raise EmitError if a script
    cannot do what it says."""
    if found := misfits(plan):
        raise EmitError(found)
    (stage,), name = plan.trainings, os.path.basename(path)
    kind = _BY_KIND[stage]
    values = job_values(plan, stage, kind.values(stage))
    functions = [*kind.functions(plan, stage, path), *_required(plan)]
    text = stitched(kind.loop, values, "\n".join(functions))
    needed = {one.module.partition(".")[0] for one in imported(ast.parse(text))}
    of_others = sorted(needed - {*sys.stdlib_module_names, "numpy"})
    packages = [package_of(module) for module in of_others]
    return "\n".join([*_docstring(plan, stage, name, packages), "", text])


def _required(plan: Plan) -> Iterator[str]:
    """Yield the function that holds the last metrics against what is expected of them."""
    after = [one for one in plan.expectations if one.after]
    if after:
        yield from (*_GAP, "def require(measured: Mapping[str, float]) -> None:")
    for one in after:
        yield f"    if not measured[{literal(one.quantity.key)}] {one.op} {one.constant!r}:"
        yield f"        raise SystemExit({literal(f'expected: {one.text}')})"


def _docstring(plan: Plan, stage: Training, name: str, packages: Sequence[str]) -> Iterator[str]:
    usage = f"python {name} [--steps N] [--metrics metrics.jsonl]"
    yield f'"""{os.path.basename(plan.recipe)}: {stage.name}, on Tinker: {usage}'
    yield ""
    yield fill(
        f"Written by rlc {__version__} (plan {plan_hash(plan)[:12]}); comments name the place in "
        "the recipe that decided a value. The same seed gives what `rlc run` gives on a server. "
        f"It needs {', '.join(packages)}; TINKER_API_KEY, or TINKER_BASE_URL.",
        WIDTH,
    )
    for one in plan.expectations:
        yield f"Expected{'' if one.after else ', and so when this was written'}: {one.text}"
    yield '"""'
