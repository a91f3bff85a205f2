"""``rlc explain --diff``: what a change does to a recipe, for people and for a pull request."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rlc
from rlc.catalog import audit_key, environments_of, keep_audits
from rlc.cli.main import main

RECIPE = """\
import "lib/policy.rl"
env words = problems("words.jsonl", grader = math) |> chat()
train main { model = policy  env = words  batch = groups(8, group_size = 8)
  sampling = sample(max_tokens = 256)  advantage = grpo()  loss = importance_sampling()
  optimizer = adam(4e-5)  steps = 100 }
"""
POLICY = 'model policy { base = "Qwen/Qwen3-8B"  lora_rank = 32 }\n'
ROW = '{"question": "2 + 2?", "answer": "4"}\n'


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a recipe in a folder, what it imports, and data that git does not keep."""
    folder = tmp_path / "jobs"
    (folder / "lib").mkdir(parents=True)
    (folder / "recipe.rl").write_text(RECIPE, encoding="utf-8")
    (folder / "lib" / "policy.rl").write_text(POLICY, encoding="utf-8")
    (folder / "words.jsonl").write_text(ROW * 20, encoding="utf-8")
    (tmp_path / ".gitignore").write_text("*.jsonl\n", encoding="utf-8")
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "Begin")
    monkeypatch.chdir(folder)
    return folder


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_a_comment_has_cost_and_values(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(project / "recipe.rl", "steps = 100", "steps = 200  budget = $1")
    change(project / "lib" / "policy.rl", "lora_rank = 32", "lora_rank = 64")
    assert main(["explain", "recipe.rl", "--diff", "main", "--format", "github"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("<!-- rlc explain -->\n\n### `recipe.rl`\n\n**Expected cost: $")
    assert "+100%)**" not in text.partition("\n\n")[0]
    assert ", +100%)" in text
    assert "| `main.steps` | `100` | `200` |" in text
    assert "| `main.model.lora_rank` | `32` | `64` |" in text
    assert "| **expected** |" in text
    assert "The budgets, $1.00, are less than that" in text
    assert "RL0" in text  # what the check finds of the budget
    assert main(["explain", "recipe.rl", "--diff", "main"]) == 0
    text = capsys.readouterr().out
    assert "main:recipe.rl:" in text
    assert "main:lib/policy.rl:" in text
    assert "/tmp" not in text


def test_findings_of_audits_are_compared(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def note(findings: int) -> None:
        (env,) = environments_of(rlc.load("recipe.rl").plan())
        kept: dict[str, Any] = {audit_key(env, "recipe.rl"): {"findings": [{}] * findings}}
        assert keep_audits("recipe.rl", kept) is None

    note(2)
    change(project / "recipe.rl", "chat()", 'chat(instruction = "Briefly.")')
    github = ["explain", "recipe.rl", "--diff", "main", "--format", "github"]
    assert main(github) == 0
    assert "\n\nAudit: `words` not audited (2 findings before).\n" in capsys.readouterr().out
    note(1)
    assert main(github) == 0
    assert "\n\nAudit: `words` 1 finding (2 findings before).\n" in capsys.readouterr().out
    assert main([*github[:-2], "--json"]) == 0
    audit = json.loads(capsys.readouterr().out)["audit"]
    assert audit == {"before": {"words": 2}, "after": {"words": 1}}
    assert main(["explain", "recipe.rl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["audit"] == {"words": 1}


def test_the_same_is_said_to_be_the_same(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(project / "recipe.rl", "env words", "# a remark\nenv words")
    assert main(["explain", "recipe.rl", "--diff", "HEAD", "--format", "github"]) == 0
    assert "The plan is the same" in capsys.readouterr().out


def test_files_with_other_contents_are_named(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    git(project, "add", "--force", "words.jsonl")
    git(project, "commit", "--quiet", "-m", "Keep the data")
    change(project / "words.jsonl", ROW * 20, ROW * 30)
    assert main(["explain", "recipe.rl", "--diff", "HEAD"]) == 0
    told = capsys.readouterr()
    assert told.out == "HEAD → recipe.rl\n\n  files with other contents\n    words.jsonl\n"
    assert "audit: words not audited" in told.err
    assert main(["explain", "recipe.rl", "--diff", "HEAD", "--format", "github"]) == 0
    comment = capsys.readouterr().out
    assert "Files with other contents: `words.jsonl`" in comment
    assert "Audit: `words` not audited" in comment


def test_a_new_recipe_has_a_price(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "other.rl").write_text(RECIPE, encoding="utf-8")
    assert main(["explain", "other.rl", "--diff", "main", "--format", "github"]) == 0
    text = capsys.readouterr().out
    assert "The recipe is new: `main` does not have it." in text
    assert "Cost: $" in text


def test_errors_are_part_of_the_comment(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(project / "recipe.rl", "grpo()", "gprpo()")
    assert main(["explain", "recipe.rl", "--diff", "main", "--format", "github"]) == 1
    text = capsys.readouterr().out
    assert "The recipe has errors." in text
    assert "- error RL0" in text
    change(project / "recipe.rl", "gprpo()", "grpo()")
    git(project, "commit", "--quiet", "--all", "--allow-empty", "-m", "Go on")
    change(project / "recipe.rl", "grpo()", "gprpo()")
    git(project, "commit", "--quiet", "--all", "-m", "Break it")
    change(project / "recipe.rl", "gprpo()", "grpo()")
    assert main(["explain", "recipe.rl", "--diff", "HEAD", "--format", "github"]) == 0
    assert "In `HEAD` the recipe has errors" in capsys.readouterr().out


def test_files_and_plans_are_bases_too(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "recipe.rl", "--out", "plan.json"]) == 0
    change(project / "recipe.rl", "steps = 100", "steps = 50")
    capsys.readouterr()
    assert main(["explain", "recipe.rl", "--diff", "plan.json"]) == 0
    assert "100 → 50" in capsys.readouterr().out
    assert main(["explain", "recipe.rl", "--diff", "main", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [one["path"] for one in data["values"]] == ["main.steps"]
    assert (data["same"], data["note"]) == (False, "")
    assert [one["code"] for one in data["diagnostics"]] == ["RL0429"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--diff", "nowhere"], "neither a file nor a commit"),
        (["--diff=--output=x"], "is no commit"),
        (["--format", "github"], "give a BASE"),
        (["--diff", "main", "--full"], "give it alone"),
    ],
)
def test_what_is_no_base(
    project: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "recipe.rl", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_without_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "recipe.rl").write_text(RECIPE, encoding="utf-8")
    assert main(["explain", str(tmp_path / "recipe.rl"), "--diff", "main"]) == 2
    assert "in no repository of git" in capsys.readouterr().err


def test_the_workflow_of_a_new_project_comments_on_what_changed(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its script, as a shell runs it, on a recipe with a blank in its name."""
    import rlc

    change(project / "recipe.rl", "steps = 100", "steps = 300")
    (project / "an other.rl").write_text("model x {", encoding="utf-8")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "Change")
    workflow = Path(rlc.__file__).parent / "projects/templates/common/.github/workflows/explain.yml"
    lines = workflow.read_text(encoding="utf-8").splitlines()
    first = lines.index("        run: |") + 1
    script = "\n".join(line[10:] for line in lines[first : first + 3])
    (tmp_path / "rlc").write_text(f'#!/bin/sh\nexec {sys.executable} -m rlc "$@"\n')
    (tmp_path / "rlc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    roots = [str(Path(rlc.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(roots))
    monkeypatch.setenv("BASE", "HEAD~1")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, check=True)
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "### `jobs/an other.rl`" in text
    assert "| `main.steps` | `100` | `300` |" in text
