"""Templates of the user's own against what they will be given.

Only `rlc check` of a recipe that names some comes here.
"""

from __future__ import annotations

from rlc.catalog import Param
from rlc.check.data.places import labels
from rlc.check.scope import known_values
from rlc.check.view import StageView
from rlc.data import DataError, FilePlace, parsed_template


def check_template(view: StageView, path: str, param: Param, value: str) -> None:
    """Report a file that is not a template, uses unknown variables, or leaves given ones out."""
    file = view.located(value)
    try:
        read = parsed_template(file)
    except DataError as error:
        message = f'"{value}" cannot be used: {error.what}'
        view.error("RL0514", path, message, None, *labels(error.place, value))
        return
    for name in read.unknown(param.variables):
        line = read.variables[name]
        message = f'"{value}" uses `{name}`, and it is not given that'
        marks = labels(FilePlace(file, line, line), value)
        view.report("RL0515", path, message, known_values(param.variables, name), *marks)
    unused = read.unused(param.variables)
    if unused and not read.unknown(param.variables):
        named = " and ".join(f"`{name}`" for name in unused)
        message = f'"{value}" does not show {named}'
        advice = f"the model would not see it: write `{{{{ {unused[0]} }}}}` where it belongs"
        view.error("RL0516", path, message, advice)
