"""Tasksets of verifiers 0.4, the real package: what is asked, rewarded and trained on.

It goes with few others: these tests are skipped without it, and `tools/versions.py` runs them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import pytest

from rlc.catalog.packages import ENVIRONMENTS, TASKSETS, lacking, too_new
from rlc.chat.turns import Action, EnvError, Observation
from rlc.data.errors import DataError
from rlc.data.grading.tasksets import SOLUTION, is_taskset, require_valid, taskset_faults
from rlc.emit.job import needs
from rlc.envs.base import TaskKey
from rlc.envs.verifiers.environments import RubricError, VerifiersSource
from rlc.envs.verifiers.tasksets import TasksetSource

pytestmark = [pytest.mark.engine, pytest.mark.server, pytest.mark.slow]
if wrong := lacking(TASKSETS):
    pytest.skip(f"needs {TASKSETS} ({wrong})", allow_module_level=True)

USUAL: dict[str, Any] = {"weights": {}, "split": "train", "shuffle": False, "samples": None}
MODULE = "vf_tasksets:load_environment"


class Watched(TasksetSource):
    """Keeps what verifiers has recorded."""

    traces: list[Any]

    def _end(self, episode: Any) -> Observation:
        self.traces = episode.traces
        return super()._end(episode)


def source(plan: Sequence[str] = (), path: str = "", **args: Any) -> Watched:
    harness = {"id": "vf_tasksets", "plan": list(plan)} | ({"path": path} if path else {})
    block = {"agent": {"harness": harness}, **args.pop("block", {})}
    return Watched("sums", MODULE, {**USUAL, "args": block, **args})


def played(made: TasksetSource, *replies: Action, task: int = 1) -> list[Observation]:
    async def run() -> list[Observation]:
        try:
            (episode,) = await made.open(TaskKey(0, task, 0, 1), [0])
            try:
                return [episode.first, *[await episode.play(reply) for reply in replies]]
            finally:
                await episode.close()
        finally:
            await made.close()

    return asyncio.run(run())


def says(text: str) -> Action:
    return Action(text, {"role": "assistant", "content": text}, tokens=[7], logprobs=[-0.5])


def test_a_task_its_rewards_and_its_metrics() -> None:
    assert is_taskset(MODULE)
    made = source(weights={"exact": 0.5})
    assert made.count == 3
    first, last = played(made, says("3"))
    assert [one["role"] for one in first.messages] == ["system", "user"]
    assert first.text.endswith("What is 1 + 2?")
    assert first.about is not None
    assert (first.about.id, first.about.fields) == (1, {"answer": "3"})
    assert (last.reward, last.done, last.truncated) == (0.5, True, False)
    assert last.metrics == {"words": 1.0, "exact": 1.0}


def test_branches_are_the_sequences_with_what_they_share_masked_once() -> None:
    from chat_support import encode, tokenizer

    from rlc.chat.prompts import chat_history
    from rlc.chat.transcripts import TranscriptHistory
    from rlc.runtime.records import Turn
    from rlc.runtime.rollouts.tokens import merged_sequences

    history = TranscriptHistory(chat_history(tokenizer(), "qwen3_instruct", whole=True))
    made, turns = source(["> And 5?", "< Why?", "> Sure?"]), list[Turn]()

    async def run() -> None:
        (episode,) = await made.open(TaskKey(0, 1, 0, 1), [0])
        seen = episode.first
        while not seen.done:
            prompt = history.observe(seen)
            tokens = [*encode(f"It is {len(turns)}."), *encode("<|im_end|>")]
            logprobs = [-0.5 - len(turns)] * len(tokens)
            action = history.reply(tokens)
            turns.append(Turn(prompt, tokens, logprobs, "", "", 0.0, "stop"))
            parts: dict[str, Any] = {"tokens": tokens, "logprobs": logprobs, "prompt": prompt}
            seen = await episode.play(Action(action.text, action.message, **parts))
        await episode.close()
        await made.close()

    asyncio.run(run())
    (trace,) = made.traces
    sequences = merged_sequences(turns)
    assert len(sequences) == 2
    for branch, sequence in zip(trace.branches, sequences, strict=True):
        assert list(branch.token_ids) == list(sequence.tokens)
    sampled = [turn for sequence in sequences for turn in sequence.turns if turn >= 0]
    assert len(sampled) == sum(len(turn.tokens) for turn in turns)


def test_what_fails_is_no_reward() -> None:
    block = {"taskset": {"count": 7}}
    with pytest.raises(EnvError, match=r"the rollout failed: TaskError: .*unlucky"):
        played(source(block=block), says("13"), task=6)
    with pytest.raises(EnvError, match="another API than that of OpenAI's chats"):
        played(source(path="messages"), says("1"))


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"split": "test"}, "has one list of tasks"),
        ({"samples": 9}, "has 3 tasks, and 9 are asked for"),
        ({"block": {"taskset": {"count": None}}}, "tasks without end"),
        ({"block": {"taskset": {"task_kind": "boxed"}}}, "need a container"),
        ({"block": {"taskset": {"counts": 2}}}, r"the taskset `sums` fails: .*counts"),
        ({"block": {"agent": {"max_total_tokens": 9}}}, "is the recipe's"),
        ({"block": {"agent": {"runtime": {"type": "prime"}}}}, "plays in a runtime elsewhere"),
    ],
)
def test_what_cannot_be_played_is_refused(args: dict[str, Any], why: str) -> None:
    with pytest.raises(EnvError, match=why):
        source(**args)


def test_an_episode_that_is_left_ends_with_its_program() -> None:
    async def run() -> None:
        made = source()
        episodes = await made.open(TaskKey(0, 1, 0, 2), [0, 1])
        await episodes[0].play(says("3"))
        assert len(made._clients) == 1
        await asyncio.gather(*(episode.close() for episode in episodes))
        assert made._clients == {}
        await made.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_weight_of_a_reward_that_does_not_exist() -> None:
    with pytest.raises(RubricError, match="brevity"):
        source(weights={"brevity": 1})


def test_a_limited_number_of_turns_cuts_an_episode_off() -> None:
    block = {"agent": {"harness": {"id": "vf_tasksets", "plan": ["> And?"]}, "max_turns": 1}}
    *_, last = played(source(block=block), says("4"))
    assert (last.done, last.truncated, last.reward) == (True, True, 0.0)


def test_a_taskset_checks_its_own_solutions() -> None:
    with pytest.raises(DataError, match="task 1: its own solution does not solve it") as found:
        require_valid(MODULE, {})
    assert "when nothing" not in str(found.value)
    with pytest.raises(DataError, match="task 0: it is solved when nothing was done"):
        require_valid(MODULE, {"taskset": {"task_kind": "given"}})
    assert [shown_by for shown_by, _ in taskset_faults(MODULE, {})] == [SOLUTION]
    require_valid(MODULE, {"taskset": {"count": 1}})
    require_valid(MODULE, {"taskset": {"task_kind": "boxed"}})  # needs a container


def test_an_environment_of_the_older_interface_says_which_versions_have_it() -> None:
    advice = (
        "verifiers<0.4 needs a Python" if too_new(ENVIRONMENTS) else "pip install 'verifiers<0.4'"
    )
    with pytest.raises(EnvError, match=rf"`old` is made by .*: {re.escape(advice)}"):
        VerifiersSource("old", "math:sqrt", {**USUAL, "args": {}})


def test_a_job_takes_the_version_along_that_plays_tasksets() -> None:
    pinned = needs.constraints_here().splitlines()
    for name in ("verifiers", "mcp", "sse-starlette"):
        assert f"{name}=={metadata.version(name)}" in pinned
    assert "verifiers==0.3.1" in needs.constraints().splitlines()
