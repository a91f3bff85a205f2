"""Functions of other libraries, taken out of their files, and batches as they want them."""

from __future__ import annotations
import __future__

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from dialect_batches import Batch, Values


def taken(file: Path, *names: str, **namespace: Any) -> SimpleNamespace:
    """Functions and classes of a file, without its imports and their decorators."""
    space = {"torch": torch, "np": np, "defaultdict": defaultdict, **namespace}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names:
            node.decorator_list = [d for d in node.decorator_list if "static" in ast.unparse(d)]
            run([node], file, space)
    return SimpleNamespace(**{name: space[name] for name in names})


def run(body: list[ast.stmt], file: Path, space: dict[str, Any]) -> None:
    """Run statements without evaluating their annotations."""
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module(body, []), str(file), "exec", flags, dont_inherit=True), space)


def rows(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards and mask [R, T]: a turn's reward is on its last action token, and two tokens that the
    policy did not write come before the next turn."""
    length = max(sum(r.tokens) + 2 * len(r.tokens) for r in batch)
    rewards = torch.zeros(len(batch), length, dtype=torch.float64)
    mask = torch.zeros_like(rewards)
    for row, rollout in enumerate(batch):
        for start, tokens, reward in zip(
            starts(rollout), rollout.tokens, rollout.rewards, strict=True
        ):
            mask[row, start : start + tokens] = 1
            rewards[row, start + tokens - 1] = reward
    return rewards, mask


def starts(rollout: Any) -> Iterator[int]:
    at = 0
    for tokens in rollout.tokens:
        yield at
        at += tokens + 2


def by_turn(batch: Batch, advantages: torch.Tensor) -> Values:
    """The value of each turn's tokens, which is one."""
    values: Values = []
    for row, rollout in enumerate(batch):
        turns = []
        for start, tokens in zip(starts(rollout), rollout.tokens, strict=True):
            of_turn = advantages[row, start : start + tokens]
            assert torch.allclose(of_turn, of_turn[0])
            turns.append(float(of_turn[0]))
        values.append(turns)
    return values


def spread(batch: Batch, values: Any) -> Values:
    return [[float(v)] * len(r.tokens) for v, r in zip(values, batch, strict=True)]


def totals(batch: Batch) -> list[float]:
    return [sum(rollout.rewards) for rollout in batch]


def square(batch: Batch) -> int:
    """The size that all groups have; 0 if there is none. Members follow one another."""
    groups = [rollout.group for rollout in batch]
    sizes = {groups.count(group) for group in groups}
    return sizes.pop() if len(sizes) == 1 else 0


def members(batch: Batch) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for at, rollout in enumerate(batch):
        groups.setdefault(rollout.group, []).append(at)
    return list(groups.values())
