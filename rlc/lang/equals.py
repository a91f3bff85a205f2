"""``==`` where a name is given its value."""

from __future__ import annotations

from rlc.lang.ast import Binary
from rlc.lang.diagnostics import Diagnostics, replace
from rlc.lang.source import Span


def report_equals(span: Span, found: Diagnostics) -> None:
    """Report two or more equals signs where one gives a name its value."""
    advice = "one `=` gives a name its value, two compare"
    shown = span.text if len(span.text) <= 40 else f"{span.text[:39]}…"
    message = f"expected `=`, found `{shown}`"
    found.error("RL0010", span, message, advice, fix=replace(span, "=", "write `=`"))


def report_comparison(comparison: Binary, found: Diagnostics) -> None:
    """Report ``name == value`` where the name was to be given the value."""
    source, end = comparison.span.source, comparison.right.span.start
    start = source.text.find("==", comparison.left.span.end)
    report_equals(Span(source, start, start + 2) if 0 <= start < end else comparison.span, found)
