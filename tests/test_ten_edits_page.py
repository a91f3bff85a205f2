"""The ten research edits: each is accepted, runs, and is as long as its page says."""

from __future__ import annotations

import ast
import re
import subprocess
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from page_examples import complete
from paths import ROOT
from run_support import metrics, run_new

from rlc.algo import Episodes, compute_advantages
from rlc.compile.recipe import compile_source
from rlc.data import SEES, AdvantageFunction, Code
from rlc.data.reading import Reader
from rlc.lang.source import Source
from rlc.records import evolve

PAGE = (ROOT / "docs" / "howto" / "ten-edits.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| \[\d+\. [^]]+\]\(#([\w-]+)\) \| (\d+) \| (\d+) \| (.*) \|$", PAGE, re.M)
TEXTS = re.findall(r"^## .+?\n(.*?)(?=^## )", PAGE, re.DOTALL | re.M)[:10]
EDITS = {anchor: text for (anchor, *_), text in zip(ROWS, TEXTS, strict=True)}
SPREAD = ["compute_advantages", "trajectory_to_data", "assemble_training_data"]
# The patches, and what each changes in tinker-cookbook.
PATCHES = {
    "baseline": ["compute_advantages"],
    "pass_at_k": ["compute_advantages"],
    "turns": SPREAD,
    "length": ["compute_advantages"],
    "kl": ["Config", "do_train_step_and_get_sampling_client"],
    "replay": ["do_train_step_and_get_sampling_client"],
    "tasks": ["RLDataset", "do_sync_training"],
    "process": SPREAD,
    "clip": ["train_step"],
    "unlikely": ["trajectory_to_data"],
}
SMALL = {
    "main.steps": "2",
    "main.batch": "groups(2, group_size = 4)",
    "main.sampling": "sample(max_tokens = 8)",
}
FRAME = re.compile(r"^train main \{\n(.*?)^\}\n", re.DOTALL | re.M)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.M)


