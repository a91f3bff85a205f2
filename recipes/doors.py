"""Doors with buttons: an agent for `agent.rl`, written against the openai package and nothing else.

One of three buttons opens every door, nobody says which, and there are two tries.
"""

from __future__ import annotations

import json
from typing import Any

from openai import OpenAI

RIGHT = 2
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "press",
            "description": "Press 1 to 3.",
            "parameters": {
                "properties": {"n": {"type": "integer"}},
                "required": ["n"],
                "type": "object",
            },
        },
    }
]


def solve(run: Any) -> float:
    """Called by rlc with the record of a run: where to ask, and the row that is its task. Return
    the reward: 1 for the right button at once, half of one at last."""
    messages: list[Any] = [{"role": "user", "content": run.task["prompt"]}]
    with OpenAI(base_url=run.base_url, api_key=run.api_key) as client:
        for reward in (1.0, 0.5):
            said = client.chat.completions.create(model=run.model, messages=messages, tools=TOOLS)
            reply = said.choices[0].message
            if not reply.tool_calls:
                return 0.0  # it talks
            messages.append(reply)
            for call in reply.tool_calls:
                if json.loads(call.function.arguments)["n"] == RIGHT:
                    return reward
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "no"})
    return 0.0
