"""The Python code that a recipe names, looked at without being run.

Only `rlc check` of a recipe that names some comes here.
"""

from __future__ import annotations

import os
from inspect import Signature

from rlc.catalog.index import source_traits
from rlc.check.data.places import labels
from rlc.check.rules.base import View
from rlc.data.code.calls import Code
from rlc.data.code.functions import require_fits
from rlc.data.code.modules import module_file
from rlc.data.code.written import written_signature
from rlc.data.errors import CodeError, DataError, PackageMissingError
from rlc.plan.environments import EnvPlan
from rlc.plan.paths import file_part

NOT_THERE, NO_REWARD, DOES_NOT_FIT = "RL0510", "RL0534", "RL0511"


def check_code(view: View, env: EnvPlan, path: str, code: Code) -> None:
    """Report code that is not there, or does not take what it will be called with."""
    path = f"envs.{env.name}.{path}"
    module, _, name = code.target.rpartition(":")
    in_file = file_part(code.target) == module
    try:
        file = view.located(module) if in_file else module_file(module, _folders(view))
        if file is None or (in_file and not os.path.isfile(file)):  # another rule says so
            return
        signature = written_signature(file, name)
    except PackageMissingError as missing:
        package = source_traits(env.source).package or ""
        if module.partition(".")[0] != package.replace("-", "_"):
            advice = missing.hint or "it may be installed where the recipe is run; see `--import`"
            view.warning(NOT_THERE, path, missing.what, advice)
        return
    except CodeError as error:
        view.error(NOT_THERE, path, error.what, error.advice)
        return
    except DataError as error:
        shown = module if in_file else error.place.path if error.place else ""
        view.error(NOT_THERE, path, str(error), error.hint, *labels(error.place, shown))
        return
    report_misfit(view, path, code, signature)


def report_misfit(view: View, path: str, code: Code, signature: Signature | None) -> None:
    """Report code of that signature that cannot be called as it will be, at the argument that is
    wrong."""
    try:
        require_fits(code, signature)
    except CodeError as error:
        if code.kind == "reward":
            view.error(NO_REWARD, path, error.what, error.advice)
            return
        owner = path.rpartition(".")[0] if path.endswith(".id") else path.rpartition(".args.")[0]
        if error.argument is not None:
            path = f"{owner}.args.args.{error.argument}"
        view.error(DOES_NOT_FIT, path, error.what, error.advice)


def _folders(view: View) -> list[str]:
    """Where a module is looked for beside what is installed, as a run does."""
    return [os.getcwd(), os.path.abspath(os.path.dirname(view.origins.span.source.name))]
