"""The page about reuse is true: its examples compile, and explain prints what it shows."""

from __future__ import annotations

import re

import pytest
from paths import ROOT

from rlc.cli.main import main
from rlc.compile.recipe import compile_source
from rlc.lang.diagnostics import Severity
from rlc.lang.source import Source

PAGE = (ROOT / "docs" / "reuse.md").read_text(encoding="utf-8")
NAMES, AMENDED, PARAMETERS = re.findall(r"^```rl\n(.*?)```", PAGE, re.DOTALL | re.M)
POLICY = 'model policy { base = "tiny"  lora_rank = 8 }\n'
FIELDS = """  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
"""
MAIN = f"""{POLICY}
train main {{
  model = policy
  env   = guess
  steps = 50
  optimizer = adam(1e-3)
{FIELDS}}}
eval before {{ model = main  env = guess  sampling = short }}
"""


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        (NAMES + AMENDED + MAIN, {"main", "longer", "last", "before", "after"}),
        (PARAMETERS.replace("  …\n", f"{FIELDS}  steps = 50\n") + POLICY, {"easy", "hard"}),
    ],
)
def test_its_examples_compile(text: str, stages: set[str]) -> None:
    compiled = compile_source(Source("page.rl", text))
    assert not [i for i in compiled.diagnostics if i.severity is Severity.ERROR]
    assert compiled.plan is not None
    assert {stage.name for stage in compiled.plan.stages} == stages


def test_explain_says_where_a_value_of_the_recipe_is_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["explain", "recipes/two_stages.rl", "--full"]) == 0
    shown = PAGE.rstrip().removesuffix("```").rpartition("```\n")[2]
    assert shown in capsys.readouterr().out
