"""Environments of verifiers, as a package of its Environments Hub offers them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import verifiers as vf
from datasets import Dataset

CLOSED = list[str]()  # the rollouts that were cleaned up


def sums(count: int = 6, **columns: Any) -> Dataset:
    rows = [(n, n + 1) for n in range(count)]
    return Dataset.from_dict(
        {
            "question": [f"What is {a} + {b}?" for a, b in rows],
            "answer": [str(a + b) for a, b in rows],
        }
    )


def exact(completion: Any, answer: str, **_: Any) -> float:
    return float(completion[-1]["content"].strip() == answer)


def brief(completion: Any, **_: Any) -> float:
    return 1.0 / (1 + len(completion[-1]["content"]))


def single(system: str | None = None, test: bool = False) -> vf.Environment:
    """One question, one answer."""
    return vf.SingleTurnEnv(
        dataset=sums(),
        eval_dataset=sums(2) if test else None,
        system_prompt=system,
        rubric=vf.Rubric(funcs=[exact, brief], weights=[1.0, 0.25]),
    )


def broken_rubric() -> vf.Environment:
    def grumpy(completion: Any, **_: Any) -> float:
        raise ValueError("not today")

    return vf.SingleTurnEnv(dataset=sums(), rubric=vf.Rubric(funcs=[exact, grumpy]))


def grouped() -> vf.Environment:
    """The longest answer of a group wins."""

    def longest(completions: list[Any], **_: Any) -> list[float]:
        lengths = [len(completion[-1]["content"]) for completion in completions]
        return [float(length == max(lengths)) for length in lengths]

    return vf.SingleTurnEnv(dataset=sums(), rubric=vf.Rubric(funcs=[longest, exact]))


class Guessing(vf.MultiTurnEnv):
    """The answer is guessed until it is right. ``edit``: earlier guesses are not shown again."""

    def __init__(self, edit: bool, fail: str, **kwargs: Any) -> None:
        self.edit, self.fail = edit, fail
        super().__init__(**kwargs)

    async def setup_state(self, state: vf.State) -> vf.State:
        if self.fail == "setup":
            raise RuntimeError("no table is free")
        state["tries"] = 0
        return state

    async def env_response(self, messages: vf.Messages, state: vf.State, **_: Any) -> vf.Messages:
        state["tries"] += 1
        if self.fail == "step":
            raise vf.InfraError("the house is closed")
        if self.fail == "hang":
            await asyncio.Event().wait()
        said = str(messages[-1]["content"]).strip()
        if said == state["answer"]:
            end = [vf.UserMessage(content="Right.")]
            state["final_env_response"] = end
            return end
        return [vf.UserMessage(content=f"No, try again ({state['tries']}).")]

    async def get_prompt_messages(self, state: vf.State) -> vf.Messages:
        messages: vf.Messages = await super().get_prompt_messages(state)
        if not self.edit or len(messages) < 4:
            return messages
        return [*state["prompt"], messages[-1]]

    @vf.cleanup
    async def tidy(self, state: vf.State) -> None:
        CLOSED.append(state["answer"])


def guessing(edit: bool = False, fail: str = "", turns: int = 3) -> vf.Environment:
    def tries(state: vf.State) -> float:
        return -0.1 * float(state["tries"])

    rubric = vf.Rubric(funcs=[exact, tries], weights=[1.0, 1.0])
    return Guessing(edit=edit, fail=fail, dataset=sums(), rubric=rubric, max_turns=turns)


def tools() -> vf.Environment:
    """A sum that a tool computes."""

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return vf.ToolEnv(dataset=sums(), tools=[add], rubric=vf.Rubric(funcs=[exact]), max_turns=4)


KINDS: dict[str, Callable[..., vf.Environment]] = {
    "single": single,
    "broken_rubric": broken_rubric,
    "grouped": grouped,
    "guessing": guessing,
    "tools": tools,
}


def load_environment(kind: str = "single", **more: Any) -> vf.Environment:
    return KINDS[kind](**more)
