"""Values and spans of time as people read them."""

from __future__ import annotations

import pytest

from rlc.plan.units import elapsed, in_dollars, show, shown_value


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0421, "42.1 ms"),
        (0.9999, "1 s"),
        (4.25, "4.25 s"),
        (59.4, "59.4 s"),
        (59.6, "1 min"),
        (725, "12 min 05 s"),
        (3_600, "1 h"),
        (11_245, "3 h 07 min"),
        (1_065_600, "12 d 08 h"),
    ],
)
def test_a_span_of_time_has_at_most_two_units(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text


def test_a_string_is_shown_with_its_escapes() -> None:
    assert show('a "b" \\c', "string") == r'"a \"b\" \\c"'
    assert show("a\nb\t\x1b[31m é", "string") == r'"a\nb\t\x1b[31m é"'
    assert shown_value("instruction", "a\nb") == r'"a\nb"'


@pytest.mark.parametrize(
    ("usd", "text"),
    [(0, "$0.00"), (0.005, "$0.005"), (0.25, "$0.25"), (0.2183, "$0.2183"), (1250, "$1,250.00")],
)
def test_a_small_amount_keeps_its_digits(usd: float, text: str) -> None:
    assert in_dollars(usd) == text
