"""A tiny model trained, through Tinker's SDK, to call one tool whatever it is asked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tinker
from serving_support import BASE, KEY
from tinker import types

from rlc.chat.prompts import fitting_renderer, opening, prompt_of

CALL = ("add", '{"a": 1}')
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {  # as a suite writes that of a Python function
            "type": "object",
            "properties": {"a": {"type": "number", "description": "The first."}},
            "required": ["a"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
_REPLY = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'


def train_tool_caller(url: str, steps: int = 80) -> str:
    """Return the path of a checkpoint for sampling; at most so many steps are needed."""
    with tinker.ServiceClient(base_url=url, api_key=KEY) as service:
        client = service.create_lora_training_client(BASE, rank=16, seed=1).result()
        tokenizer = client.get_tokenizer()
        renderer = fitting_renderer(tokenizer, "qwen3_instruct")
        asked = [{"role": "user", "content": "Spell the word apple backwards."}]
        shown = opening(
            renderer, asked, [{k: v for k, v in TOOL["function"].items() if k != "strict"}]
        )
        data = [_datum(prompt_of(renderer, shown)[0], tokenizer)]
        loss = math.inf
        for _ in range(steps):
            lost = client.forward_backward(data, "cross_entropy")
            rate = 0.01 if loss > 25 else 0.003
            client.optim_step(types.AdamParams(learning_rate=rate, grad_clip_norm=30.0)).result()
            loss = lost.result().metrics["loss:sum"]
            if loss < 0.3:
                break
        return client.save_weights_for_sampler("caller").result().path


def _datum(prompt: list[int], tokenizer: Any) -> types.Datum:
    reply = tokenizer.encode(f"{_REPLY}<|im_end|>", add_special_tokens=False)
    tokens = [*prompt, *reply]
    weights = np.array([0.0] * (len(prompt) - 1) + [1.0] * len(reply), dtype=np.float32)
    inputs: Any = {"target_tokens": np.array(tokens[1:]), "weights": weights}
    return types.Datum(types.ModelInput.from_ints(tokens[:-1]), inputs)
