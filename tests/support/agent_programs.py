"""Agents of the tests. Some ask with the openai package, others with what Python has."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from rlc.chat import EnvError
from rlc.envs import PolicyRequest

WEATHER = {
    "type": "function",
    "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}},
}
FIRST_TRIES = set[str]()  # tasks that `crashes_once` has met
SAID = list[list[float]]()  # the logprobs of each reply that `two_turns_scored` was given
STATUSES = set[int]()  # of what was refused to `at_once`
_LOCK = threading.Lock()


def ask(run: Any, messages: Sequence[Any], **more: Any) -> Any:
    """The message that answers a chat."""
    from openai import OpenAI

    with OpenAI(base_url=run.base_url, api_key=run.api_key, max_retries=0) as client:
        said = client.chat.completions.create(model="any", messages=[*messages], **more)
    return said.choices[0].message


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def share(text: str, letter: str = "e") -> float:
    return text.count(letter) / max(len(text), 1)


def shared(reply: str, row: Any) -> float:
    return share(reply)


def rewarded(task: Any, action: str) -> Any:
    return SimpleNamespace(reward=0.5, is_correct=False, metadata={})


def two_turns(run: Any) -> float:
    """Asks twice in one conversation. Worth the share of a letter in both replies."""
    messages: list[Any] = [user(run.task["prompt"])]
    first = ask(run, messages)
    messages += [first, user("Another one.")]
    second = ask(run, messages)
    return share((first.content or "") + (second.content or ""))


async def two_turns_inside(run: Any) -> float:
    """The same, which asks without a client. Its replies are the turns that are trained on."""
    messages, replies = [user(run.task["prompt"])], list[Any]()
    for text in ("Another one.", ""):
        replies.append(await run.policy.reply(PolicyRequest(messages)))
        messages += [replies[-1].message, user(text)]
    assert [reply.turn for reply in replies] == [0, 1]
    assert all(len(reply.tokens) == len(reply.logprobs) > 0 for reply in replies)
    with _LOCK:
        SAID.extend([*reply.logprobs] for reply in replies)
    return share("".join(reply.message["content"] for reply in replies))


class Trajectory:
    """As rLLM's, as far as workflows fill it."""

    def __init__(self, name: str, output: Any, reward: float) -> None:
        self.name, self.output, self.reward = name, output, reward


class TwoSolvers:
    """A workflow of rLLM, without its package: replies side by side, and one that reads them."""

    def __init__(
        self, rollout_engine: Any, n_solutions: int = 1, reward_function: Any = None, **kwargs: Any
    ) -> None:
        assert {*kwargs} == {"executor"}
        self.engine, self.count, self.reward = rollout_engine, n_solutions, reward_function

    async def run(self, task: dict[str, Any], uid: str, **kwargs: Any) -> Any:
        assert uid
        asked = [self.solved("solver", task, task["prompt"]) for _ in range(self.count)]
        solved = await asyncio.gather(*asked)
        judged = await self.solved("judge", task, " or ".join(one.output.content for one in solved))
        return SimpleNamespace(
            trajectories=[*solved, judged], metrics={"said": len(solved)}, is_correct=False
        )

    async def solved(self, name: str, task: dict[str, Any], question: str) -> Trajectory:
        output = await self.engine.get_model_response([user(question)], application_id="x")
        assert len(output.completion_ids) == len(output.logprobs)
        return Trajectory(name, output, self.reward(task, output.content).reward)


class Endless(TwoSolvers):
    """Ends by itself before it has a result."""

    async def run(self, task: dict[str, Any], uid: str, **kwargs: Any) -> Any:
        self.done = [await self.solved("solver", task, task["prompt"])]
        raise TerminationEvent

    def collect_trajectories(self) -> Any:
        return SimpleNamespace(trajectories=self.done, metrics={}, is_correct=True)

    def postprocess_episode(self, episode: Any) -> Any:
        return episode


class TerminationEvent(Exception):  # noqa: N818, as rLLM calls it
    pass


async def stubborn(run: Any) -> float:
    """Asks on where a limit has been met."""
    messages = [*run.messages]
    for _ in range(3):
        with suppress(EnvError):
            messages += [(await run.policy.reply(PolicyRequest(messages))).message, user("On.")]
    return 1.0


