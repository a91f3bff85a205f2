"""Values of a plan as a recipe writes them: ``90s``, ``$25``, ``1_000``."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from rlc.records import Record

UNKNOWN = "unknown"
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

# None in words, by the name of the value.
_NONE = {
    **dict.fromkeys(("usd", "tokens", "seconds"), "no limit"),
    "ttl_seconds": "never deleted",
    **dict.fromkeys(("context", "max_turns"), UNKNOWN),
    "weights": "a fresh adapter",
    "concurrency": "as the service bears",
    "order": "as the service needs",
}
# Names of durations.
_DURATIONS = {
    *("seconds", "ttl_seconds", "timeout", "turn_timeout", "step_timeout"),
    *("request", "unreachable", "step"),
}
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def in_dollars(usd: float | None) -> str:
    """Return an amount for people: ``$1,250.00``, ``$0.25``, ``$0.0048``; ``?`` if unknown."""
    if usd is None:
        return "?"
    whole, _, cents = f"{usd:,.{4 if abs(usd) < 1 else 2}f}".partition(".")
    return f"${whole}.{cents.rstrip('0'):0<2}"


def show(data: Any, kind: str) -> str:
    """Return a value as a recipe writes it."""
    if kind == "duration" and isinstance(data, (int, float)):
        unit = next(u for u in ("d", "h", "m", "s") if data % SECONDS[u] == 0 or u == "s")
        return f"{data / SECONDS[unit]:g}{unit}"
    if kind == "money":
        return f"${data:g}"
    if isinstance(data, bool):
        return str(data).lower()
    if isinstance(data, float):
        return f"{data:g}"
    if isinstance(data, int):
        return f"{data:,}".replace(",", "_")
    if isinstance(data, dict):
        inner = ", ".join(f"{name} = {_within(value)}" for name, value in data.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(data, list):
        return f"[{', '.join(map(_within, data))}]"
    if not isinstance(data, str) or kind != "string":
        return str(data)
    escapes = {'"': '\\"', "\\": "\\\\"}
    chars = (c if c.isprintable() else repr(c)[1:-1] for c in data)  # a terminal obeys some
    return f'"{"".join(escapes.get(c, c) for c in chars)}"'


def _within(value: Any) -> str:
    return "none" if value is None else show(value, "string" if isinstance(value, str) else "any")


def elapsed(seconds: float) -> str:
    """Return a span of time for people: ``250 ms``, ``4.2 s``, ``12 min 05 s``, ``3 h 07 min``."""
    if 0 < seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    whole = round(seconds)
    for (size, unit), (part, part_unit) in pairwise(_SPANS):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size:,} {unit}" + (f" {rest:02} {part_unit}" if rest else "")
    return f"{seconds:.3g} s"


def unit_of(name: str) -> str:
    """Return the unit of a value by its name: ``money``, ``duration``, or empty for neither."""
    last = name.rpartition(".")[2]
    return "money" if last == "usd" else "duration" if last in _DURATIONS else ""


def shown_value(name: str, value: object) -> str:
    """Return a value as a recipe writes it; None in words, for the names that have some."""
    last = name.rpartition(".")[2]
    if name == "every" and value is None:
        return "at the end"
    if value is None:
        return _NONE.get(last, "none")
    if isinstance(value, Record):
        return "an expression"  # it is shown as a formula elsewhere
    if unit := unit_of(last):
        return show(value, unit)
    if isinstance(value, str) and not value.isidentifier():
        return show(value, "string")
    return show(value, "any")
