"""The Python objects that a recipe names as ``module:attr`` or ``path/file.py:attr``: found, or the
error explained.

Modules are looked for among what is installed, in the working directory, and beside the recipe, in
this order: a file beside a recipe never takes the place of a library. A file is a module of its
stem, and modules beside it are found too.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from rlc.data.code.calls import PLAYER_SEES, Code
from rlc.data.code.modules import IMPORTING, did_you_mean, own_modules
from rlc.data.errors import CodeError, DataError
from rlc.errors import Error, first_line


def search_beside(recipe: str) -> None:
    """From now on modules beside a recipe (its path; ``-`` is standard input) are found too."""
    for folder in (Path.cwd(), Path(recipe).parent):
        path = str(folder.resolve())
        if path not in sys.path:
            sys.path.append(path)


def load_attribute(target: str) -> Any:
    """The callable that ``module:attr`` names. Raise DataError if there is none. Many threads may
    ask at once."""
    name, _, attribute = target.rpartition(":")
    try:
        # A module that another thread is still importing has no attributes yet, and the finders'
        # caches cannot be invalidated twice at once.
        with IMPORTING:
            importlib.invalidate_caches()
            module = _of_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    except FileNotFoundError as error:
        raise DataError(f"`{target}`: there is no file {name}") from error
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise DataError(f"`{target}` cannot be imported: {explained(error)}") from error
        raise CodeError(
            f"`{target}`: there is no module `{error.name}` among what is installed, here, or "
            "beside the recipe",
            did_you_mean(error.name, own_modules(())),
        ) from error
    except (Exception, SystemExit) as error:  # a module may raise anything when it is imported
        raise DataError(f"`{target}` cannot be imported: {explained(error)}") from error
    found = getattr(module, attribute, None)
    if found is None:
        public = [known for known in vars(module) if not known.startswith("_")]
        where = getattr(module, "__file__", None) or name
        raise CodeError(f"{where} has no `{attribute}`", did_you_mean(attribute, public))
    if not callable(found):
        raise DataError(f"`{target}` is of the type {type(found).__name__}, which cannot be called")
    return found


def _of_file(path: Path) -> ModuleType:
    """The module of a file, imported once: by its stem, as another process finds it again, unless
    that is another module's name. Raise FileNotFoundError if there is none."""
    path = path.resolve(strict=True)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    found = importlib.util.find_spec(path.stem)
    if found is not None and found.origin == str(path):
        return importlib.import_module(path.stem)
    name = f"{path.stem}_{blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def require_fits(code: Code, signature: inspect.Signature | None) -> None:
    """Raise DataError if code that a recipe names cannot be called as it will be; None as a
    signature: only the call will show."""
    if code.kind == "game":
        require_takes(code.target, signature, {**code.args, "seed": None})
    elif code.kind == "factory":
        for name, where in code.decided.items():
            if name in code.args:
                what = (
                    f"leave `{name}` out of the args of `{code.target}`: it comes from the "
                    f"recipe's {where}"
                )
                raise CodeError(what, argument=name)
        passed = dict.fromkeys({*code.decided} & {*_named(signature)})
        require_takes(code.target, signature, {**code.args, **passed})
    elif code.kind == "player":
        for name in PLAYER_SEES:
            if name in code.args:
                what = f"leave `{name}` out of the args of `{code.target}`: the game gives it"
                raise CodeError(what, argument=name)
        seen = dict.fromkeys({*PLAYER_SEES} & {*_named(signature)})
        require_takes(code.target, signature, {**code.args, **seen})
        if signature is not None and signature.return_annotation is None:
            what = f"`{code.target}` returns nothing, and a move is a text"
            raise CodeError(what, "`return` the move at its end")
    elif code.kind == "program":
        if signature is not None:
            parameters = [*signature.parameters.values()]
            if not parameters or parameters[0].kind in (
                inspect.Parameter.KEYWORD_ONLY,
                inspect.Parameter.VAR_KEYWORD,
            ):
                what = f"`{code.target}` does not take an argument, the record of its run"
                raise CodeError(what, "write `def solve(run)`")
            signature = signature.replace(parameters=parameters[1:])
        require_takes(code.target, signature, code.args)
    elif signature is not None:
        reward, reply = code.kind == "reward", code.kind == "reply"
        compares = code.kind == "comparison"
        try:
            signature.bind(*[None] * (3 * compares + 2 * reward + reply))
        except TypeError as error:
            if reply:
                what = f"`{code.target}` does not take one argument, the reply"
                raise CodeError(what, "write `def action(reply)`") from error
            if compares:
                what = f"`{code.target}` does not take three arguments, two replies and the row"
                raise CodeError(what, "write `def better(one, other, row)`") from error
            if reward:
                what = f"`{code.target}` does not take two arguments, the reply and the row"
                raise CodeError(what, "write `def reward(reply, row)`") from error
            what = f"`{code.target}` needs arguments, and it is called without any"
            raise CodeError(what) from error
        if (reward or compares) and signature.return_annotation is None:
            if compares:
                what = f"`{code.target}` returns nothing, and has to say which reply is better"
                raise CodeError(what, "`return` a number at its end")
            what = f"`{code.target}` returns nothing, and a reward is a number"
            raise CodeError(what, "`return` the reward at its end")


def require_takes(
    target: str, signature: inspect.Signature | None, args: Mapping[str, Any]
) -> None:
    """Raise DataError if what has a signature does not take these keyword arguments, or needs
    others."""
    if signature is None:
        return
    known, kinds = _named(signature), {p.kind for p in signature.parameters.values()}
    for name in args:
        if name not in known and inspect.Parameter.VAR_KEYWORD not in kinds:
            takes = ", ".join(f"`{each}`" for each in known) or "nothing"
            what = f"`{target}` does not take `{name}`; it takes {takes}"
            raise CodeError(what, did_you_mean(name, known), name)
    missing = [
        name
        for name in known
        if name not in args and signature.parameters[name].default is inspect.Parameter.empty
    ]
    if missing:
        listed = ", ".join(f"`{name}`" for name in missing)
        raise CodeError(f"`{target}` needs {listed}: `args = {{{missing[0]} = …}}`")


def signature_of(function: Any) -> inspect.Signature | None:
    """None if a function has no signature, as some that are written in C."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def parameter_names(function: Any) -> list[str]:
    """The parameters that can be passed by name; empty if a function has no signature."""
    return _named(signature_of(function))


def _named(signature: inspect.Signature | None) -> list[str]:
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = {} if signature is None else signature.parameters
    return [name for name, parameter in parameters.items() if parameter.kind in named]


def called(target: str, function: Any, args: Mapping[str, Any]) -> Any:
    """Return what the function returns for these arguments. Raise DataError if it raises."""
    require_takes(target, signature_of(function), args)
    try:
        return function(**args)
    except Error:
        raise
    except Exception as error:
        raise DataError(f"`{target}` failed: {explained(error)}") from error


def explained(error: BaseException) -> str:
    """An error of the user's code in one line, with the place where it was raised."""
    if isinstance(error, SyntaxError) and error.filename:  # of a module that they import
        return f"SyntaxError: {error.msg} ({error.filename}:{error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {first_line(error)}{where}"
