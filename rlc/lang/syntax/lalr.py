"""The LALR(1) machine: runs the tables over tokens and builds values as it reduces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rlc.lang.diagnostics import Diagnostics
from rlc.lang.syntax.tables import END, KEEP, SPLICE, Production, Tables
from rlc.records import frozen

# A named tuple without the detour through its constructor: there are thousands of them.
new_tuple: Any = tuple.__new__

MAX_DEPTH = 100  # nesting that every later recursive pass can follow on Python's stack


class Token(NamedTuple):
    """A word of the text: the characters ``[start, end)``."""

    kind: str
    start: int
    end: int


# A finished part: its value, the characters it covers from and to, how deeply it nests. A plain
# tuple, since one is made for each token and each reduction.
_Part = tuple[Any, int, int, int]


@frozen(eq=False)
class Stuck:
    """The parse stopped before ``tokens[index]``; ``index == len(tokens)`` is the end."""

    index: int
    too_deep: bool = False


# Builds the value of a rule from its action, its kept children and its character range.
Builder = Callable[[str, list[Any], int, int], Any]


def run(tables: Tables, start: str, tokens: Sequence[Token], build: Builder) -> Any | Stuck:
    """Return the value of ``start`` over all ``tokens``, or the place where the parse stopped."""
    table, rules, passed_on = tables.states, tables.rules, tables.passed_on
    first, accepting = tables.starts[start]
    states, parts = [first], list[_Part]()
    last = tokens[-1].end if tokens else 0
    for index, token in enumerate([*tokens, Token(END, last, last)]):
        kind, begin, end = token
        while True:
            action = table[states[-1]].get(kind)
            if action is None:
                action = _as_name(tables, states[-1], kind)
            if action is None:
                return Stuck(index)
            if action >= 0:
                states.append(action)
                parts.append((token, begin, end, 0))
                break
            rule = rules[-1 - action]
            if rule.is_unit:
                state = passed_on.get((states[-2], rule.origin, kind))
                if state is None:
                    state = _passed_on(tables, states[-2], rule, kind)
                states[-1] = state
                continue
            depth, count = 0, rule.count
            if count:
                top = parts[-count:]
                del states[-count:], parts[-count:]
                from_, to = top[0][1], top[-1][2]
                for part in top:
                    if part[3] > depth:
                        depth = part[3]
            else:  # an empty rule stands where the next token begins
                top, from_, to = [], begin, begin
            kept = rule.kept
            value: Any = _spliced(rule, top) if kept is None else [top[i][0] for i in kept]
            if rule.passes and len(value) == 1:
                value = value[0]
            elif rule.action:
                value = build(rule.action, value, from_, to)
                depth += 1
                if depth > MAX_DEPTH:
                    return Stuck(index, too_deep=True)
            parts.append((value, from_, to, depth))
            state = table[states[-1]][rule.origin]
            states.append(state)
            if state == accepting and kind == END:
                return value
    raise AssertionError("the end is always accepted or stuck")


def expected(tables: Tables, start: str, tokens: Sequence[Token]) -> set[str]:
    """Return the kinds of token that may follow ``tokens``, which must parse so far."""
    states = [tables.starts[start][0]]
    for token in tokens:
        _advance(tables, states, token.kind)
    kinds = (kind for kind in (*tables.terminals, END) if kind not in tables.ignored)
    return {kind for kind in kinds if _advance(tables, list(states), kind, exact=True)}


def _as_name(tables: Tables, state: int, kind: str) -> int | None:
    """Return the action on a keyword that the state cannot use: there it is a plain name."""
    return tables.states[state].get("NAME") if kind in tables.soft else None


def _passed_on(tables: Tables, below: int, rule: Production, kind: str) -> int:
    """Return the state after the chain of rules from ``rule`` on that only pass a value on: from an
    atom to an expression there are half a dozen, always the same."""
    key, state = (below, rule.origin, kind), 0
    while rule.is_unit:
        state = tables.states[below][rule.origin]
        action = tables.states[state].get(kind, 0)
        if action >= 0:
            break
        rule = tables.rules[-1 - action]
    tables.passed_on[key] = state
    return state


def _spliced(rule: Production, top: list[_Part]) -> list[Any]:
    """Return the values that a rule keeps of its parts, those of helper rules spliced in."""
    values: list[Any] = []
    for how, part in zip(rule.keep, top, strict=True):
        if how == KEEP:
            values.append(part[0])
        elif how == SPLICE:
            # The first helper's list is ours to grow: a long list is built in linear time.
            values = values + part[0] if values else part[0]
    return values


def _advance(tables: Tables, states: list[int], kind: str, exact: bool = False) -> bool:
    """Feed one token to a stack of states; return False if it does not fit."""
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


MAX_FINDINGS = 50  # in one file; one with more is not a recipe, and nobody reads on

QUOTES = "\"'`“”"

# A word whose meaning cannot be guessed: it fits nowhere in the grammar.
BAD = "BAD"


@frozen(eq=False)
class TokenStream:
    """The tokens and comments of a source, and what was wrong with its words.

    ``doubtful`` holds the starts of words that were guessed or skipped: a syntax error in the
    same field is more likely their consequence than another mistake.
    """

    tokens: list[Token]
    comments: list[Token]
    doubtful: list[int]
    diagnostics: Diagnostics


def shortened(text: str) -> str:
    """Return a word as a message can show it."""
    return text if len(text) <= 40 else f"{text[:39]}…"
