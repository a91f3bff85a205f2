"""Texts that fit a JSON schema, character by character.

A grammar is made of parts; a state holds the stacks of parts that may follow. A state has the
texts that fit a schema, or fewer: objects have their properties in the order of the schema, and of
`pattern`, `format` and most bounds of numbers nothing is known here, so that what is complete is
still to be checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from attrs import field, frozen


@frozen(eq=False)
class Chars:
    """One character: of ``those``, or none of them and no control character."""

    those: str
    others: bool = False

    def has(self, one: str) -> bool:
        return one not in self.those and one >= " " if self.others else one in self.those


@frozen(eq=False)
class Choice:
    parts: Sequence[Any]


@frozen
class Repeat:
    part: Any  # which is not empty
    least: int = 0
    most: int | None = None


@frozen(eq=False)
class Later:
    """A part that is made when it is first met, as it may contain itself."""

    make: Callable[[], Any]


Part = str | Chars | Choice | Repeat | Later | tuple[Any, ...]
Stack = tuple[Part, Any] | None  # a part, and what follows it
State = frozenset[Stack]


def after(state: State, one: str) -> State:
    """Return the state after a character; an empty one if it cannot follow."""
    found, met, left = set[Stack](), set[Stack](), [*state]
    while left:
        if (stack := left.pop()) is None:
            continue
        part, rest = stack
        if isinstance(part, Later):
            if stack not in met:  # many ways may lead to it
                met.add(stack)
                left.append((part.make(), rest))
        elif isinstance(part, Repeat):
            if part.most != 0:
                most = None if part.most is None else part.most - 1
                more = Repeat(part.part, max(part.least - 1, 0), most)
                left.append((part.part, (more, rest)))
            if not part.least:
                left.append(rest)
        elif isinstance(part, Choice):
            left += [(each, rest) for each in part.parts]
        elif isinstance(part, Chars):
            if part.has(one):
                found.add(rest)
        elif not part:
            left.append(rest)
        elif isinstance(part, tuple):
            left.append((part[0], (part[1:], rest)))
        elif part[0] == one:
            found.add((part[1:], rest) if len(part) > 1 else rest)
    return frozenset(found)


_NEVER = 10**9


def shortest(state: State) -> int:
    """Return the number of characters that complete a text at least; 0 if it is complete."""
    return min((_shortest(stack) for stack in state), default=_NEVER)


def _shortest(stack: Stack) -> int:
    total = 0
    while stack is not None:
        part, stack = stack
        total += _least_of(part)
    return min(total, _NEVER)


@lru_cache(maxsize=4_096)
def _least_of(part: Part) -> int:
    """Return the least number of characters of a part. What later parts need, which may contain
    themselves, is lowered until it stays."""
    known = dict[Later, int]()
    before: Mapping[Later, int] | None = None
    while known != before:
        before, seen = dict(known), dict[int, int]()
        least = _least(part, known, seen)
        known |= {later: _least(later.make(), known, seen) for later in before}
    return least


def _least(part: Part, known: dict[Later, int], seen: dict[int, int]) -> int:
    if isinstance(part, Later):
        return known.setdefault(part, _NEVER)
    if isinstance(part, str | Chars):
        return len(part) if isinstance(part, str) else 1
    if (least := seen.get(id(part))) is not None:
        return least
    if isinstance(part, Repeat):
        least = part.least and part.least * _least(part.part, known, seen)
    elif isinstance(part, Choice):
        least = min((_least(one, known, seen) for one in part.parts), default=_NEVER)
    else:
        least = sum(_least(one, known, seen) for one in part)
    seen[id(part)] = least = min(least, _NEVER)
    return least


_SPACE = Choice(["", " ", ("\n", Repeat(" ", 0, 16))])
_DIGIT, _HEX = Chars("0123456789"), Chars("0123456789abcdefABCDEF")
_ESCAPED = ("\\", Choice([Chars('"\\/bfnrt'), ("u", Repeat(_HEX, 4, 4))]))
_CHARACTER = Choice([Chars('"\\\x7f', others=True), _ESCAPED])
_COUNT = Choice(["0", (Chars("123456789"), Repeat(_DIGIT, 0, 14))])
_INTEGER = (Repeat("-", 0, 1), _COUNT)
_FRACTION = Repeat((".", Repeat(_DIGIT, 1, 15)), 0, 1)
_EXPONENT = Repeat((Chars("eE"), Repeat(Chars("+-"), 0, 1), Repeat(_DIGIT, 1, 2)), 0, 1)
_MOST_NUMBERS = 1_000  # of a range that is written out


@frozen(eq=False)
class JsonGrammar:
    """The grammar of a schema, whose references are to its own parts."""

    root: Any
    _referred: dict[str, Later] = field(factory=dict, init=False)

    def start(self) -> Part:
        return self.value(self.root)

    def value(self, schema: Any) -> Part:
        """Return the part of a value that fits a schema."""
        if not isinstance(schema, Mapping):
            return _ANY if schema else Choice(())
        if isinstance(name := schema.get("$ref"), str):
            made = Later(cache(lambda: self.value(self._find(name))))
            return self._referred.setdefault(name, made)
        if "enum" in schema or "const" in schema:
            return _texts(schema["enum"] if "enum" in schema else [schema["const"]])
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return Choice([self.value(one) for one in schema[key]])
        if "allOf" in schema:
            return self.value(_merged([*schema["allOf"], {**schema, "allOf": None}]))
        kinds = schema.get("type", "object" if "properties" in schema else None)
        if kinds is None:
            return _ANY
        kinds = [kinds] if isinstance(kinds, str) else kinds
        return Choice([self._of_kind(kind, schema) for kind in kinds])

    def _of_kind(self, kind: str, schema: Mapping[str, Any]) -> Part:
        if kind == "object":
            return self._object(schema)
        if kind == "array":
            item = self.value(schema.get("items", True))
            least, most = schema.get("minItems", 0), schema.get("maxItems")
            more = None if most is None else max(most - 1, 0)
            full = (item, Repeat((_SPACE, ",", _SPACE, item), max(least - 1, 0), more))
            inner = full if least else Choice([(), full] if most != 0 else [()])
            return ("[", _SPACE, inner, _SPACE, "]")
        if kind == "string":
            size = schema.get("minLength", 0), schema.get("maxLength")
            return ('"', Repeat(_CHARACTER, *size), '"')
        if kind in ("integer", "number"):
            low, high = schema.get("minimum"), schema.get("maximum")
            numbers = range(low, high + 1) if isinstance(low, int) and isinstance(high, int) else ()
            if kind == "integer" and 0 < len(numbers) <= _MOST_NUMBERS:
                return _texts(numbers)
            count = _COUNT if low is not None and low >= 0 else _INTEGER
            return count if kind == "integer" else (count, _FRACTION, _EXPONENT)
        return _texts({"boolean": (True, False), "null": (None,)}.get(kind, ()))

    def _object(self, schema: Mapping[str, Any]) -> Part:
        named, needed = schema.get("properties") or {}, schema.get("required") or ()
        if not named:
            other = schema.get("additionalProperties", True)
            any_pair = ('"', Repeat(_CHARACTER), '"', _SPACE, ":", _SPACE, self.value(other))
            full = (any_pair, Repeat((_SPACE, ",", _SPACE, any_pair)))
            inner: Part = () if other is False else Choice([(), full])
            return ("{", _SPACE, inner, _SPACE, "}")
        first: Part = ()
        later: Part = ()  # with a comma before
        for name, one in reversed(named.items()):
            pair = (_texts([name]), _SPACE, ":", _SPACE, self.value(one), _SPACE)
            with_first, with_later = (*pair, later), (",", _SPACE, *pair, later)
            is_needed = name in needed
            first = with_first if is_needed else Choice([with_first, first])
            later = with_later if is_needed else Choice([with_later, later])
        return ("{", _SPACE, first, "}")

    def _find(self, name: str) -> Any:
        found = self.root
        for step in name.removeprefix("#").strip("/").split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key, True) if isinstance(found, Mapping) and key else found
        return found


_KINDS = ("object", "array", "string", "number", "boolean", "null")
_ANY = Later(cache(lambda: JsonGrammar({"type": _KINDS}).start()))


def _texts(values: Any) -> Part:
    """Return a part of these values: as they are, and with no character beyond ASCII."""
    texts = [
        json.dumps(value, ensure_ascii=escaped) for value in values for escaped in (False, True)
    ]
    return Choice(list(dict.fromkeys(texts)))


def _merged(schemas: Sequence[Any]) -> dict[str, Any]:
    """Return a schema for values that fit all of some, as far as they are objects."""
    merged: dict[str, Any] = {}
    for schema in schemas:
        for key, value in schema.items() if isinstance(schema, Mapping) else ():
            if key == "properties":
                merged[key] = {**merged.get(key, {}), **value}
            elif key == "required":
                merged[key] = [*merged.get(key, ()), *value]
            elif value is not None:
                merged[key] = value
    return merged
