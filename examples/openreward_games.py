"""Two small environments for OpenReward's own server, to play on this machine.

    python examples/openreward_games.py [--port 8462]

`Guess` is a game with a tool: one of three buttons opens every door, nobody says which, and there
are two tries. `Reverse` has a terminal tool: the model's plain message is its answer.

    python examples/openreward_games.py --rows FILE

writes turns of `Guess` as they look to a model, by a player who knows the form of a call and
presses at random: rows to imitate before reinforcement learning.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from openreward import sanitize_tool_schema
from openreward.environments import (
    Environment,
    Server,
    TextBlock,
    ToolOutput,
    terminal,
    tool,
)
from pydantic import BaseModel

BUTTONS, RIGHT, TRIES = 3, 2, 2
DOORS = {"train": ("front", "back", "side"), "test": ("cellar", "garden")}
TURNS = 240  # that are written as rows
WORDS = "apple bread chair dance eagle flame grape house index jelly knife lemon music night"


class Number(BaseModel):
    n: int


class Answer(BaseModel):
    text: str


class Guess(Environment):
    """Each door is a task. The right button gives a point at once, and half of one at last."""

    def __init__(self, task_spec: Mapping[str, Any], secrets: dict[str, str]) -> None:
        super().__init__(task_spec, secrets)
        self.left = TRIES

    @classmethod
    def list_splits(cls) -> Sequence[str]:
        return list(DOORS)

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[Mapping[str, Any]]:
        return [{"door": door} for door in DOORS[split]]

    def get_prompt(self) -> Sequence[TextBlock]:
        return [TextBlock(text=f"Open the {self.task_spec['door']} door.")]

    @tool
    def press(self, button: Number) -> ToolOutput:
        """Press 1 to 3."""
        self.left -= 1
        if button.n == RIGHT:
            reward = 1.0 if self.left else 0.5
            return ToolOutput(blocks=[TextBlock(text="click")], reward=reward, finished=True)
        return ToolOutput(blocks=[TextBlock(text="no")], reward=0.0, finished=not self.left)


class Reverse(Environment):
    """A word to write backward: the share of letters that are right."""

    @classmethod
    def list_splits(cls) -> Sequence[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[Mapping[str, Any]]:  # noqa: ARG003
        return [{"word": word} for word in WORDS.split()]

    def get_prompt(self) -> Sequence[TextBlock]:
        word = self.task_spec["word"]
        task = f"Spell this word backward (example: sun -> nus): {word}"
        return [TextBlock(text=f"{task}\nPut your answer inside \\boxed{{}}.")]

    @terminal
    @tool
    def answer(self, given: Answer) -> ToolOutput:
        """The word, backward."""
        wanted = str(self.task_spec["word"])[::-1]
        said = given.text.rpartition("\\boxed{")[2].partition("}")[0]
        right = sum(a == b for a, b in zip(said, wanted, strict=False))
        reward = right / max(len(said), len(wanted))
        return ToolOutput(blocks=[TextBlock(text=wanted)], reward=reward, finished=True)


def random_games(turns: int, rng: random.Random) -> Iterator[dict[str, Any]]:
    """So many turns of games, each with the conversation before it; the buttons are random."""
    schema = sanitize_tool_schema(Number.model_json_schema(), "openai")
    tools = [{"name": "press", "description": Guess.press.__doc__, "parameters": schema}]
    game, messages = Guess({}, {}), list[dict[str, Any]]()
    for _ in range(turns):
        if not messages:
            game = Guess(rng.choice(Guess.list_tasks("train")), {})
            messages = [{"role": "user", "content": game.get_prompt()[0].text}]
        number = rng.randint(1, BUTTONS)
        call = {"name": "press", "arguments": {"n": number}}
        reply = f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
        yield {"tools": tools, "prompt": messages, "reply": reply}
        told = game.press(Number(n=number))
        function = {"name": "press", "arguments": json.dumps(call["arguments"])}
        called = {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}
        result = {"role": "tool", "name": "press", "content": told.blocks[0].text}
        messages = [] if told.finished else [*messages, called, result]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8462)
    parser.add_argument("--rows", type=Path)
    args = parser.parse_args()
    if args.rows:
        rng = random.Random(1)
        rows = map(json.dumps, random_games(TURNS, rng))
        args.rows.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        return
    app = Server([Guess, Reverse]).app
    uvicorn.run(app, host="127.0.0.1", port=args.port, log_level="warning", timeout_keep_alive=60)


if __name__ == "__main__":
    main()
