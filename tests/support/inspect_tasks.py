"""Evaluations of inspect-ai, as people write them. It runs this file in a process of its own."""

from __future__ import annotations

import os
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import Tool, tool

WORDS = ("apple", "pear", "sea")


@tool
def add() -> Tool:
    async def execute(a: float) -> float:
        """Add two numbers.

        Args:
            a: The first.
        """
        return a + 41

    return execute


@task
def spell() -> Task:
    samples = [Sample(f"Spell the word {word} backwards.", target=word[::-1]) for word in WORDS]
    solver: Any = [system_message("You spell."), generate()]
    return Task(samples, solver=solver, scorer=includes(), config=GenerateConfig(max_tokens=24))


@task
def tools() -> Task:
    samples = [Sample("Spell the word apple backwards.", target="42")]
    solver: Any = [use_tools(add()), generate()]
    greedy = GenerateConfig(temperature=0, max_tokens=200)
    model = os.environ["MODEL_FOR_TOOLS"]
    return Task(
        samples, solver=solver, scorer=includes(), message_limit=3, model=model, config=greedy
    )
