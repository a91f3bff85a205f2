"""tinker-cookbook's own asynchronous loop on a game of several turns.

    python benchmarks/peers/cookbook_rounds.py URL LOGS GROUPS MEMBERS STEPS STALENESS

As `cookbook_loop.py`, which plays one turn. Versions from 0.6 on say the loss beside the staleness.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chz
import tiny_model
from cookbook_loop import PPO, settings
from tinker_cookbook.renderers import get_renderer, get_text_content
from tinker_cookbook.rl import train
from tinker_cookbook.rl.types import (
    Env,
    EnvGroupBuilder,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
)
from tinker_cookbook.tokenizer_utils import get_tokenizer

sys.path.append(str(Path(__file__).parents[1]))

from rounds_game import Rounds


@dataclass
class Game(Env):
    """Of tokens and not of messages: their adapter renders in threads, which this version's fast
    tokenizers do not bear."""

    renderer: Any
    game: Rounds
    said: list[Any] = field(default_factory=list)

    async def initial_observation(self) -> Any:
        self.said = [{"role": "user", "content": self.game.first}]
        return self._prompt(), self.renderer.get_stop_sequences()

    async def step(self, action: Any, *, extra: Any = None) -> StepResult:  # noqa: ARG002
        message, _ = self.renderer.parse_response(action)
        text, reward, done = self.game.said(get_text_content(message))
        self.said = [*self.said, message, {"role": "user", "content": text}]
        return StepResult(reward, done, self._prompt(), self.renderer.get_stop_sequences())

    def _prompt(self) -> Any:
        return self.renderer.build_generation_prompt(self.said)


@dataclass(frozen=True)
class Group(EnvGroupBuilder):
    number: int
    renderer: Any
    members: int

    async def make_envs(self) -> Sequence[Env]:
        return [Game(self.renderer, Rounds(self.number)) for _ in range(self.members)]


@dataclass(frozen=True)
class Groups(RLDataset):
    count: int
    renderer: Any
    groups: int
    members: int

    def __len__(self) -> int:
        return self.count

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        numbers = range(index * self.groups, (index + 1) * self.groups)
        return [Group(number, self.renderer, self.members) for number in numbers]


@chz.chz
class Builder(RLDatasetBuilder):
    count: int
    groups: int
    members: int

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        renderer = get_renderer("qwen3_instruct", get_tokenizer("tiny"))
        return Groups(self.count, renderer, self.groups, self.members), None


def config(url: str, logs: str, groups: int, members: int, steps: int, staleness: int) -> Any:
    takes_loss = "loss_fn" in train.AsyncConfig.__annotations__
    loss = {"loss_fn": PPO["loss_fn"]}
    return train.Config(
        recipe_name="rounds",
        dataset_builder=Builder(count=steps + 4, groups=groups, members=members),
        loss_fn_config=PPO["loss_fn_config"],
        async_config=train.AsyncConfig(
            max_steps_off_policy=staleness,
            groups_per_batch=groups,
            **(loss if takes_loss else {}),
        ),
        **({} if takes_loss else loss),
        **settings(url, logs, steps),
    )


def main() -> None:
    url, logs, *sizes = sys.argv[1:]
    tiny_model.register()
    groups, members, steps, staleness = map(int, sizes)
    asyncio.run(train.main(config(url, logs, groups, members, steps, staleness)))


if __name__ == "__main__":
    main()
