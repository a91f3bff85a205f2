"""What a recipe names in Python code, ``module:attr``, found or explained.

Modules are looked for among what is installed, in the folder that one is in, and beside the recipe,
in this order: nothing that lies beside a recipe ever takes the place of a library.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rlc.envs.base import EnvError


def search_beside(recipe: str) -> None:
    """From now on modules beside a recipe (its path; ``-`` is standard input) are found too."""
    for folder in (Path.cwd(), Path(recipe).parent):
        path = str(folder.resolve())
        if path not in sys.path:
            sys.path.append(path)


def load_attribute(target: str) -> Any:
    """What ``module:attr`` names: something that can be called. Raises EnvError."""
    name, _, attribute = target.partition(":")
    module = _module(target, name)
    found = getattr(module, attribute, None)
    if found is None:
        public = [known for known in vars(module) if not known.startswith("_")]
        where = getattr(module, "__file__", None) or name
        raise EnvError(f"{where} has no `{attribute}`{_meant(attribute, public)}")
    if not callable(found):
        raise EnvError(f"`{target}` is of the type {type(found).__name__}, which cannot be called")
    return found


def require_takes(target: str, function: Any, args: Mapping[str, Any]) -> None:
    """Raises EnvError where a function does not take these keyword arguments, or needs others."""
    parameters = _parameters(function)
    if parameters is None:  # the call will tell
        return
    known, kinds = parameter_names(function), {p.kind for p in parameters.values()}
    for name in args:
        if name not in known and inspect.Parameter.VAR_KEYWORD not in kinds:
            takes = ", ".join(f"`{each}`" for each in known) or "nothing"
            raise EnvError(
                f"`{target}` does not take `{name}`; it takes {takes}{_meant(name, known)}"
            )
    missing = [
        name
        for name in known
        if name not in args and parameters[name].default is inspect.Parameter.empty
    ]
    if missing:
        listed = ", ".join(f"`{name}`" for name in missing)
        raise EnvError(f"`{target}` needs {listed}: `args = {{{missing[0]} = …}}`")


def parameter_names(function: Any) -> list[str]:
    """What can be given by name; nothing for a function that does not say."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [name for name, p in (_parameters(function) or {}).items() if p.kind in named]


def called(target: str, function: Any, args: Mapping[str, Any]) -> Any:
    """What the function gives for these arguments. Raises EnvError for whatever it raises."""
    require_takes(target, function, args)
    try:
        return function(**args)
    except EnvError:
        raise
    except Exception as error:
        raise EnvError(f"`{target}` failed: {explained(error)}") from error


def explained(error: BaseException) -> str:
    """An error of foreign code in one line, with the place that it comes from."""
    text = (str(error) or type(error).__name__).splitlines()[0]
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{where}"


def _parameters(function: Any) -> Mapping[str, inspect.Parameter] | None:
    """None for a function that does not say, as some that are written in C."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def _module(target: str, name: str) -> Any:
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise EnvError(f"`{target}` cannot be imported: {explained(error)}") from error
        raise EnvError(
            f"`{target}`: there is no module `{error.name}` among what is installed, in the "
            f"folder you are in, or beside the recipe{_meant(error.name, _modules())}"
        ) from error
    except Exception as error:  # whatever a module does when it is imported
        raise EnvError(f"`{target}` cannot be imported: {explained(error)}") from error


def _modules() -> Iterable[str]:
    """Those of one's own that could have been meant."""
    for entry in dict.fromkeys((str(Path.cwd()), *sys.path)):
        folder = Path(entry)
        if folder.is_dir() and folder.name not in ("site-packages", "lib-dynload"):
            yield from (path.stem for path in folder.glob("*.py"))


def _meant(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f"; did you mean `{close[0]}`?" if close else ""
