"""The LALR(1) machine: runs the tables over tokens and builds values as it reduces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rlc.lang.tables import END, KEEP, SPLICE, Rule, Tables
from rlc.record import frozen

MAX_DEPTH = 100  # nesting that every later recursive pass can follow on Python's stack


class Token(NamedTuple):
    """A word of the text: the characters ``[start, end)``."""

    kind: str
    start: int
    end: int


class _Parts(NamedTuple):
    """The finished parts, as columns: values, the characters they cover, how deeply they nest."""

    values: list[Any]
    starts: list[int]
    ends: list[int]
    depths: list[int]


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
    states, parts = [first], _Parts([], [], [], [])
    for index, token in enumerate(_closed(tokens)):
        kind, begin, end = token
        while True:
            action = table[states[-1]].get(kind)
            if action is None:
                action = _as_name(tables, states[-1], kind)
            if action is None:
                return Stuck(index)
            if action >= 0:
                states.append(action)
                parts.values.append(token)
                parts.starts.append(begin)
                parts.ends.append(end)
                parts.depths.append(0)
                break
            rule = rules[-1 - action]
            if rule.is_unit:
                states[-1] = _passed_on(tables, states[-2], rule, kind)
                continue
            if rule.keep:
                del states[-len(rule.keep) :]
            if _reduce(rule, parts, begin, build) > MAX_DEPTH:
                return Stuck(index, too_deep=True)
            states.append(table[states[-1]][rule.origin])
            if kind == END and states[-1] == accepting:
                return parts.values[-1]
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


def _passed_on(tables: Tables, below: int, rule: Rule, kind: str) -> int:
    """The state after a value went through the rules that only pass it on, ``rule`` the first:
    from an atom to an expression there are half a dozen, the same ones time and again."""
    key = below, rule.origin, kind
    state = tables.passed_on.get(key)
    if state is None:
        while rule.is_unit:
            state = tables.states[below][rule.origin]
            action = tables.states[state].get(kind, 0)
            if action >= 0:
                break
            rule = tables.rules[-1 - action]
        assert state is not None
        tables.passed_on[key] = state
    return state


def _reduce(rule: Rule, parts: _Parts, position: int, build: Builder) -> int:
    """Put the value of a rule in place of its topmost parts; an empty rule stands at ``position``.

    Gives how deep the value is nested.
    """
    values, starts, ends, depths = parts
    if not rule.keep:
        values.append(build(rule.action, [], position, position) if rule.action else [])
        starts.append(position)
        ends.append(position)
        depths.append(0)
        return 0
    first = len(values) - len(rule.keep)
    start, end, depth = starts[first], ends[-1], max(depths[first:])
    children = _children(rule, values, first)
    built: Any = children
    if rule.action:
        if rule.passes and len(children) == 1:
            built = children[0]
        else:
            built = build(rule.action, children, start, end)
            depth += 1
    values[first], ends[first], depths[first] = built, end, depth
    for column in parts:
        del column[first + 1 :]
    return depth


def _children(rule: Rule, values: list[Any], first: int) -> list[Any]:
    """What a rule keeps of the values from ``first`` on."""
    if rule.kept is not None:
        return [values[first + offset] for offset in rule.kept]
    children: list[Any] = []
    for how, value in zip(rule.keep, values[first:], strict=True):
        if how == KEEP:
            children.append(value)
        elif how == SPLICE:
            # The first helper's list is ours to grow: a long list is built in linear time.
            children = children + value if children else value
    return children


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
