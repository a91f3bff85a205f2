"""The options of another trainer: which it has, which were given, and what became of each.

Nothing is dropped silently: a given option is used by the importer, or stands in its table with the
reason why it is not carried over, or is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import define, field, frozen

from rlc.errors import Error
from rlc.lang import did_you_mean

REQUIRED = object()
TRAINER, SCRIPT = "the trainer's default", "the script's default"
OVERRULED = "without effect beside the other options"
PLACELESS = "no place here"


class InputError(Error):
    """Input that cannot become a recipe."""


@frozen
class Option:
    """One option of a trainer.

    ``default`` is the trainer's own. ``unused`` says why the option is not carried over; if it is
    None, the importer uses the option. A name that ends in ``.*`` stands for everything below it.
    """

    name: str
    type: str
    default: Any = None
    unused: str | None = None


def table(*options: Option) -> dict[str, Option]:
    return {option.name: option for option in options}


def defaults(text: str, unused: str | None = None) -> dict[str, Option]:
    """Return the options of lines that begin with a type: ``int epochs=3 seed``; one without a
    value has None for its default."""
    found = {}
    for kind, *words in filter(None, map(str.split, text.splitlines())):
        for name, equals, default in (word.partition("=") for word in words):
            value = _TYPES[kind][1](default) if equals else None
            found[name] = Option(name, kind, value, unused)
    return found


@define(eq=False)
class Settings:
    """The options of one job, typed.

    Attributes:
        where: comes before a name in messages (``environments.MATH/GSM8K.``).
        notes: the comments of the recipe on options that it does not hold.
        whose: what a comment calls the default of an option that was not given.
        gathers: whether options with the same reason share a comment, and those that no table has
            are among them. Nothing is an error then but a value of another type.
    """

    options: Mapping[str, Option]
    pairs: Iterable[tuple[str, Any]]
    keep_going: bool = False
    where: str = ""
    notes: list[str] = field(factory=list)
    whose: str = TRAINER
    gathers: bool = False
    used: set[str] = field(factory=set, init=False)
    given: dict[str, Any] = field(factory=dict, init=False)
    left: dict[str, list[str]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.keep_going |= self.gathers
        for name, value in self.pairs:
            self._add(name, value)

    def __getitem__(self, name: str) -> Any:
        """Return the given value, or the trainer's default, and mark the option as used."""
        option = self.options[name]
        self.used.add(name)
        if name in self.given:
            return self.given[name]
        if option.default is REQUIRED:
            message = f"`{self.where}{name}` is missing, and the trainer has no default for it"
            raise InputError(message, f"give it a value: `--overrides {self.where}{name}=…`")
        return option.default

    def get(self, name: str) -> Any:
        """Return the value as ``self[name]`` does; None if the trainer has no such option."""
        return self[name] if name in self.options else None

    def is_given(self, name: str) -> bool:
        return name in self.given

    def default_note(self, *names: str) -> str:
        """Return ``the trainer's default`` if nothing was given, with names if there are several;
        empty if all of them were given."""
        missing = [name for name in names if name not in self.given]
        if not missing:
            return ""
        return self.whose if len(names) == 1 else f"{', '.join(missing)}: {self.whose}"

    def choice(self, noun: str, value: str, choices: Iterable[str], otherwise: str) -> str:
        """Return ``value``; if it is not a choice, report that and return ``otherwise``."""
        if value in choices:
            return value
        self.problem(f"there is no {noun} `{shown(value)}`", f"known: {', '.join(choices)}")
        return otherwise

    def problem(self, message: str, advice: str | None = None, noted: str | None = None) -> None:
        """Raise InputError for what has no counterpart; with ``keep_going`` note it."""
        if not self.keep_going:
            raise InputError(message, advice or "`--keep-going` leaves it to a comment")
        self.note(noted or message)

    def note(self, text: str) -> None:
        """Say something once at the top of the recipe."""
        if text not in self.notes:
            self.notes.append(text)

    def finish(self) -> None:
        """Note every given option that the recipe does not hold."""
        for name, value in self.given.items():
            if name not in self.used:
                option = self._option(name)
                reason = (option and option.unused) or OVERRULED
                if not self.gathers:
                    self.note(f"{self.where}{shown(name)} = {_masked(name, value)}: {reason}")
                elif option is None or value != option.default:
                    self._leave(reason, name, value)
        for reason, texts in self.left.items():
            self.note(f"{reason}: {', '.join(texts)}")

    def _leave(self, reason: str, name: str, value: Any) -> None:
        self.left.setdefault(reason, []).append(f"{shown(name)}={_masked(name, value)}")

    def _add(self, name: str, value: Any) -> None:
        option = self._option(name)
        if option is None and self.gathers:
            if value not in (None, "", [], {}):
                self._leave(PLACELESS, name, value)
            return
        if option is None:
            message = f"there is no option `{self.where}{shown(name)}`"
            known = did_you_mean(name, self.options) or f"known: {', '.join(self.options)}"
            noted = f"{self.where}{shown(name)} = {_masked(name, value)}: no option of the trainer"
            self.problem(message, f"{known} (`--keep-going` leaves it to a comment)", noted)
            return
        typed = self._typed(option, name, value)
        if name in self.given and self.given[name] != typed:
            message = (
                f"`{self.where}{shown(name)}` is given twice, as {shown(self.given[name])} "
                f"and as {shown(typed)}"
            )
            self.problem(message, "keep one of them", f"{message}: the last counts")
        self.given[name] = typed

    def _option(self, name: str) -> Option | None:
        if name in self.options:
            return self.options[name]
        parts = name.split(".")
        groups = (".".join([*parts[:end], "*"]) for end in range(len(parts) - 1, 0, -1))
        return next((self.options[group] for group in groups if group in self.options), None)

    def _typed(self, option: Option, name: str, value: Any) -> Any:
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
            if option.default is None or self.gathers:
                return option.default
            if value is None:
                self.problem(f"`{self.where}{name}` has no value", "give it one, or remove it")
                return option.default
        noun, read = _TYPES[option.type]
        try:
            return read(value)
        except (ValueError, TypeError, OverflowError):
            message = f"`{self.where}{shown(name)}` takes {noun}, not {shown(value)}"
            raise InputError(message, "correct it") from None


