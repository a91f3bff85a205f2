"""Process rewards in runs: from graders and environments of one's own to the tokens that earn."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from chat_support import tokenizer
from run_support import assert_resumes, metrics, rollouts, run_new, tiny, train

from rlc.runtime.journal.episodes import EpisodeKey, TokenIndex
from rlc.runtime.records import RunError
from rlc.runtime.summary import Observer

# Each letter is a step: an `a` is a good one, whatever the whole reply is.
GRADER = """
def letters(reply, row):
    good = [letter == "a" for letter in reply]
    steps = [(at, float(one)) for at, one in enumerate(good, start=1)]
    return {"share": sum(good) / max(len(reply), 1), "steps": steps}


def digits(reply, row):
    steps = [(at, int(one)) for at, one in enumerate(reply, start=1) if one.isdigit()]
    return {"steps": steps}


def silent(reply, row):
    return len(reply)


def beyond(reply, row):
    return {"steps": [[len(reply) + 1, 1.0]]}


async def later(reply, row):
    return {"steps": [(len(reply), 0.5)] if reply else []}
"""
# An environment of two turns, which pays for the last letter of each reply.
WORLD = """
from rlc.envs import Observation


class Talk:
    def __init__(self):
        self.first, self.said = Observation("Say a word."), []

    def step(self, action):
        self.said.append(action)
        steps = [(len(action), len(self.said))] if action else []
        return Observation("Another.", float(len(action) > 3), len(self.said) == 2, steps=steps)


class Talks:
    def group(self, seed, size):
        return [Talk() for _ in range(size)]


def make():
    return Talks()
"""
OWN = """
advantage own() {
  token = process - mean(mean(process), over = batch, weight = length) + 0 * reward
}
"""
ENV = 'env words = rows("words.jsonl", grader = {}) |> chat()\n'
SMALL = {
    "env": "words",
    "batch": "groups(4, group_size = 4)",
    "sampling": "sample(max_tokens = 8)",
    "advantage": "own()",
    "steps": "2",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [{"prompt": f"Write letters, {n}."} for n in range(32)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "words.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "prm.py").write_text(GRADER, encoding="utf-8")
    (tmp_path / "world.py").write_text(WORLD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def graded(name: str, weight: str = "", **fields: str) -> Any:
    grader = f'{weight}grade_with("prm.py:{name}")'
    return tiny(OWN, ENV.format(grader), train(**SMALL | fields))


def trained(path: Path, step: int) -> list[tuple[dict[str, Any], list[list[int]], list[float]]]:
    """The episodes of a step, with the sampled tokens of each turn, and the advantages of all."""
    index, found = TokenIndex(path), []
    for record in rollouts(path, "main"):
        if record["step"] == step:
            key = EpisodeKey(record["env"], record["task"], record["member"], record["role"], 0)
            (one,) = index.episode("main", step, key)
            tokens = [list(one.tokens[begin:end]) for _, begin, end in one.spans]
            found.append((record, tokens, list(one.advantages_S)))
    return found


def paid(record: dict[str, Any], tokens: list[list[int]]) -> list[float]:
    """What each token earns: that of the parts of its reply which end in its text."""
    decode, found = tokenizer().decode, []
    for turn, sampled in zip(record["turns"], tokens, strict=True):
        until = 0
        for token in sampled:
            after = until + len(decode([token]))
            steps = turn.get("steps", [])
            found.append(sum((reward for end, reward in steps if until < end <= after), 0.0))
            until = after
    return found


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_it_learns_what_its_steps_are_paid_for(seed: int, here: Path) -> None:
    """Although the reward of an episode plays no part."""
    fields = {"batch": "groups(8, group_size = 8)", "steps": "12", "optimizer": "adam(3e-3)"}
    grader = ENV.format('grade_with("prm.py:letters")')
    run_new(here / "run", tiny(OWN, grader, train(**SMALL | fields), seed=seed))
    shares = [row["reward/mean"] for row in metrics(here / "run", "main")]
    assert fmean(shares[-3:]) > fmean(shares[:3]) + 0.1


@pytest.mark.plain
@pytest.mark.parametrize("overlap", ["synchronous()", "streamed(minibatches = 2)"])
def test_steps_are_paid_on_their_last_tokens_also_after_a_kill(overlap: str, here: Path) -> None:
    job = graded("digits", "0.5 * ", overlap=overlap, steps="3")
    assert_resumes(job, ("main", 1), here / "run")
    found = trained(here / "run", 3)
    earned = [x for record, tokens, _ in found for x in paid(record, tokens)]
    assert any(earned)
    mean = fmean(earned)
    for record, tokens, advantages in found:
        expected = [x - mean for x in paid(record, tokens)]
        assert advantages == pytest.approx(expected, abs=1e-6)


@pytest.mark.plain
def test_an_environment_pays_for_parts_of_each_reply(here: Path) -> None:
    env = 'env words = python("world.py:make") |> chat()\n'
    run_new(here / "run", tiny(OWN, env, train(**SMALL)))
    found = trained(here / "run", 1)
    mean = fmean(x for record, tokens, _ in found for x in paid(record, tokens))
    for record, tokens, advantages in found:
        assert [turn["steps"][0][1] for turn in record["turns"]] == [1.0, 2.0]
        expected = [x - mean for x in paid(record, tokens)]
        assert advantages == pytest.approx(expected, abs=1e-6)


@pytest.mark.plain
def test_an_async_function_gives_steps_too(here: Path) -> None:
    run_new(here / "run", graded("later"))
    assert any(record["turns"][0].get("steps") for record, *_ in trained(here / "run", 1))


@pytest.mark.plain
def test_an_episode_without_steps_ends_the_run(here: Path) -> None:
    with pytest.raises(RunError, match="an episode of `words` has no process rewards") as found:
        run_new(here / "run", graded("silent"))
    assert "`[]` where there are none" in str(found.value.hint)


@pytest.mark.plain
def test_a_step_beyond_the_reply_is_a_failed_rollout(here: Path) -> None:
    with pytest.raises(RunError, match=r"a part ends at \d+ in `steps`, and the reply has"):
        run_new(here / "run", graded("beyond", on_error="stop"))


@pytest.mark.plain
def test_steps_that_nothing_reads_are_noted_once(here: Path) -> None:
    notes = list[str]()

    class Noting(Observer):
        def note(self, text: str) -> None:
            notes.append(text)

    job = graded("letters", advantage="grpo()", steps="2")
    run_new(here / "run", job, observer=Noting())
    said = "`words` gives process rewards, and the advantage does not read `process`"
    assert [note for note in notes if "process" in note] == [f"{said}: they have no effect"]
