"""Runs that ask other models, killed while these are asked: nothing that was journalled is asked
for again, and they end as undisturbed ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from killing import SMALL, Victim, differences, finished, outcome, write_recipe
from run_support import TINY, train
from scripted_judge import ScriptedJudge, judged_text, scripted_judge

from rlc.runtime.journal.folder import RunFolder

pytestmark = [pytest.mark.plain, pytest.mark.kill, pytest.mark.slow]


def whole(recipe: Path) -> Path:
    """The folder of an undisturbed run."""
    path = recipe.parent / "whole"
    words = ["run", str(recipe), "--seed", "3", "--run-dir", str(path)]
    finished(words, recipe.parent / "log")
    return path


def tokens(path: Path, stage: str) -> int:
    folder = RunFolder.resume(path)
    used = folder.journal.used(stage).tokens
    folder.close()
    return int(used)


def test_a_student_that_is_killed_while_its_teachers_read(tmp_path: Path) -> None:
    """One of them is a stage, the other names its top-k tokens; parts of a batch are read while
    others are played."""
    recipe = write_recipe(tmp_path, "teachers")
    undisturbed = whole(recipe)
    victim = Victim(recipe, tmp_path / "run", tmp_path / "log")
    for phase, call in (("scoring", 9), ("training", 2)):
        kill = victim.kill_at(phase, call)
        assert kill is not None
        assert phase in kill.phases
    victim.finish()
    expected = outcome(undisturbed)
    assert differences(expected, outcome(victim.path)) == []
    # Each kill repeats at most the step that was on its way, and one whose weights were not saved.
    steps = [r for r in expected["metrics"] if r["stage"] == "student"]
    most = max(sum(v for k, v in one.items() if k.startswith("tokens/")) for one in steps)
    assert tokens(undisturbed, "student") < tokens(victim.path, "student")
    assert tokens(victim.path, "student") < tokens(undisturbed, "student") + 2 * 2 * most


def verdict(body: dict[str, Any], _: int) -> str:
    (reply,) = judged_text(body)
    return f"<score>{min(10, reply.count('e'))}</score>"


def judged(folder: Path, judge: ScriptedJudge) -> Path:
    prompts = "".join(json.dumps({"prompt": f"say {word}"}) + "\n" for word in ("ee", "oo", "see"))
    (folder / "prompts.jsonl").write_text(prompts)
    model = f'endpoint("{judge.url}", model = "{judge.model}")'
    judging = f'rubric("Many e.", model = {model}, scale = [0, 10], concurrency = 1)'
    recipe = folder / "judged.rl"
    recipe.write_text(
        TINY
        + f"judge likes = {judging}\n"
        + 'env essays = rows("prompts.jsonl") |> judged(likes)\n'
        + train(**SMALL | {"env": "essays", "on_error": "stop"})
    )
    return recipe


@pytest.mark.server
def test_no_judge_is_asked_again_for_what_it_has_answered(tmp_path: Path) -> None:
    """Neither for replies of steps that are played again, nor for those of the one that was cut
    off; the question that was open at the kill is."""
    with scripted_judge(verdict) as judge:
        recipe = judged(tmp_path, judge)
        expected = outcome(whole(recipe))
        questions = Counter(json.dumps(body, sort_keys=True) for body in judge.asked)
        assert set(questions.values()) == {1}
        judge.asked.clear()
        victim = Victim(recipe, tmp_path / "run", tmp_path / "log")
        for phase, call in (("judging", 5), ("training", 2)):
            kill = victim.kill_at(phase, call)
            assert kill is not None
            assert phase in kill.phases
        victim.finish()
        assert differences(expected, outcome(victim.path)) == []
        again = Counter(json.dumps(body, sort_keys=True) for body in judge.asked)
    assert again.keys() == questions.keys()
    assert sum(again.values()) <= len(questions) + 1