def lines(text: str) -> int:
    """Count lines of code."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.split("\n"))


def own_lines(edit: str) -> int:
    """Count the lines of an edit, without what stands in every recipe."""
    (recipe,) = blocks(edit, "rl")
    inside = FRAME.sub(lambda match: match[1].replace("  …\n", ""), recipe)
    return lines(inside) + sum(map(lines, blocks(edit, "python")))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


LOSSES = [edit for edit, text in EDITS.items() if "\nloss " in text]


@pytest.mark.plain
@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit not in LOSSES])
def test_an_edit_is_accepted_and_runs(edit: str, folder: Path) -> None:
    run_edit(edit, folder)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("edit", LOSSES)
def test_a_loss_is_accepted_and_runs(edit: str, folder: Path) -> None:
    run_edit(edit, folder)


def run_edit(edit: str, folder: Path) -> None:
    (recipe,) = blocks(EDITS[edit], "rl")
    source = Source("recipe.rl", complete(recipe))
    found = compile_source(source, reader=Reader(imports=True))
    assert [item.message for item in found.diagnostics if item.severity == "error"] == []
    small = SMALL | ({"again.data.n": "2"} if "sft again" in recipe else {})
    compiled = compile_source(source, small, 1)
    assert compiled.plan is not None, [item.message for item in compiled.diagnostics]
    run_new(folder / "run", compiled.plan)
    assert len(metrics(folder / "run", "main")) == 2


@pytest.mark.parametrize(("row", "patch"), zip(ROWS, PATCHES, strict=True), ids=list(EDITS))
def test_the_counts_are_true(row: tuple[str, ...], patch: str, tmp_path: Path) -> None:
    anchor, here, there, where = row
    assert own_lines(EDITS[anchor]) == int(here) <= 20
    changes = (ROOT / "tests" / "support" / "data" / "edits" / f"{patch}.patch").read_text("utf-8")
    added = re.findall(r"^\+(?!\+\+ )(.*)$", changes, re.M)
    assert lines("\n".join(added)) == int(there)
    changed = "".join(path.read_text("utf-8") for path in patched(changes, tmp_path))
    ast.parse(changed)
    assert re.findall(r"`(\w+)`", where) == PATCHES[patch]
    for name in PATCHES[patch]:
        assert re.search(rf"\b(def|class) {name}\b|\({name}\)", changed)


def patched(changes: str, folder: Path) -> list[Path]:
    """Return copies of the files of tinker-cookbook that a patch changes, changed."""
    if metadata.version("tinker_cookbook") != "0.5.8":
        pytest.skip("the patches are for tinker-cookbook 0.5.8")
    spec = find_spec("tinker_cookbook")
    assert spec is not None
    assert spec.origin is not None
    theirs = Path(spec.origin).parent
    (folder / "rl").mkdir()
    files = dict.fromkeys(re.findall(r"^\+\+\+ b/(\S+)$", changes, re.M))
    for name in files:
        if (theirs / name).exists():
            (folder / name).write_text((theirs / name).read_text("utf-8"))
    subprocess.run(["git", "apply", "-"], input=changes, text=True, check=True, cwd=folder)
    return [folder / name for name in files]


@pytest.mark.engine
@pytest.mark.parametrize("patch", ["baseline", "pass_at_k", "turns", "length", "process"])
def test_both_give_the_same_advantages(patch: str, folder: Path) -> None:
    changes = (ROOT / "tests" / "support" / "data" / "edits" / f"{patch}.patch").read_text("utf-8")
    (file,) = patched(changes, folder)
    namespace: dict[str, Any] = {"__name__": "changed"}
    exec(compile(file.read_text("utf-8"), str(file), "exec"), namespace)
    draws = np.random.default_rng(0)
    counts_GR = draws.integers(1, 4, (3, 6))
    groups = [[draws.integers(0, 3, n) / 2 for n in counts_R] for counts_R in counts_GR]
    tokens = [[draws.integers(1, 9, n) for n in counts_R] for counts_R in counts_GR]
    found = namespace["compute_advantages"](list(map(trajectories, groups, tokens)))
    theirs = [
        np.broadcast_to(advantages, len(rewards))
        for rewards_R, advantages_R in zip(groups, found, strict=True)
        for rewards, advantages in zip(rewards_R, advantages_R, strict=True)
    ]
    rewards_RT, tokens_RT = (
        [one for group in values for one in group] for values in (groups, tokens)
    )
    episodes = Episodes.from_rollouts(rewards_RT, tokens_RT, np.repeat(range(3), 6), [0] * 18)
    (recipe,) = blocks([*EDITS.values()][[*PATCHES].index(patch)], "rl")
    plan = compile_source(Source("recipe.rl", complete(recipe))).plan
    assert plan is not None
    objective = plan.trainings[0].policy_gradient
    assert objective is not None
    scheme, named = objective.advantage, evolve(episodes, envs=("guess",), roles=("",))
    if scheme.function is None:
        ours = compute_advantages(scheme, named).advantages_N
    else:
        function = AdvantageFunction(Code(scheme.function, "advantage", scheme.args))
        ours, *_ = function(named.columns(), {})
    np.testing.assert_allclose(ours, np.concatenate(theirs), atol=1e-6)  # theirs are float32


def trajectories(rewards_RT: Any, tokens_RT: Any) -> Any:
    """Return a group as far as the cookbook's advantages look at one."""
    each = [
        SimpleNamespace(
            transitions=[
                SimpleNamespace(reward=reward, ac=SimpleNamespace(tokens=[0] * count))
                for reward, count in zip(rewards.tolist(), counts, strict=True)
            ]
        )
        for rewards, counts in zip(rewards_RT, tokens_RT, strict=True)
    ]
    totals = [float(rewards.sum()) for rewards in rewards_RT]
    return SimpleNamespace(trajectories_G=each, get_total_rewards=lambda: totals)


def test_it_says_what_functions_are_given() -> None:
    told = set(re.findall(r"`(\w+)`", PAGE[PAGE.index("## What a function is given") :]))
    assert {name for kind in ("advantage", "choice", "weights") for name in SEES[kind]} <= told
