"""Python code that a recipe names as ``module:attr`` or ``path/file.py:attr``: imported, or read.

Modules are looked for among what is installed, in the working directory, and beside the recipe, in
this order: a file beside a recipe never takes the place of a library."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from hashlib import blake2b
from importlib.machinery import ModuleSpec, PathFinder
from inspect import Parameter, Signature
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

from rlc.data.calls import SEES, Code, CodeKind
from rlc.data.errors import CodeError, DataError, FilePlace, PackageMissingError
from rlc.errors import Error, first_line

IMPORTING = RLock()  # held where modules are imported, or the finders' caches changed
# What stands in a package whose modules may come from elsewhere.
_MAKES_MODULES = ("__path__", "sys.modules")


def module_file(name: str, folders: Sequence[str]) -> str | None:
    """Return the file of a module's text, which is looked for among what is installed, then in
    ``folders``; None without text. Raise CodeError if a package has no such module, and
    PackageMissingError if nothing has the name of the outermost one."""
    with IMPORTING:
        importlib.invalidate_caches()
    top, *rest = name.split(".")
    specs = (finder.find_spec(top, None) for finder in sys.meta_path)
    spec = next(filter(None, specs), None) or PathFinder.find_spec(top, list(folders))
    known = top
    if spec is None:
        meant = did_you_mean(top, own_modules(folders))
        what = f"there is no module `{top}` among what is installed, here, or beside the recipe"
        raise PackageMissingError(what, meant)
    for part in rest:
        inside = spec.submodule_search_locations
        # By its last name: that of the package would be looked up among imported modules.
        found = None if inside is None else PathFinder.find_spec(part, list(inside))
        if found is None:
            if _makes_modules(spec):
                return None
            names = (path.stem for folder in inside or () for path in Path(folder).glob("*.py"))
            meant = did_you_mean(part, names)
            raise CodeError(f"there is no module `{part}` in `{known}`", meant)
        spec, known = found, f"{known}.{part}"
    file = spec.origin if spec.has_location else None
    return file if file is not None and file.endswith(".py") and os.path.isfile(file) else None


def _makes_modules(spec: ModuleSpec) -> bool:
    """Return whether a module may make others when it is imported."""
    if not spec.has_location or spec.origin is None:
        return spec.submodule_search_locations is None  # a folder without `__init__.py` makes none
    try:
        text = Path(spec.origin).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # of a module that is written in C
        return True
    return any(word in text for word in _MAKES_MODULES)


def own_modules(folders: Sequence[str]) -> Iterator[str]:
    for entry in dict.fromkeys((str(Path.cwd()), *folders, *sys.path)):
        folder = Path(entry)
        if folder.is_dir() and folder.name not in ("site-packages", "lib-dynload"):
            yield from (path.stem for path in folder.glob("*.py"))


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    close = get_close_matches(name, list(known), 1)
    return f"did you mean `{close[0]}`?" if close else None


Function = ast.FunctionDef | ast.AsyncFunctionDef

# What makes names that nobody sees in the text.
_MAKES_NAMES = {"*", "__getattr__", "globals", "locals", "vars", "exec", "setattr"}


def written_signature(file: str, name: str) -> Signature | None:
    """Return the signature of a function or class in a file, with ``-> None`` without a ``return``
    of a value; None if only running the file shows it. Raise DataError if the name is missing."""
    try:
        module = ast.parse(Path(file).read_bytes(), file)
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror or error}") from error
    except SyntaxError as error:
        place = FilePlace(file, error.lineno or 1, error.lineno or 1, error.offset)
        raise DataError(f"this is not Python: {error.msg}", place=place) from error
    except (ValueError, RecursionError) as error:  # a null byte; thousands of brackets
        raise DataError(f"{file} is not Python: {error}") from error
    bound = [*_bound(module)]
    makers = [maker for known, maker in bound if known == name]
    if not makers:
        used = {node.id for node in ast.walk(module) if isinstance(node, ast.Name)}
        if _MAKES_NAMES & {*used, *(known for known, _ in bound)}:
            return None
        meant = did_you_mean(name, (known for known, maker in bound if maker is not None))
        raise CodeError(f"{file} has no `{name}`", meant)
    if len(makers) > 1 or makers[0] not in module.body:  # the last one, or one of them, counts
        return None
    maker = makers[0]
    assert isinstance(maker, Function | ast.ClassDef)
    return _of_class(maker) if isinstance(maker, ast.ClassDef) else _of_function(maker)


def exports_instead(file: str, name: str) -> bool:
    """Return whether a file has not this name, and lists in ``__all__`` others for its user."""
    with suppress(OSError, SyntaxError, ValueError, RecursionError):
        bound = {known for known, _ in _bound(ast.parse(Path(file).read_bytes(), file))}
        return "__all__" in bound and name not in bound
    return False


def lacks(file: str, name: str, attribute: str) -> bool:
    """Return whether ``name`` is a class of the file itself without a trace of the attribute."""
    module, made = _definition(file, name)
    if not isinstance(made, ast.ClassDef) or _of_class(made) is None:
        return False
    parts = [vars(node) for node in ast.walk(module)]
    return all(attribute not in (p.get("attr"), p.get("name"), p.get("id")) for p in parts)


_NUMBERS = (ast.BinOp, ast.UnaryOp, ast.Compare)
_COUNT = {"float", "int", "len", "round"}
_TEXT_METHODS = {"format", "join", "lower", "replace", "strip", "upper"}


def returned_numbers(file: str, name: str) -> tuple[dict[str, float], tuple[str, ...] | None]:
    """Return the numbers that a function of a file always returns, as far as its text shows: those
    of its dicts by their keys, or the one number under the key ``""``. Beside them the keys of all
    that it returns; None where the text does not show them."""
    _, function = _definition(file, name)
    if not isinstance(function, Function):
        return {}, None
    values, named = _returned(function)

    def number(value: ast.expr | None) -> float | None:
        if isinstance(value, ast.Name):
            value = named.get(value.id)
        found = value.value if isinstance(value, ast.Constant) else None
        return float(found) if isinstance(found, int | float) else None

    def parts(value: ast.expr | None) -> dict[Any, float | None]:
        if not isinstance(value, ast.Dict):
            return {"": number(value)}
        keys = [getattr(key, "value", None) for key in value.keys]
        return dict(zip(keys, map(number, value.values), strict=True))

    first, *others = map(parts, values or [None])
    constants = {
        key: value
        for key, value in first.items()
        if value is not None and all(other.get(key) == value for other in others)
    }
    keys = {*first}.union(*others)
    shown = all(isinstance(value, ast.Dict) or _is_number(value) for value in values)
    if function.decorator_list or not (shown and all(isinstance(key, str) for key in keys)):
        return constants, None
    return constants, tuple(keys)


def returns_text(file: str, name: str, fields: Collection[str]) -> bool:
    """Return whether all that a function of a file returns is text, as far as its own text shows;
    such as one of these ``fields`` of its task."""
    _, function = _definition(file, name)
    if not isinstance(function, Function) or function.decorator_list:
        return False
    values, named = _returned(function)
    known = [named.get(value.id) if isinstance(value, ast.Name) else value for value in values]
    return bool(known) and all(_is_text(value, fields) for value in known)


def _returned(function: Function) -> tuple[list[ast.expr | None], dict[str, ast.expr]]:
    """Return what a function returns, and the values of the names that it gives one alone."""
    nodes = [*_own_nodes(function)]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    stored = Counter(name.id for name in names if isinstance(name.ctx, ast.Store))
    named = {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and stored[target.id] == 1
    }
    return [node.value for node in nodes if isinstance(node, ast.Return)], named


def _is_number(value: ast.expr | None) -> bool:
    """Return whether an expression is a number, as its form shows."""
    if isinstance(value, ast.IfExp):
        return _is_number(value.body) and _is_number(value.orelse)
    called = value.func if isinstance(value, ast.Call) else None
    is_count = isinstance(called, ast.Name) and called.id in _COUNT
    return is_count or isinstance(value, (ast.Constant, *_NUMBERS))


def _is_text(value: ast.expr | None, fields: Collection[str]) -> bool:
    match value:
        case ast.JoinedStr() | ast.Constant(value=str()) | ast.Call(func=ast.Name(id="str")):
            return True
        case ast.Call(func=ast.Attribute(attr=method)):
            return method in _TEXT_METHODS
        case ast.Subscript(value=ast.Attribute(attr="task"), slice=ast.Constant(value=field)):
            return field in fields
    return False


def _definition(file: str, name: str) -> tuple[ast.Module, Function | ast.ClassDef | None]:
    """Return a file's text as a tree, and what it defines under a name."""
    module = ast.parse(Path(file).read_bytes(), file)
    return module, next((maker for known, maker in _bound(module) if known == name), None)