def _masked(name: str, value: Any) -> str:
    """Return the value for a comment; never a secret."""
    secret = any(word in name.lower() for word in ("key", "secret", "token_", "password"))
    return "…" if secret and isinstance(value, str) and not value.isdigit() else shown(value)


def _bool(value: Any) -> bool:
    if str(value).lower() not in ("true", "false", "1", "0"):
        raise ValueError(value)
    return str(value).lower() in ("true", "1")


def _int(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError(value)
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.strip("+-").isdecimal() and len(value) < 20:
        return int(value)
    number = float(value)
    if number != math.floor(number):
        raise ValueError(value)
    return int(number)


def _float(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(value)
    return number


def _string(value: Any) -> str:
    if isinstance(value, dict | list | bool):
        raise TypeError(value)
    text = str(value)
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def _words(value: Any) -> list[str]:
    """Read ``['a','b']``, ``[a,b]``, ``a`` or a list."""
    if isinstance(value, str):
        value = value.strip().removeprefix("[").removesuffix("]").split(",")
    if not isinstance(value, list):
        raise TypeError(value)
    words = [_string(item).strip().strip("'\"") for item in value]
    return [word for word in words if word]


def _floats(value: Any) -> list[float]:
    return [_float(item) for item in _words(value)]


def _mapping(value: Any) -> dict[str, Any]:
    """Read a mapping, or JSON text of one."""
    import json

    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(value)
    return value


_TYPES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "int": ("a whole number", _int),
    "float": ("a number", _float),
    "bool": ("true or false", _bool),
    "string": ("a string", _string),
    "words": ("a list of words", _words),
    "floats": ("a list of numbers", _floats),
    "mapping": ("a mapping", _mapping),
    "any": ("a value", lambda value: value),
}


def shown(value: Any) -> str:
    """Return a value nearly as its user wrote it: on one line, printable, short."""
    text = (
        str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
    )
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return text if len(text) <= 200 else f"{text[:199]}…"
