"""What a catalogue entry is: parameters, builtins, declarations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from rlc.records import evolve, field, frozen

if TYPE_CHECKING:
    from rlc.catalog.traits import StageTraits
    from rlc.data import CodeKind, Holds

REQUIRED: Any = object()  # the default of what has none

# The types of plain values, and how a message calls them.
SCALARS: Mapping[str, str] = {
    "int": "a whole number",
    "float": "a number",
    "bool": "`true` or `false`",
    "string": "a string",
    "path": "a string",  # of a value only: one that names a file, as seen from the recipe's folder
    "money": "an amount of money such as `$25`",
    "duration": "a duration such as `12h`",
    "word": "a word",
    "list": "a list",
    "record": "a record such as `{ size = 9 }`",
    "any": "a plain value",
}

# What names a folder of this machine, where the name of a model may stand too.
MODEL_FOLDER = r"[./~].*"


@frozen(eq=False)
class Param:
    """A parameter of a builtin, or a field of a declaration.

    ``type`` is one of :data:`SCALARS` or a kind of :data:`rlc.catalog.index.KINDS`. Bounds: ``low``
    and ``high`` are allowed values, ``above`` and ``below`` are not. ``choices`` are the only
    allowed values, each a ``noun``. ``form`` is a pattern and an example of it: a value of that
    form is allowed too, and without choices it must be of it. ``file``: a value of the form is the
    path of a file or folder, or one that matches ``file``, if that is a pattern; it starts at the
    folder of what names it (:mod:`rlc.plan.paths`); ``folders``: it is that of folders, or a
    pattern of them. ``many`` takes a list of them, ``named`` a
    record of them. An ``optional`` one also takes the word ``none``. ``default_of`` names what the
    default belongs to, if it is not the builtin. ``only_if`` names another argument and the values
    of it with which alone this one means anything; ``implied`` another argument, and the default
    that this one has where that is given. ``formerly`` are names that it had: they are
    still accepted, with a warning. ``folded`` are words that it took together with another
    argument, which is now an argument of a builtin: word -> (argument, builtin). ``instead``
    is advice for a wrong value.
    ``holds``: its value names a field of the rows that are read, and this is what the field holds.
    ``code``: its value names Python code, which is called like this; ``calls``: it names a package,
    or a Python file, and this is what is called in it. ``variables``: its value names
    a template, or a file with one, which uses exactly these. ``also``: a call of that other kind,
    or the name of one, may stand there too. ``suggests``: the
    names that are likely, where others may stand too.
    """

    name: str
    type: str
    doc: str
    default: Any = REQUIRED
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] | Callable[[], tuple[str, ...]] = ()
    noun: str = "value"
    form: tuple[str, str] | None = None
    file: bool | str = False
    folders: bool = False
    many: bool = False
    named: bool = False
    optional: bool = False
    default_of: str | None = None
    only_if: tuple[str, tuple[str, ...]] | None = None
    implied: tuple[str, Any] | None = None
    formerly: tuple[str, ...] = ()
    folded: Mapping[str, tuple[str, str]] = field(factory=dict)
    instead: str | None = None
    holds: Holds | None = None
    code: CodeKind | None = None
    calls: str | None = None
    variables: tuple[str, ...] = ()
    also: str | None = None
    suggests: Callable[[], tuple[str, ...]] | None = None

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def all_choices(self) -> tuple[str, ...]:
        return self.choices() if callable(self.choices) else self.choices

    def is_word(self, value: object) -> bool:
        """Whether a value is written without quotes: it is a choice, and no string that is open."""
        if not isinstance(value, str) or not value.isidentifier():
            return False
        is_open = self.form is not None and re.fullmatch(self.form[0], value) is not None
        return not is_open and value in self.all_choices()

    def names_file(self, value: object) -> TypeGuard[str]:
        """Whether a value of this parameter is the path of a file or folder."""
        pattern = self.form[0] if self.file is True and self.form else self.file
        if not (isinstance(pattern, str) and isinstance(value, str)):
            return False
        return value not in self.all_choices() and re.fullmatch(pattern, value) is not None


def optional(name: str, type: str, doc: str, **more: Any) -> Param:
    """A parameter that may be left out, or given as ``none``."""
    return Param(name, type, doc, None, optional=True, **more)


def code(name: str, doc: str, kind: CodeKind = "factory", **more: Any) -> Param:
    """What names something in Python code, in a file or in a module. A ``factory`` is called with
    the argument ``args``, as keyword arguments."""
    form = (r"(.+\.py|[A-Za-z_][\w.]*):[A-Za-z_]\w*", "rewards.py:reward")
    return Param(name, "string", doc, form=form, file=r".+\.py:\w+", code=kind, **more)


def share(name: str, doc: str, default: float | None, **more: Any) -> Param:
    """A number from 0 to 1."""
    return Param(name, "float", doc, default, low=0, high=1, **more)


def word(
    name: str, doc: str, choices: tuple[str, ...], default: Any = REQUIRED, **more: Any
) -> Param:
    """One of some words."""
    return Param(name, "word", doc, default, choices=choices, **more)


@frozen(eq=False)
class Signature:
    """Parameters that depend on an argument; ``why_no_other`` explains that there are no more."""

    params: tuple[Param, ...]
    why_no_other: str | None = None


@frozen(eq=False)
class Builtin:
    """Something a recipe can call.

    ``build`` makes the plan record from the arguments, an :class:`Args`. ``more`` gives the
    parameters that depend on the first argument. ``not_after`` maps a step of the same pipeline
    to the reason why this one cannot follow it. ``word`` marks one that is written without
    parentheses. ``hint`` is said where an argument is given that it does not have.
    ``traits`` is the record of what others need to know of it, one class a kind
    (:mod:`rlc.catalog.traits`); :mod:`rlc.catalog.index` has a typed function for each.
    ``example``: fields of a declaration in which it stands, where more has to be said than its
    usage does (:mod:`rlc.catalog.search`).
    """

    name: str
    kind: str
    doc: str
    build: Callable[[Args], Any]
    params: tuple[Param, ...] = ()
    formula: tuple[str, ...] = ()
    more: Callable[[str], Signature] | None = None
    not_after: Mapping[str, str] = field(factory=dict)
    word: bool = False
    hint: str | None = None
    traits: Any = None
    aliases: str = ""  # its names in other libraries, for suggestions
    example: str = ""

    def usage(self) -> str:
        """The shortest way to write it, with what it cannot do without: ``adam(learning_rate)``."""
        if self.word:
            return self.name
        return f"{self.name}({', '.join(param.name for param in self.params if param.required)})"


def builtin(
    name: str, kind: str, doc: str, build: Callable[[Args], Any], *params: Param, **more: Any
) -> Builtin:
    """A builtin with its parameters one after the other."""
    return Builtin(name, kind, doc, build, params, **more)


class Args:
    """The arguments of one call as attributes.

    Each is a value with its origin; a ``build`` puts it into the record as it is, so that the
    origin of every leaf stays known, and reads ``.data`` only to decide something.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None


