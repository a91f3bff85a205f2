"""The page about own losses shows what there is: inputs, functions, formulas, the library."""

from __future__ import annotations

import re

from loss_library import library, library_loss
from paths import ROOT

from rlc.algo import INPUTS, OPERATIONS, derivative_formula, formula

PAGE = (ROOT / "docs" / "losses.md").read_text(encoding="utf-8")


def test_it_lists_what_can_be_read_and_done() -> None:
    for entry in INPUTS["loss"].values():
        assert f"\n| `{entry.name}` | {entry.shape} | {entry.doc} |\n" in PAGE
    for operation in (one for one in OPERATIONS.values() if "loss" in one.kinds):
        if operation.usage.startswith(operation.name):
            assert f"\n| `{operation.usage}` | {operation.doc} |\n" in PAGE
        else:
            assert operation.name.replace("neg", "-") in re.findall(r"[-+*/<>=!]+", PAGE)


def test_it_shows_the_formulas() -> None:
    loss = library_loss("sapo")
    (shown,) = re.findall(r"^```\n(tau.*?)```", PAGE, re.DOTALL | re.M)
    assert shown.splitlines() == [*formula(loss), *derivative_formula(loss)]


def test_it_lists_the_library() -> None:
    table = PAGE[PAGE.index("| loss | what") : PAGE.index("What cannot be written")]
    cells = re.findall(r"^\| (`.*?) \|", table, re.M)
    assert list(library()) == re.findall(r"`(\w+)", "".join(cells))
