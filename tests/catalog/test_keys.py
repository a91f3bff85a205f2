"""Keys from `.env`: which are taken, from where, and who sees them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from run_support import compiled

from rlc.catalog.keys import Dotenv, parse_dotenv, provide_keys
from rlc.envs.guarded import variables
from rlc.errors import Error
from rlc.plan import Plan
from rlc.records import evolve

RECIPE = """\
model policy {
  base    = "Qwen/Qwen3-8B"
  service = tinker
}

env task = openreward("Org/Task", secrets = ["VAULT_CODE"])

train main {
  model     = policy
  env       = task
  batch     = groups(2, group_size = 2)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-5)
  steps     = 1
}
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Return the plan of a recipe in a folder beside the working directory."""
    for folder in ("here", "recipes"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("HF_TOKEN", "OPENREWARD_API_KEY", "TINKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return evolve(compiled(RECIPE), recipe="../recipes/mine.rl")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=plain", "plain"),
        ("export A=exported", "exported"),
        ("  A = spaced  ", "spaced"),
        ("A=with # a comment", "with"),
        ("A=has#no comment", "has#no comment"),
        ("A=# nothing", ""),
        ("A='single # quoted' # comment", "single # quoted"),
        (r"A='no \n escape'", r"no \n escape"),
        (r'A="two\nlines, a \"quote\" and a \\"', 'two\nlines, a "quote" and a \\'),
        ("A=one=two", "one=two"),
        ("A=", ""),
        ("A=first\nA=second", "second"),
        ("# A=commented\nA=real", "real"),
        ("A=windows\r\nB=x\r\n", "windows"),
    ],
)
def test_the_forms_of_a_line(line: str, value: str) -> None:
    assert parse_dotenv(line).values["A"] == value


def test_lines_that_assign_nothing_are_counted() -> None:
    read = parse_dotenv("just words\n=x\n1A=2\n\n# no\nA=1\nB='open\n")
    assert read == Dotenv({"A": "1"}, (1, 2, 3, 7))


def test_the_environment_wins_then_the_working_directory_then_the_recipes_folder(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENREWARD_API_KEY", "of the environment")
    monkeypatch.setenv("HF_TOKEN", " ")  # as good as not set
    Path(".env").write_text("OPENREWARD_API_KEY=file\nHF_TOKEN=here\nOTHER_PASSWORD=x\n")
    Path("../recipes/.env").write_text("HF_TOKEN=there\nVAULT_CODE=1234\nTINKER_API_KEY=tml-x\n")
    assert provide_keys(plan) == []
    names = ("OPENREWARD_API_KEY", "HF_TOKEN", "VAULT_CODE", "TINKER_API_KEY", "OTHER_PASSWORD")
    found = [os.environ.get(name) for name in names]
    assert found == ["of the environment", "here", "1234", "tml-x", None]


def test_programs_of_agents_have_a_key_only_if_they_name_it(plan: Plan) -> None:
    Path(".env").write_text("VAULT_CODE=1234\n")  # no word in it says that it is a secret
    provide_keys(plan)
    assert "VAULT_CODE" not in variables(None)
    assert variables(["VAULT_CODE"])["VAULT_CODE"] == "1234"


def test_a_malformed_line_is_named_and_not_shown(plan: Plan) -> None:
    Path(".env").write_text("# keys\nOPENREWARD_API_KEY: sk-secret\n")
    (said,) = provide_keys(plan)
    assert said == f"line 2 of {Path.cwd() / '.env'} is not NAME=VALUE and is left out"
    Path(".env").write_bytes(b"HF_TOKEN=secret\xff")
    with pytest.raises(Error, match="it is not UTF-8") as refusal:
        provide_keys(plan)
    assert "secret" not in str(refusal.value)
