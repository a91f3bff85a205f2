"""OpenReward's environments played through the official SDK against a real server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from openreward_servers import KEY, base_url

from rlc.chat.prompts import text_of
from rlc.chat.turns import Action, EnvError, Observation
from rlc.envs.base import AsyncEpisode, TaskKey
from rlc.envs.deadlines import Deadline
from rlc.envs.openreward import OpenRewardSource, task_order, transcript

pytestmark = [pytest.mark.engine, pytest.mark.server]

ARGS = {
    "split": "train",
    "shuffle": False,
    "samples": None,
    "variant": None,
    "secrets": [],
    "tools": [],
    "sessions": 8,
}


def playing(name: str, play: Callable[[OpenRewardSource], Awaitable[Any]], **args: Any) -> Any:
    """What ``play`` gives with a source, which is closed however that ends."""

    async def run() -> Any:
        source = OpenRewardSource(f"Test/{name}", {**ARGS, "base_url": base_url(), **args})
        try:
            return await play(source)
        finally:
            await source.close()

    return asyncio.run(run())


def key(number: int = 0, order: int = 0) -> TaskKey:
    return TaskKey(order, number, seed=0, size=1)


def calls(*made: tuple[str, str]) -> Action:
    """A reply that calls tools, as a renderer reads it."""
    from tinker_cookbook.renderers.base import ToolCall

    tool_calls = [
        ToolCall(function=ToolCall.FunctionBody(name=name, arguments=arguments))
        for name, arguments in made
    ]
    return Action("…", {"role": "assistant", "content": "", "tool_calls": tool_calls})


def says(text: str) -> Action:
    return Action(text, {"role": "assistant", "content": text})


def episode(name: str, *actions: Action, **args: Any) -> list[Observation]:
    """The observations of one episode, the first included."""

    async def play(source: OpenRewardSource) -> list[Observation]:
        (opened,) = await source.open(key(), [0])
        try:
            return [opened.first, *[await opened.play(action) for action in actions]]
        finally:
            await opened.close()

    result: list[Observation] = playing(name, play, **args)
    return result


def test_an_episode_of_tool_calls_from_prompt_to_reward() -> None:
    first, look, buy, end = episode(
        "Shop",
        calls(("look", '{"n": 4}')),
        calls(("buy", '{"item": "tea", "count": 3}'), ("buy", '{"item": "milk"}')),
        calls(("finish", "{}"), ("look", '{"n": 5}')),
    )
    assert first.text == "Task 0."
    head, user = first.messages
    assert [tool["name"] for tool in head["tools"]] == ["buy", "finish", "look"]
    assert head["tools"][0]["parameters"]["required"] == ["item"]
    assert user == {"role": "user", "content": "Task 0."}
    assert (look.text, look.reward, look.done) == ("saw 4", None, False)
    assert look.messages[0]["name"] == "look"
    assert [message["content"] for message in buy.messages] == ["bought 3 tea", "bought 1 milk"]
    assert buy.reward == pytest.approx(-0.4)
    assert (end.reward, end.done, end.truncated, len(end.messages)) == (1.0, True, False, 1)
    assert end.metrics == {"tool_calls": 4.0, "tool_errors": 0.0, "parse_errors": 0.0}


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("steal", "{}"), "Error (not_found)"),
        (("look", '{"n": "many"}'), "Error (input_validation)"),
        (("look", "[4]"), "Error (bad_input_shape)"),
        (("look", "{n: 4}"), "Error (bad_input_shape): the arguments are not JSON"),
    ],
)
def test_the_model_is_told_of_a_wrong_call_and_goes_on(call: tuple[str, str], told: str) -> None:
    _, wrong, right = episode("Shop", calls(call), calls(("look", '{"n": 4}')))
    assert wrong.text.startswith(told)
    assert (wrong.reward, wrong.done, wrong.messages[0]["role"]) == (None, False, "tool")
    assert (right.text, right.metrics["tool_errors"]) == ("saw 4", 1.0)


def test_the_model_is_told_of_a_call_that_cannot_be_read() -> None:
    from tinker_cookbook.renderers.base import UnparsedToolCall

    unread = [UnparsedToolCall(raw_text="<tool_call>{", error="Invalid JSON")]
    garbled = Action("…", {"role": "assistant", "content": "", "unparsed_tool_calls": unread})
    _, told, after = episode("Shop", garbled, calls(("finish", "{}")))
    assert told.text == "Error: a tool call could not be read (Invalid JSON)."
    assert (told.done, told.metrics["parse_errors"]) == (False, 1.0)
    assert (after.done, after.metrics["parse_errors"]) == (True, 1.0)


def test_only_the_tools_that_the_recipe_names_are_there() -> None:
    first, refused = episode("Shop", calls(("buy", '{"item": "tea"}')), tools=["look"])
    assert [tool["name"] for tool in first.messages[0]["tools"]] == ["look"]
    assert refused.text == "Error (not_found): there is no tool 'buy'"


def test_a_plain_reply_goes_to_the_terminal_tool() -> None:
    first, end = episode("Reverse", says("elppa"))
    assert first.messages[0]["tools"] == []
    assert (end.reward, end.done, end.truncated) == (1.0, True, False)


def test_a_plain_reply_ends_an_episode_without_one_but_not_by_itself() -> None:
    _, end = episode("Shop", says("I give up."))
    assert (end.reward, end.done, end.truncated) == (None, True, True)


def test_a_conversation_under_way_keeps_its_roles_and_calls() -> None:
    (first,) = episode("Talk")
    head, *rest = first.messages
    assert (head["role"], head["content"]) == ("system", "Be brief.")
    assert [message["role"] for message in rest] == ["user", "assistant", "tool", "user"]
    assert rest[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"n": 7}'}
    assert rest[2]["tool_call_id"] == "c1"


def test_pictures_are_parts_of_messages() -> None:
    first, after = episode("Pictures", calls(("look", '{"n": 2}')))
    assert first.text == "What is this?[image]"
    said, picture = first.messages[1]["content"]
    assert said == {"type": "text", "text": "What is this?"}
    assert picture["type"] == "image"
    assert picture["image"].startswith("data:image/png;base64,iVBOR")
    (result,) = after.messages
    assert (result["role"], text_of(result)) == ("tool", "Picture 2:[image]")


@pytest.mark.parametrize(
    ("name", "action", "told"),
    [
        ("Broken", calls(("look", '{"n": 1}')), "a tool of `Test/Broken` failed: .*is no 1"),
        ("Unpaid", says(""), r"no credit left for this key \(402\)"),
        ("Nowhere", says(""), 'has no environment `nowhere`; .*`variant = "…"`'),
        ("Locked", says(""), "asks for a key, and OPENREWARD_API_KEY is not set"),
    ],
)
def test_what_fails_says_so_plainly(
    name: str, action: Action, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENREWARD_API_KEY", raising=False)
    with pytest.raises(EnvError, match=told):
        episode(name, action)


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENREWARD_API_KEY", KEY)
    first, _ = episode("Locked", says(""))
    assert first.text == "Task 0."


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_CODE", "open sesame")
    assert episode("Vault", says("out"), secrets=["VAULT_CODE"])[-1].reward == 1.0
    assert episode("Vault", says("out"))[-1].reward == 0.0


def test_a_busy_server_is_asked_again_on_nobodys_clock() -> None:
    """Each new session and each call is refused seven times, with 429 and 503."""

    async def play(source: OpenRewardSource) -> tuple[Observation, float]:
        (opened,) = await source.open(key(), [0])
        async with Deadline(60, "the call") as spent:
            seen = await opened.play(calls(("finish", "{}")))
        await opened.close()
        return seen, spent.worked / (spent.worked + spent.waited)

    seen, worked = playing("Busy", play)
    assert seen.reward == 1.0
    assert worked < 0.5


def test_a_tool_that_takes_for_ever_ends_with_the_deadline_and_frees_its_slot() -> None:
    async def play(source: OpenRewardSource) -> Observation:
        (opened,) = await source.open(key(), [0])
        with pytest.raises(EnvError, match="took longer"):
            async with Deadline(0.05, "the step"):
                await opened.play(calls(("look", '{"n": 2}')))
        await opened.close()
        (opened,) = await source.open(key(), [0])
        seen = await opened.play(calls(("look", '{"n": 1}')))
        await opened.close()
        return seen

    assert playing("Slow", play, sessions=1).text == "at last"


def test_a_group_begins_alike_and_needs_no_more_slots_than_there_are() -> None:
    async def play(source: OpenRewardSource) -> list[Observation]:
        async def alone(member: AsyncEpisode) -> Observation:
            async with Deadline(30, "the episode"):
                seen = await member.play(calls(("finish", "{}")))
                await member.close()
                await member.close()
            return seen

        members = await source.open(key(2), range(4))
        assert {member.first.text for member in members} == {"Task 2."}
        return list(await asyncio.gather(*map(alone, members)))

    assert [seen.reward for seen in playing("Shop", play, sessions=1)] == [1.0] * 4


def test_a_task_that_begins_differently_in_each_session_is_no_group() -> None:
    async def play(source: OpenRewardSource) -> None:
        first, second = await source.open(key(), [0, 1])
        await first.play(calls(("look", '{"n": 1}')))
        await first.close()
        await second.play(calls(("look", '{"n": 1}')))

    with pytest.raises(EnvError, match="begins differently in each session"):
        playing("Fickle", play)


def test_tasks_come_in_the_order_of_the_seed_each_once_an_epoch() -> None:
    def order(seed: int, **args: Any) -> list[int]:
        tasks = task_order(5, **{"shuffle": True, "samples": None, **args})
        return [tasks.row(seed, number) for number in range(10)]

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)[:5]) == sorted(order(1)[5:]) == [0, 1, 2, 3, 4]
    assert order(1)[:5] != order(1)[5:]
    assert order(1, shuffle=False)[:6] == [0, 1, 2, 3, 4, 0]


def test_samples_are_the_same_tasks_for_every_seed() -> None:
    def chosen(seed: int) -> set[int]:
        tasks = task_order(100, shuffle=True, samples=5)
        return {tasks.row(seed, number) for number in range(5)}

    assert chosen(1) == chosen(2)
    assert len(chosen(1)) == 5
    assert chosen(1) != set(range(5))


def test_more_samples_than_tasks_are_refused() -> None:
    with pytest.raises(EnvError, match="has 3 tasks, and 4 are asked for"):
        episode("Shop", samples=4)
    with pytest.raises(EnvError, match="has 0 tasks"):
        episode("Shop", split="empty")


def group_of(*replies: str, **args: Any) -> list[Any]:
    """What each member of a group of `Judged` sees of its last turn, or why it failed. Who is
    to ``leave`` does so before."""

    async def play(source: OpenRewardSource) -> list[Any]:
        task = TaskKey(0, 0, seed=0, size=len(replies))
        members = await source.open(task, range(len(replies)))

        async def member(episode: AsyncEpisode, reply: str) -> Any:
            try:
                await episode.play(calls(("look", '{"n": 4}')))
                return await episode.play(says(reply)) if reply != "leave" else None
            finally:
                await episode.close()

        played = zip(members, replies, strict=True)
        return await asyncio.gather(*(member(*one) for one in played), return_exceptions=True)

    result: list[Any] = playing("Judged", play, **args)
    return result


def test_a_group_is_scored_once_nobody_plays_any_more() -> None:
    """With fewer sessions than members too: who is done makes room."""
    short, longest, gone, middle = group_of("no", "certainly", "leave", "maybe", sessions=1)
    assert gone is None
    assert [seen.reward for seen in (short, longest, middle)] == [0.0, 1.0, 0.0]
    assert longest.metrics["group_score"] == 1.0
    assert longest.done


def test_a_group_that_cannot_be_scored_says_why() -> None:
    errors = group_of("something", "unfair")
    assert [type(error) for error in errors] == [EnvError, EnvError]
    assert "`Test/Judged` could not score a group: " in str(errors[0])
    assert "somebody says it is unfair" in str(errors[0])


def test_one_member_of_a_scored_group_cannot_be_played_again() -> None:
    async def alone(source: OpenRewardSource) -> Any:
        return await source.open(TaskKey(0, 0, seed=0, size=4), [2])

    with pytest.raises(EnvError, match="none can be played again by itself"):
        playing("Judged", alone)


def test_what_was_said_reaches_the_judge_in_the_sdks_own_form() -> None:
    (first,) = episode("Talk")
    thought = {"type": "thinking", "thinking": "Hm."}
    seen = {"type": "image", "image": "data:image/png;base64,iVBO"}
    garbled = {"function": {"name": "look", "arguments": "[4]"}, "id": "c2", "type": "function"}
    messages = transcript(
        [
            *first.messages,
            {"role": "assistant", "content": [thought, {"type": "text", "text": "So."}]},
            {"role": "assistant", "content": "", "tool_calls": [garbled]},
            {"role": "tool", "tool_call_id": "c2", "content": [seen]},
        ]
    )
    told = [(m.role, [block.type for block in m.blocks]) for m in messages]
    assert told == [
        ("system", ["text"]),
        ("user", ["text"]),
        ("assistant", ["text", "tool_call"]),
        ("user", ["tool_result"]),
        ("user", ["text"]),
        ("assistant", ["reasoning", "text"]),
        ("assistant", ["tool_call"]),
        ("user", ["tool_result"]),
    ]
    assert messages[2].blocks[1].input == {"n": 7}
    assert messages[6].blocks[0].input == {"arguments": "[4]"}
    (picture,) = messages[7].blocks[0].blocks
    assert (picture.mimeType, picture.data) == ("image/png", "iVBO")
