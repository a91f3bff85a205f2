"""Environments of the real package, played turn by turn: what they see, and what they reward."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from rlc.catalog.packages import TASKSETS, lacking
from rlc.chat.turns import Action, EnvError, Observation
from rlc.envs.base import TaskKey
from rlc.envs.verifiers.environments import RubricError, VerifiersSource

pytestmark = [pytest.mark.engine, pytest.mark.slow]
if lacking("verifiers"):
    pytest.skip("verifiers is not installed (rlc[verifiers])", allow_module_level=True)
if lacking(TASKSETS) is None:
    pytest.skip("verifiers has no environments as of 0.4", allow_module_level=True)

ARGS: dict[str, Any] = {
    "args": {},
    "weights": {},
    "split": "train",
    "shuffle": False,
    "samples": None,
}
LOADER = "vf_environments:load_environment"


def says(text: str) -> Action:
    return Action(text, {"role": "assistant", "content": text})


def calls(*made: tuple[str, str]) -> Action:
    from tinker_cookbook.renderers.base import ToolCall

    tool_calls = [
        ToolCall(function=ToolCall.FunctionBody(name=name, arguments=arguments))
        for name, arguments in made
    ]
    return Action("…", {"role": "assistant", "content": "", "tool_calls": tool_calls})


def source(
    kind: str = "single", more: dict[str, Any] | None = None, **args: Any
) -> VerifiersSource:
    given = {**ARGS, "args": {"kind": kind, **(more or {})}, **args}
    return VerifiersSource("sums", LOADER, given)


def played(made: VerifiersSource, *members: Sequence[Action]) -> list[list[Observation]]:
    """The observations of the members of the second task, which play at the same time."""

    async def one(episode: Any, actions: Sequence[Action]) -> list[Observation]:
        return [episode.first, *[await episode.play(action) for action in actions]]

    async def run() -> list[list[Observation]]:
        try:
            opened = await made.open(TaskKey(0, 1, 0, len(members)), range(len(members)))
            try:
                playing = map(one, opened, members)
                return list(await asyncio.gather(*playing))
            finally:
                await asyncio.gather(*(episode.close() for episode in opened))
        finally:
            await made.close()

    return asyncio.run(run())


def test_one_question_and_the_weighted_sum_of_its_rubric() -> None:
    ((first, last),) = played(source(), [says("3")])
    assert first.text == "What is 1 + 2?"
    assert first.about is not None
    assert (first.about.id, first.about.fields) == (1, {"answer": "3"})
    assert last.reward == 1.0 + 0.25 * 0.5
    assert last.metrics == {"exact": 1.0, "brief": 0.5, "num_turns": 1.0}
    assert (last.done, last.truncated) == (True, False)


def test_a_recipe_weighs_the_functions_by_name() -> None:
    ((_, last),) = played(source(weights={"brief": 2, "num_turns": 0.5}), [says("4")])
    assert last.reward == 2 * 0.5 + 0.5
    with pytest.raises(RubricError, match=r"no function `brevity`; there is `exact`, `brief`"):
        source(weights={"brevity": 1})


def test_a_function_that_raises_is_a_failure_and_no_reward() -> None:
    with pytest.raises(RubricError, match="`grumpy` of its rubric raised ValueError: not today"):
        played(source("broken_rubric"), [says("3")])


def test_turns_state_and_an_end_of_its_own() -> None:
    ((_, again, last),) = played(source("guessing"), [says("1"), says("3")])
    assert again.text == "No, try again (1)."
    assert (last.text, last.truncated) == ("Right.", False)
    assert last.metrics["tries"] == -0.2
    ((*_, cut),) = played(source("guessing", {"turns": 2}), [says("1"), says("2")])
    assert (cut.done, cut.truncated) == (True, True)


def test_several_calls_of_tools_in_a_turn() -> None:
    made = calls(("add", '{"a": 1, "b": 2}'), ("sub", "{}"), ("add", "{a}"))
    ((first, results, last),) = played(source("tools"), [made, says("3")])
    (tool,) = first.messages[0]["tools"]
    assert (tool["name"], tool["parameters"]["required"]) == ("add", ["a", "b"])
    said = results.messages[-3:]
    assert [(each["role"], each["name"]) for each in said] == [
        ("tool", "add"),
        ("tool", "sub"),
        ("tool", "add"),
    ]
    assert said[0]["content"] == "3"
    assert (last.reward, last.metrics["add_calls"]) == (1.0, 2.0)


def test_a_rubric_that_compares_a_group() -> None:
    ends = played(source("grouped"), [says("3")], [says("seven")], [says("no")])
    assert [end.reward for *_, end in ends] == [1.0, 1.0, 0.0]
    assert ends[1][-1].metrics == {"longest": 1.0, "exact": 0.0, "num_turns": 1.0}


@pytest.mark.parametrize(
    ("fail", "why"),
    [
        ("setup", "no table is free"),
        ("step", "the rollout failed: InfraError: the house is closed"),
    ],
)
def test_a_rollout_that_fails(fail: str, why: str) -> None:
    with pytest.raises((EnvError, RuntimeError), match=why):
        played(source("guessing", {"fail": fail}), [says("1")])


def test_an_episode_that_hangs_is_cleaned_up() -> None:
    import vf_environments  # verifiers takes seconds: not in each collection

    vf_environments.CLOSED.clear()

    async def run() -> None:
        made = source("guessing", {"fail": "hang"})
        (episode,) = await made.open(TaskKey(0, 1, 0, 1), [0])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await episode.play(says("1"))
        await episode.close()
        await made.close()

    asyncio.run(run())
    assert vf_environments.CLOSED == ["3"]


def test_tasks_of_a_split() -> None:
    for count, args in ((6, {}), (2, {"samples": 2}), (2, {"split": "test"})):
        made = source("single", {"test": "split" in args}, **args)
        asyncio.run(made.close())
        assert made.count == count
    with pytest.raises(EnvError, match=r"no tasks for evaluation: try `split = train`"):
        source(split="test")
    with pytest.raises(EnvError, match="6 tasks, and 9 are asked for"):
        source(samples=9)


def test_ctrl_c_stays_the_runtimes() -> None:
    before = signal.getsignal(signal.SIGINT)
    asyncio.run(source().close())
    assert signal.getsignal(signal.SIGINT) is before


def test_what_gives_no_environment_is_refused() -> None:
    with pytest.raises(EnvError, match="gave a Dataset, not an environment of verifiers"):
        VerifiersSource("sums", "vf_environments:sums", ARGS)
