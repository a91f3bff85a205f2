"""Recipes that nobody would write go the whole way without an exception."""

from __future__ import annotations

from random import Random

import pytest
from paths import ROOT

from rlc.lang.source import Source
from tools.fuzz.__main__ import Find, Settings, smaller, trial_of
from tools.fuzz.mutate import shipped
from tools.fuzz.ways import Trial

pytestmark = pytest.mark.slow

NAME = str(ROOT / "tests/check/cases/made_up.rl")

# What the search found, each as small as it could be made.
FOUND = {
    "a character that is in no text": 'import "\0"',
    "half a character": 'model policy { base = "\udcff" }',
    "parameters alone": 'model policy() { base = "tiny" }',
    "a judge of groups whose size is not said": """
model policy { base = "tiny" }
model big { base = "tiny" }
judge helpful = rubric("Does it help?", model = big)
env essays = rows("data/prompts.jsonl") |> compared(helpful)
train main { model = policy  env = essays  sampling = sample(max_tokens = 16) }
""",
    "more brackets than rounds of fixes": 'model policy { base = "tiny"  lora_rank = '
    + "[" * 50
    + "}",
    "a block that could not be made is no candidate": """
preference main { policy }
train other = main { difficulty 3 }
train most = main { most 3 }
""",
    "two losses of one name": """
loss mine(none, n) { token = adv }
loss mine(adv, tau: float) { token = adv }
""",
}


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_what_was_found_is_mended(text: str) -> None:
    for seed in range(4):  # an editor asks at other places
        Trial(Source(NAME, text), Random(seed)).run()


@pytest.mark.engine  # some are written as scripts, and name code of the cookbook
def test_changed_recipes_have_plans_or_errors() -> None:
    pool = shipped()
    for number in range(25):
        text, settings = trial_of(pool, f"test {number}")
        Trial(Source(settings.name, text), Random(settings.seed)).run()


def test_a_find_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(trial: Trial) -> None:
        if "seven" in trial.source.text:
            raise ValueError

    monkeypatch.setattr(Trial, "run", fails)
    settings = Settings("test.rl", "1", 0, False)
    text = "".join(f"line {number}\n" for number in ("one", "two", "seven of them", "eight"))
    find = settings.tried(text)
    assert isinstance(find, Find)
    *_, last = smaller(find, settings, 10)
    assert last.text == "seven"
    assert last.cause == find.cause
