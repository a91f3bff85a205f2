"""The prepared grammar: lark compiles ``rl.lark`` once, plain JSON tables are kept per user.

lark takes 85 ms to import and 44 ms to compile the grammar, ``rlc check`` should take less than
that in all. So its LALR tables are stored as data (JSON: nothing in them can be executed) and
later runs load them in a few milliseconds without importing lark at all.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from rlc.lang.read import write_whole
from rlc.records import asdict, frozen

if TYPE_CHECKING:
    from lark.lexer import TerminalDef

FORMAT = 2  # raise it whenever the layout of the stored tables changes
STARTS = ("recipe", "field")
END = "$END"

# What becomes of a symbol's value when its rule is reduced.
DROP, KEEP, SPLICE = 0, 1, 2


@frozen
class Production:
    """One production: ``keep`` holds DROP, KEEP or SPLICE for each symbol on its right side.

    ``action`` names the tree builder's method; it is empty for a helper rule, whose values go
    into its parent. A ``passes`` rule with a single value left hands that value on.
    """

    origin: str
    action: str
    passes: bool
    keep: tuple[int, ...]
    count: int  # of the symbols on the right side
    is_unit: bool  # one part, passed on as it is: most reductions are
    kept: tuple[int, ...] | None  # the offsets of the parts; None if one is spliced in


@frozen(eq=False)
class Tables:
    """LALR(1) tables. An action n >= 0 shifts to state n; n < 0 reduces rule ``-n - 1``."""

    terminals: dict[str, str]  # name -> regular expression, in the order to try them
    words: dict[str, str]  # name -> fixed text of the terminals that have one
    ignored: tuple[str, ...]
    rules: tuple[Production, ...]
    states: tuple[dict[str, int], ...]
    starts: dict[str, tuple[int, int]]  # start symbol -> (first state, accepting state)

    @cached_property
    def keywords(self) -> dict[str, str]:
        """Fixed texts that also read as a name: ``{"then": "THEN"}``."""
        name = re.compile(self.terminals["NAME"])
        return {text: kind for kind, text in self.words.items() if name.fullmatch(text)}

    @cached_property
    def passed_on(self) -> dict[tuple[int, str, str], int]:
        """What :func:`rlc.lang.syntax.lalr.run` has found out about chains of rules of one part."""
        return {}

    @cached_property
    def soft(self) -> frozenset[str]:
        """The kinds of keyword: names wherever the grammar cannot use the keyword."""
        return frozenset(self.keywords.values())


def grammar_text() -> str:
    """Return the grammar: beside this module in a wheel, in ``grammar/`` in a checkout."""
    here = os.path.dirname(os.path.realpath(__file__))
    checkout = os.path.join(here, "..", "..", "..", "grammar")
    for folder in (here, checkout):
        with suppress(FileNotFoundError):
            return _read(os.path.join(folder, "rl.lark"))
    raise FileNotFoundError("rl.lark is missing from this installation of rlc: reinstall it")


@cache
def load_tables() -> Tables:
    """Return the tables of the grammar, from the user's cache or built now.

    The file says of which grammar its tables are. A cache that cannot be read or written only
    costs time, so its failures are not reported.
    """
    grammar = grammar_text()
    version = ".".join(map(str, sys.version_info[:2]))
    path = os.path.join(_cache_folder(), f"grammar-{FORMAT}-{version}.json")
    with suppress(OSError, ValueError, TypeError, KeyError):
        if _is_private(os.path.dirname(path)):
            return _from_json(_read(path), grammar)
    tables = build_tables(grammar)
    with suppress(OSError):
        text = json.dumps({"grammar": grammar, **asdict(tables)}, separators=(",", ":"))
        _write(path, text)
    return tables


def build_tables(grammar: str) -> Tables:
    """Compile a grammar with lark."""
    from lark import Lark

    parser: Any = Lark(grammar, parser="lalr", start=list(STARTS))
    table = parser.parser.parser._parse_table
    number = {id(rule): index for index, rule in enumerate(parser.rules)}

    def code(target: Any) -> int:
        return target if isinstance(target, int) else -1 - number[id(target)]

    return Tables(
        terminals={t.name: t.pattern.to_regexp() for t in sorted(parser.terminals, key=_rank)},
        words={t.name: t.pattern.value for t in parser.terminals if t.pattern.type == "str"},
        ignored=tuple(parser.ignore_tokens),
        rules=tuple(_rule(rule) for rule in parser.rules),
        states=tuple(
            {symbol: code(target) for symbol, (_, target) in table.states[state].items()}
            for state in range(len(table.states))
        ),
        starts={start: (table.start_states[start], table.end_states[start]) for start in STARTS},
    )


def _rank(terminal: TerminalDef) -> tuple[int, int, int, str]:
    """Return lark's own order of trying terminals: the longest possible match first."""
    pattern = terminal.pattern
    return -terminal.priority, -pattern.max_width, -len(pattern.value), terminal.name


def _rule(rule: Any) -> Production:
    def keep(symbol: Any) -> int:
        if symbol.is_term:
            return DROP if symbol.filter_out else KEEP
        return SPLICE if symbol.name.startswith("_") else KEEP

    origin = str(rule.origin.name)
    action = "" if origin.startswith("_") else str(rule.alias or origin)
    passes = bool(rule.options.expand1) and rule.alias is None
    parts = tuple(keep(symbol) for symbol in rule.expansion)
    return Production(
        origin,
        action,
        passes,
        keep=parts,
        count=len(parts),
        is_unit=passes and parts == (KEEP,),
        kept=None if SPLICE in parts else tuple(i for i, how in enumerate(parts) if how == KEEP),
    )


def _from_json(text: str, grammar: str) -> Tables:
    """Return the stored tables. Raise ValueError if they are those of another grammar."""
    data = json.loads(text)
    if data.pop("grammar") != grammar:
        raise ValueError("tables of another grammar")
    data["rules"] = tuple(_rule_from_json(**rule) for rule in data["rules"])
    data["ignored"] = tuple(data["ignored"])
    data["states"] = tuple(data["states"])
    data["starts"] = {start: (first, last) for start, (first, last) in data["starts"].items()}
    return Tables(**data)


def _rule_from_json(keep: list[int], kept: list[int] | None, **rest: Any) -> Production:
    return Production(keep=tuple(keep), kept=None if kept is None else tuple(kept), **rest)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _cache_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification asks to ignore a relative path.
    root = base if os.path.isabs(base) else os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "rlc")


def _is_private(folder: str) -> bool:
    """Return whether nobody else can have put tables there: wrong ones would misread recipes."""
    info = os.stat(folder)
    return info.st_uid == os.getuid() and not info.st_mode & 0o022


def _write(path: str, text: str) -> None:
    if not os.path.isabs(path):  # a user without a home
        return
    folder = os.path.dirname(path)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(folder, mode=0o700)
    if _is_private(folder):
        write_whole(path, text.encode())
