"""The page about own advantages shows what there is: inputs, functions, formulas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import ROOT
from plan_recipes import first_train, planned, recipe
from stage_parts import flat

from rlc.algo import INPUTS, OPERATIONS
from rlc.explanation.schemes import scheme_formulas

PAGE = (ROOT / "docs" / "advantages.md").read_text(encoding="utf-8")
BLOCKS = [
    block.partition("\n\ntrain")[0]
    for block in re.findall(r"^```rl\n(.*?)^```$", PAGE, re.DOTALL | re.M)
]


def test_it_lists_what_can_be_read_and_done() -> None:
    shapes = {"turn_component": "turn, component", "turn_token": "token"}
    for entry in INPUTS["advantage"].values():
        shape = shapes.get(entry.shape, entry.shape)
        assert f"\n| `{entry.name}` | {shape} | {entry.doc} |\n" in PAGE
    for operation in OPERATIONS.values():
        if operation.kinds == ("advantage",):
            assert f"\n| `{operation.usage}` | {operation.doc} |\n" in PAGE


def test_its_declarations_compile_and_the_first_prints_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums.jsonl").write_text('{"prompt": "1 + 1?", "answer": "2"}\n')
    (tmp_path / "prm.py").write_text("def graded(reply, row):\n    return {'steps': []}\n")
    schemes = []
    for block in BLOCKS:
        name, after = re.findall(r"^advantage (\w+)(.)", block)[0]
        changes = [f"main.advantage={name}{'()' if after == '(' else ''}"]
        changes += ["main.kl=reference(policy.base, coef = 0)"] * ("ref)" in block)
        changes += ["main.env=sums"] * ("env sums" in block)
        plan = planned(f"{recipe('quickstart')}\n{block}\n", *changes)
        schemes.append(flat(first_train(plan)).advantage)
    assert len(schemes) == 5
    (shown,) = re.findall(r"^```\n(total.*?)```", PAGE, re.DOTALL | re.M)
    assert shown.splitlines() == [line.text for line in scheme_formulas(schemes[0])]