async def unshown(run: Any) -> float:
    """Asks about what no text holds, and then about what one does."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}
    refused = 0.0
    for content in ([image], "\ud800"):
        try:
            await run.policy.reply(PolicyRequest([{"role": "user", "content": content}]))
        except EnvError:
            refused += 1
    await run.policy.reply(PolicyRequest(run.messages))
    return refused


def unshown_to_it(run: Any) -> dict[str, float]:
    """Asks at the endpoint about a call that no format shows, and then about a text."""
    import openai

    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{"}}
    asked = [*run.messages, {"role": "assistant", "content": "", "tool_calls": [call]}]
    status = 0
    try:
        ask(run, [*asked, {"role": "tool", "tool_call_id": "a", "content": "x"}])
    except openai.APIStatusError as error:
        status = error.status_code
    ask(run, run.messages)
    return {"reward": 1.0, "status": status}


def two_turns_scored(run: Any) -> float:
    """The same, with an agent that asks for the logprobs of its replies."""
    from openai import OpenAI

    messages, said = [*run.messages], ""
    with OpenAI(base_url=run.base_url, api_key=run.api_key, max_retries=0) as client:
        for _ in range(2):
            reply = client.chat.completions.create(model="any", messages=messages, logprobs=True)
            (choice,) = reply.choices
            assert choice.logprobs is not None
            assert choice.logprobs.content is not None
            with _LOCK:
                SAID.append([one.logprob for one in choice.logprobs.content])
            messages += [choice.message, user("Another one.")]
            said += choice.message.content or ""
    return share(said)


def must_call(run: Any) -> float:
    """Asks for a call, which a model of no use never gives."""
    ask(run, [user(run.task["prompt"])], tools=[WEATHER], tool_choice="required", max_tokens=8)
    return 1.0


def must_call_or_settle(run: Any) -> float:
    """The same, but does without."""
    from openai import BadRequestError

    try:
        return must_call(run)
    except BadRequestError as error:
        return 0.5 if error.code == "tool_use_failed" else 0.0


async def awaited(run: Any) -> dict[str, float]:
    """The same, ``async``, with a number beside the reward."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=run.base_url, api_key=run.api_key) as client:
        said = await client.chat.completions.create(model="any", messages=[*run.messages])
    return {"reward": share(said.choices[0].message.content or ""), "asked": 1}


def answers(run: Any) -> None:
    """Leaves its last reply as the answer."""
    ask(run, run.messages, tools=[WEATHER])


def first_letter(messages: Sequence[Any], row: Any) -> dict[str, float]:
    """Grades the whole conversation."""
    return {"said": len(messages), "right": float(messages[-1]["content"] == row["answer"])}


def rewrites(run: Any) -> float:
    """Sends back another answer than it got."""
    ask(run, [user("One.")])
    ask(run, [user("One."), {"role": "assistant", "content": "edited"}, user("Two.")])
    return 1.0


def branches(run: Any) -> float:
    """Goes on from one answer in four ways at once, and has a helper of its own."""
    trunk = [user(run.task["prompt"])]
    trunk = [*trunk, ask(run, trunk)]
    asked = [[*trunk, user(f"Way {number}.")] for number in range(4)]
    asked.append([user("A helper.")])
    threads = [threading.Thread(target=ask, args=(run, messages)) for messages in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1.0


def crashes_once(run: Any) -> float:
    """Raises the first time that it meets a task."""
    reply = ask(run, run.messages)
    with _LOCK:
        known = run.task["prompt"] in FIRST_TRIES
        FIRST_TRIES.add(run.task["prompt"])
    if not known:
        raise KeyError(run.task["prompt"])  # here
    return share(reply.content or "")


def at_once(run: Any) -> float:
    """Asks more at once than an episode has turns, and notes how each request is answered."""
    from concurrent.futures import ThreadPoolExecutor

    from openai import APIStatusError

    def note(number: int) -> None:
        try:
            ask(run, [user(f"Say {number}.")])
        except APIStatusError as error:
            STATUSES.add(error.status_code)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(note, range(4)))
    raise ValueError("cut off")


def hangs(run: Any) -> float:
    ask(run, run.messages)
    threading.Event().wait()
    return 1.0


def asks_nobody(run: Any) -> float:
    return 1.0


def gives_nothing(run: Any) -> None:
    ask(run, run.messages)


def goes_on(run: Any) -> float:
    """Asks until it is told to stop."""
    messages = [*run.messages]
    while True:
        messages += [ask(run, messages), user("Go on.")]


def two_episodes_mixed_up(run: Any) -> float:
    """Asks with a key that is not its own, then with its own."""
    request = urllib.request.Request(
        f"{run.base_url}/chat/completions",
        json.dumps({"model": "any", "messages": run.messages}).encode(),
        {"authorization": "Bearer rlc-other", "content-type": "application/json"},
    )
    try:
        urllib.request.urlopen(request)
    except urllib.error.HTTPError as refused:
        with refused:
            ask(run, run.messages)
        return float(refused.code == 401)
    return 0.0


def _program() -> None:
    """An agent as a program of its own, without rlc or openai."""
    import os

    with open(os.environ["RLC_TASK"], encoding="utf-8") as file:
        given = json.load(file)
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": given["messages"]}).encode(),
        {
            "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
            "content-type": "application/json",
        },
    )
    with urllib.request.urlopen(request) as answer:
        said = json.load(answer)["choices"][0]["message"]["content"]
    match sys.argv[1]:
        case "result":
            with open(os.environ["RLC_RESULT"], "w", encoding="utf-8") as file:
                json.dump({"reward": share(said), "length": len(said)}, file)
        case "status":
            sys.exit(int("e" not in said))
        case "dies":
            os.kill(os.getpid(), 9)
        case "fails":
            print("no such thing", file=sys.stderr)
            sys.exit(3)


if __name__ == "__main__":
    _program()
