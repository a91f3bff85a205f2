"""The agent of recipe.rl: it asks for a word, and once more if it does not like it.

It is a program like any other that talks to OpenAI's API; tools, several conversations and other
agents are its own affair.
"""

from typing import Any

from openai import OpenAI


def solve(run: Any) -> float:
    """Called by rlc for each episode. Return the reward.

    ``run`` has the address of the episode's endpoint, and the ``task``, a row of the data.
    """
    messages: list[Any] = [{"role": "user", "content": run.task["prompt"]}]
    with OpenAI(base_url=run.base_url, api_key=run.api_key) as client:
        first = ask(client, run.model, messages)
        if share(first, run.task["letter"]) > 0.5:
            return share(first, run.task["letter"])
        messages.append({"role": "user", "content": f"More of the letter {run.task['letter']}."})
        return 0.9 * share(ask(client, run.model, messages), run.task["letter"])


def ask(client: OpenAI, model: str, messages: list[Any]) -> str:
    """Ask for a reply, and put it at the end of the conversation."""
    said = client.chat.completions.create(model=model, messages=messages)
    reply = said.choices[0].message
    messages.append(reply)
    return reply.content or ""


def share(reply: str, letter: str) -> float:
    """How much of a reply is the letter; nothing for a reply of a single one."""
    word = reply.strip().lower()
    return word.count(letter) / len(word) if len(word) > 1 else 0.0