def as_float(value: Any) -> Any:
    """A value with its origin, as a float: durations are written as whole numbers mostly."""
    return value if value.data is None else evolve(value, data=float(value.data))


@frozen(eq=False)
class Kind:
    """A kind of thing that builtins make.

    ``step`` is the kind of its pipeline stages, ``start`` what a pipeline may begin with.
    ``plain`` maps types of plain values to what one of them alone stands for: ``$60`` as a
    budget is ``limit(usd = $60)``. ``as_is``: the type of plain values that are such a thing
    themselves: a split is also a name. Nothing declared can stand there, so declarations may have
    the names of its builtins; nor where a kind stands ``apart``, in one field of one declaration.
    ``also``: the kind of what else may stand there.
    ``several``: an example of more than one where several may stand. ``named``: what is declared
    has the name of its declaration in the plan. ``nameable``: it can be declared at all.
    ``weighted``: a number before one is its weight, `0.5 * one`. ``before_then``: the kind of what
    may stand before it, with the word `then` between them.
    """

    name: str
    noun: str  # with its article: "an environment"
    example: str
    step: str | None = None
    start: str = ""
    plain: Mapping[str, str] = field(factory=dict)
    as_is: str | None = None
    several: str | None = None
    apart: bool = False
    also: str | None = None
    named: bool = False
    nameable: bool = True
    weighted: bool = False
    before_then: str | None = None


@frozen(eq=False)
class Declaration:
    """A declaration: a block with fields, or ``kind name = value`` with a value of ``value``, or in
    a ``form`` of its own, without a name.

    Those that are ``reusable`` may have parameters. Of an ``open`` one the fields may have any
    names. ``noun``: what it declares, where that is not a kind of value. ``traits``: of a stage.
    ``example``: fields of one, or one as a whole where that is not a block.
    """

    kind: str
    doc: str
    fields: tuple[Param, ...] = ()
    value: str | None = None
    aliases: str = ""  # what other tools call it, for suggestions
    form: str | None = None
    reusable: bool = True
    open: bool = False
    noun: str | None = None
    traits: StageTraits | None = None
    example: str = ""

    @property
    def is_block(self) -> bool:
        return self.value is None and self.form is None

    def written(self, name: str = "name") -> str:
        """How a declaration of that name is written."""
        if self.form is not None:
            return self.form
        return f"{self.kind} {name} {{ … }}" if self.value is None else f"{self.kind} {name} = …"
