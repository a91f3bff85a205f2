"""Each line of the table of the guides is a command that is accepted, or a piece of a recipe."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from page_examples import complete
from paths import RECIPES, ROOT

from rlc.cli.main import _arguments, main
from rlc.cli.options import recipe_of
from rlc.compile.recipe import compile_source
from rlc.lang.source import Source

PAGE = ROOT / "docs/howto/from-the-guides.md"
OTHERS = """\
env whodunit = openreward("GeneralReasoning/WhoDunIt")
env gsm8k = openreward("MATH/GSM8K")
"""
CONFIG = """\
wandb_project_name: "tinker-test"
wandb_run_name: "tinker-rl-test-openreward"
openreward_run_name: "tinker-rl-test-openreward"
log_path: "/tmp/tinker-rl"
model_name: "Qwen/Qwen3-30B-A3B"
lora_rank: 8
loss_fn: "ppo"
batch_size: 32
learning_rate: 1e-5
save_every: 10
environments:
  GeneralReasoning/WhoDunIt:
    splits:
      train:
        shuffle: true
        num_samples: null
    num_rollouts: 16
    max_failing_rollouts: 2
    temperature: 1.0
    reward_reduction: "sum"
    nonterminal_reward: 0.0
"""


def lines() -> list[str]:
    """Return what stands in backticks in the second columns."""
    rows = re.findall(r"^\|(?:[^|`]|`[^`]*`)*\|(.*)\|$", PAGE.read_text("utf-8"), re.M)
    return [
        shown.replace("\\|", "|")
        for row in rows
        for shown in re.findall(r"`([^`]+)`", row)
        if not shown.startswith((".env", "pip install", "length/"))
    ]


COMMANDS = [line for line in lines() if line.startswith("rlc ")]
PIECES = [line for line in lines() if not line.startswith("rlc ")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the recipes, and the configuration of OpenReward's guide."""
    (tmp_path / "tinker-config.yaml").write_text(CONFIG)
    (tmp_path / "recipes").symlink_to(RECIPES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_does_what_the_table_says(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line)[1:]
    if words[0] in ("import", "check", "explain", "catalog"):
        assert main(words) == 0, capsys.readouterr().err
        return
    if words == ["run"]:
        return
    args = _arguments(words)
    if words[0] == "run":
        assert not recipe_of(args).compile(data=False).diagnostics.has_errors


@pytest.mark.parametrize("text", PIECES)
def test_a_piece_is_of_the_language(text: str) -> None:
    """Names, types and arguments are; what else is said of it depends on its recipe."""
    if re.match(r"\w+ = ", text):
        text = f"train main {{\n  {text}\n  …\n}}"
    elif not re.match(r"model \w+ {", text):
        text = f"env guess = {text}"
    source = Source("guide.rl", complete(f"{text}\n{OTHERS}"))
    found = compile_source(source).diagnostics
    wrong = [item for item in found if item.severity == "error" and "RL01" <= item.code < "RL03"]
    assert [item.message for item in wrong] == []


def test_the_page_has_all_guides() -> None:
    assert len(COMMANDS) >= 20
    assert len(PIECES) >= 40
