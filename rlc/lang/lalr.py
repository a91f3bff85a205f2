"""The LALR(1) machine: runs the tables over tokens and builds values as it reduces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from attrs import frozen

from rlc.lang.tables import END, KEEP, SPLICE, Rule, Tables

MAX_DEPTH = 100  # nesting that every later recursive pass can follow on Python's stack


class Token(NamedTuple):
    """A word of the text: the characters ``[start, end)``."""

    kind: str
    start: int
    end: int


class Built(NamedTuple):
    """A finished part: its value, the characters it covers, how deeply it nests."""

    value: Any
    start: int
    end: int
    depth: int


@frozen
class Stuck:
    """The parse stopped before ``tokens[index]``; ``index == len(tokens)`` is the end."""

    index: int
    too_deep: bool = False


# Builds the value of a rule from its action, its kept children and its character range.
Builder = Callable[[str, list[Any], int, int], Any]


def run(tables: Tables, start: str, tokens: Sequence[Token], build: Builder) -> Any | Stuck:
    """The value of ``start`` over all of ``tokens``, or where the parse got stuck."""
    table, rules = tables.states, tables.rules
    first, accepting = tables.starts[start]
    states, stack = [first], list[Built]()
    for index, token in enumerate(_closed(tokens)):
        while True:
            action = table[states[-1]].get(token.kind)
            if action is None:
                action = _as_name(tables, states[-1], token.kind)
            if action is None:
                return Stuck(index)
            if action >= 0:
                states.append(action)
                stack.append(Built(token, token.start, token.end, 0))
                break
            rule = rules[-1 - action]
            if rule.is_unit:
                states[-1] = table[states[-2]][rule.origin]
                continue
            built = _reduce(rule, stack, token.start, build)
            if built.depth > MAX_DEPTH:
                return Stuck(index, too_deep=True)
            if rule.keep:
                del states[-len(rule.keep) :], stack[-len(rule.keep) :]
            states.append(table[states[-1]][rule.origin])
            stack.append(built)
            if token.kind == END and states[-1] == accepting:
                return built.value
    raise AssertionError("the end is always accepted or stuck")


def expected(tables: Tables, start: str, tokens: Sequence[Token]) -> set[str]:
    """The kinds of token that may follow ``tokens``, which must parse so far."""
    states = [tables.starts[start][0]]
    for token in tokens:
        _advance(tables, states, token.kind)
    kinds = (kind for kind in (*tables.terminals, END) if kind not in tables.ignored)
    return {kind for kind in kinds if _advance(tables, list(states), kind, exact=True)}


def _closed(tokens: Sequence[Token]) -> list[Token]:
    end = tokens[-1].end if tokens else 0
    return [*tokens, Token(END, end, end)]


def _as_name(tables: Tables, state: int, kind: str) -> int | None:
    """What to do on a keyword that the state cannot use: there it is a plain name."""
    return tables.states[state].get("NAME") if kind in tables.soft else None


def _reduce(rule: Rule, stack: list[Built], position: int, build: Builder) -> Built:
    """The value of a rule from the topmost parts; an empty rule stands at ``position``."""
    if not rule.keep:
        value = build(rule.action, [], position, position) if rule.action else []
        return Built(value, position, position, 0)
    parts = stack[-len(rule.keep) :]
    start, end = parts[0].start, parts[-1].end
    depth = 0
    children: list[Any] = []
    for how, part in zip(rule.keep, parts, strict=True):
        if part.depth > depth:
            depth = part.depth
        if how == KEEP:
            children.append(part.value)
        elif how == SPLICE:
            # The first helper's list is ours to grow: a long list is built in linear time.
            children = children + part.value if children else part.value
    if not rule.action:
        return Built(children, start, end, depth)
    if rule.passes and len(children) == 1:
        return Built(children[0], start, end, depth)
    return Built(build(rule.action, children, start, end), start, end, depth + 1)


def _advance(tables: Tables, states: list[int], kind: str, exact: bool = False) -> bool:
    """Feed one token to a stack of states alone; False where it does not fit."""
    while True:
        actions = tables.states[states[-1]]
        action = actions.get(kind)
        if action is None and not exact:
            action = _as_name(tables, states[-1], kind)
        if action is None:
            return False
        if action >= 0:
            states.append(action)
            return True
        rule = tables.rules[-1 - action]
        if rule.keep:
            del states[-len(rule.keep) :]
        states.append(tables.states[states[-1]][rule.origin])
        if kind == END and states[-1] in {accepting for _, accepting in tables.starts.values()}:
            return True