def _bound(node: ast.AST) -> Iterator[tuple[str, Function | ast.ClassDef | None]]:
    """Yield the names that a module has, each with its definition; None for others."""
    waiting = [*ast.iter_child_nodes(node)]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, Function | ast.ClassDef):
            yield inner.name, inner
            for own in ast.walk(inner):
                if isinstance(own, ast.Global):
                    yield from ((known, None) for known in own.names)
            continue
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id, None
        elif isinstance(inner, ast.alias):
            yield (inner.asname or inner.name).partition(".")[0], None
        elif isinstance(inner, ast.MatchAs | ast.MatchStar) and inner.name is not None:
            yield inner.name, None
        waiting += ast.iter_child_nodes(inner)


def _of_function(function: Function, bound: int = 0) -> Signature | None:
    """Return the signature without the first ``bound`` parameters; None for decorated functions."""
    if function.decorator_list:
        return None
    its = function.args
    kinds: list[Any] = [Parameter.POSITIONAL_ONLY] * len(its.posonlyargs)
    kinds += [Parameter.POSITIONAL_OR_KEYWORD] * len(its.args)
    named = [*zip([*its.posonlyargs, *its.args], kinds, strict=True)]
    optional = len(named) - len(its.defaults)
    parameters = [
        Parameter(each.arg, kind, default=Parameter.empty if index < optional else ...)
        for index, (each, kind) in enumerate(named)
    ][bound:]
    if its.vararg is not None:
        parameters.append(Parameter(its.vararg.arg, Parameter.VAR_POSITIONAL))
    for each, default in zip(its.kwonlyargs, its.kw_defaults, strict=True):
        value = Parameter.empty if default is None else ...
        parameters.append(Parameter(each.arg, Parameter.KEYWORD_ONLY, default=value))
    if its.kwarg is not None:
        parameters.append(Parameter(its.kwarg.arg, Parameter.VAR_KEYWORD))
    returns = Signature.empty if _returns_something(function) else None
    return Signature(parameters, return_annotation=returns)


