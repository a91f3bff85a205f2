"""Sources of the cookbook's data sets, played as the runtime plays them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from chat_support import tokenizer

from rlc.chat.turns import Observation
from rlc.data import DataRow, FilePlace
from rlc.envs.base import TaskKey
from rlc.envs.cookbook.source import CookbookSource, TokenHistory

T = TypeVar("T")
WORDS = "cookbook_builders:WordsBuilder"
ARITHMETIC = "tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticDatasetBuilder"
GUESS = "tinker_cookbook.recipes.multiplayer_rl.guess_number.env:GuessNumberDatasetBuilder"


def tokens(text: str) -> list[int]:
    encoded: list[int] = tokenizer().encode(text, add_special_tokens=False)
    return encoded


def source(
    builder: str = WORDS,
    split: str = "train",
    size: int = 2,
    rows: list[dict[str, Any]] | None = None,
    renderer: str = "qwen3_instruct",
    **args: Any,
) -> CookbookSource:
    place = FilePlace("sums.jsonl", 1)
    read = None if rows is None else [DataRow(row, place) for row in rows]
    made = (builder, args, split, size, tokenizer(), renderer)
    return CookbookSource(*made, rows=read)


def on(made: CookbookSource, coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that plays with a source, and close the source."""

    async def then_close() -> T:
        try:
            return await coroutine
        finally:
            await made.close()

    return asyncio.run(then_close())


def key(number: int, size: int = 2) -> TaskKey:
    return TaskKey(order=0, number=number, seed=0, size=size)


async def play(episode: Any, *replies: str) -> list[Observation]:
    """Replies through the source's own history, as the runtime hands them on."""
    history, seen = TokenHistory(tokenizer()), [episode.first]
    for reply in replies:
        history.observe(seen[-1])
        seen.append(await episode.play(history.reply(tokens(f"{reply}<|im_end|>"))))
    return seen