def _returns_something(function: Function) -> bool:
    return any(
        isinstance(node, ast.Yield | ast.YieldFrom)
        or (isinstance(node, ast.Return) and node.value is not None)
        for node in _own_nodes(function)
    )


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield what a function is made of, without what functions and classes inside of it are."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        inner = waiting.pop()
        yield inner
        if not isinstance(inner, Function | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(inner)


def _of_class(made: ast.ClassDef) -> Signature | None:
    """Return the signature of a class; None if a base, a decorator or ``__new__`` may decide it."""
    if made.decorator_list or made.bases or made.keywords:
        return None
    own = {node.name: node for node in made.body if isinstance(node, Function)}
    others = {name for name, maker in _bound(ast.Module(made.body, [])) if maker is None}
    if "__new__" in own or others & {"__init__", "__new__", "__call__"}:
        return None
    made_by = _of_function(own["__init__"], bound=1) if "__init__" in own else Signature()
    return made_by and made_by.replace(return_annotation=Signature.empty)  # the object


# Folders that were added to the search for a recipe, and the modules that there were before.
_SEARCHED: dict[str, frozenset[str]] = {}


def search_beside(recipe: str) -> None:
    """Find modules beside a recipe (its path; ``-`` is standard input), too, from now on, in place
    of those beside another recipe, which may have the same names."""
    folders = [str(folder.resolve()) for folder in (Path.cwd(), Path(recipe).parent)]
    for old in _SEARCHED.keys() - folders:
        before = _SEARCHED.pop(old)
        with suppress(ValueError):
            sys.path.remove(old)
        for name in [name for name in sys.modules.keys() - before if _is_in(old, name)]:
            del sys.modules[name]
    for folder in folders:
        if folder not in sys.path:
            _SEARCHED[folder] = frozenset(sys.modules)
            sys.path.append(folder)


def forget_code(folder: str) -> None:
    """Have modules in a folder and below it imported anew when they are next asked for, but for
    those of rlc, of tests and of an environment with packages."""
    for name, module in list(sys.modules.items()):
        file = os.path.abspath(getattr(module, "__file__", None) or os.sep)
        own = file.startswith(os.path.join(folder, "")) and "site-packages" not in file
        if own and not re.match(r"rlc(\.|$)|test|conftest|__", name):
            del sys.modules[name]
    importlib.invalidate_caches()


def _is_in(folder: str, module: str) -> bool:
    """Return whether a module, or the package that it belongs to, is a file of a folder."""
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    return file in (os.path.join(folder, f"{top}.py"), os.path.join(folder, top, "__init__.py"))


# The files of modules of the user's own, as they were when this process imported them.
_SOURCES: dict[str, bytes] = {}


def _keep_sources(before: set[str]) -> None:
    for name in {*sys.modules} - before:
        file, top = getattr(sys.modules.get(name), "__file__", None), name.partition(".")[0]
        installed = top == "rlc" or top in sys.stdlib_module_names
        if file is not None and not installed and "site-packages" not in file:
            with suppress(OSError):  # of a module that is in an archive, or was made by a program
                _SOURCES[os.path.realpath(file)] = Path(file).read_bytes()


def source_when_imported(file: str) -> bytes | None:
    """Return what a file was when this process imported it; None if it has not, as far as known."""
    return _SOURCES.get(os.path.realpath(file))


def load_module(target: str) -> ModuleType:
    """Return the module of ``module:attr``. Raise DataError if it cannot be imported."""
    name = target.rpartition(":")[0]
    try:
        # A module that another thread is still importing has no attributes yet, and the finders'
        # caches cannot be invalidated twice at once.
        with IMPORTING:
            importlib.invalidate_caches()
            before = {*sys.modules}
            try:
                if name.endswith(".py"):
                    return _of_file(Path(name))
                return importlib.import_module(name)
            finally:
                _keep_sources(before)
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


def load_attribute(target: str) -> Any:
    """Return the callable that ``module:attr`` names. Raise DataError if there is none."""
    name, _, attribute = target.rpartition(":")
    module = load_module(target)
    found = getattr(module, attribute, None)
    if found is None:
        public = [known for known in vars(module) if not known.startswith("_")]
        where = getattr(module, "__file__", None) or name
        raise CodeError(f"{where} has no `{attribute}`", did_you_mean(attribute, public))
    if not callable(found):
        raise DataError(f"`{target}` is of the type {type(found).__name__}, which cannot be called")
    return found


def _of_file(path: Path) -> ModuleType:
    """Import the module of a file once: by its stem, as another process finds it again, unless that
    is another module's name. Raise FileNotFoundError if there is none."""
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


# How many arguments code of a kind is called with, which they are, and a form that takes them.
_POSITIONAL: Mapping[CodeKind, tuple[int, str, str]] = {
    "comparison": (3, "three arguments, two replies and the row", "def better(one, other, row)"),
    "reward": (2, "two arguments, the reply and the row", "def reward(reply, row)"),
    "reply": (1, "one argument, the reply", "def action(reply)"),
}
# Why code of a kind has to return something, and what that is.
_RETURNS: Mapping[CodeKind, tuple[str, str]] = {
    "comparison": ("has to say which reply is better", "a number"),
    "reward": ("a reward is a number", "the reward"),
    "player": ("a move is a text", "the move"),
    "advantage": ("an advantage is a number for each episode or turn", "the advantages"),
    "choice": ("it chooses among episodes", "those that are learnt from"),
    "weights": ("it says how often tasks are played", "a weight for each task"),
}


def require_fits(code: Code, signature: Signature | None) -> None:
    """Raise DataError if code cannot be called as it will be; None: only the call will show."""
    target, kind, args = code.target, code.kind, code.args
    if kind == "game":
        require_takes(target, signature, {**args, "seed": None})
    elif kind == "factory" or kind in SEES:
        others = {name: f"it comes from the recipe's {by}" for name, by in code.decided.items()}
        if kind in SEES:
            giver = "the game" if kind == "player" else "rlc"
            others = dict.fromkeys(SEES[kind], f"{giver} gives it")
        for name, why in others.items():
            if name in args:
                what = f"leave `{name}` out of the args of `{target}`: {why}"
                raise CodeError(what, argument=name)
        passed = dict.fromkeys(
            name for name in _named(signature) if code.by_row or name in (*others, *code.offered)
        )
        unknown = lacking(signature, {**args, **passed})
        if kind in SEES and unknown and (meant := did_you_mean(unknown[0], SEES[kind])):
            raise CodeError(f"`{target}` asks for `{unknown[0]}`, which it is not given", meant)
        require_takes(target, signature, {**args, **passed})
    elif kind == "program":
        if signature is not None:
            parameters = [*signature.parameters.values()]
            by_name = (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)
            if not parameters or parameters[0].kind in by_name:
                what = f"`{target}` does not take an argument, the record of its run"
                raise CodeError(what, "write `def solve(run)`")
            signature = signature.replace(parameters=parameters[1:])
        passed = dict.fromkeys(name for name in _named(signature) if name in code.offered)
        require_takes(target, signature, {**args, **passed})
    elif signature is not None:
        count, takes, form = _POSITIONAL.get(kind, (0, "", ""))
        try:
            signature.bind(*[None] * count)
        except TypeError as error:
            if not count:
                what = f"`{target}` needs arguments, and it is called without any"
                raise CodeError(what) from error
            raise CodeError(f"`{target}` does not take {takes}", f"write `{form}`") from error
    if kind in _RETURNS and signature is not None and signature.return_annotation is None:
        why, returned = _RETURNS[kind]
        raise CodeError(f"`{target}` returns nothing, and {why}", f"`return` {returned} at its end")


def require_takes(target: str, signature: Signature | None, args: Mapping[str, Any]) -> None:
    """Raise DataError if these keyword arguments are not taken, or others are needed."""
    if signature is None:
        return
    known, kinds = _named(signature), {p.kind for p in signature.parameters.values()}
    for name in args:
        if name not in known and Parameter.VAR_KEYWORD not in kinds:
            takes = ", ".join(f"`{each}`" for each in known) or "nothing"
            what = f"`{target}` does not take `{name}`; it takes {takes}"
            raise CodeError(what, did_you_mean(name, known), name)
    if missing := lacking(signature, args):
        listed = ", ".join(f"`{name}`" for name in missing)
        raise CodeError(f"`{target}` needs {listed}: `args = {{{missing[0]} = …}}`")


def lacking(signature: Signature | None, args: Mapping[str, Any]) -> list[str]:
    """Return the parameters that have neither a default nor one of these keyword arguments."""
    needed = _named(signature)
    return [
        name
        for name in needed
        if name not in args and signature and signature.parameters[name].default is Parameter.empty
    ]


def signature_of(function: Any) -> Signature | None:
    """Return None if a function has no signature, as some that are written in C."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def parameter_names(function: Any) -> list[str]:
    """Return the parameters that can be passed by name, if there is a signature."""
    return _named(signature_of(function))


def _named(signature: Signature | None) -> list[str]:
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
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
    """Return an error of the user's code as one line, with the place where it was raised."""
    if isinstance(error, SyntaxError) and error.filename:  # of a module that they import
        return f"SyntaxError: {error.msg} ({error.filename}:{error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {first_line(error)}{where}"
