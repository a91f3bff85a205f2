"""GEM on Tinker through tinker-cookbook's own training loop.

    rlc serve --model rlc/service/tiny/weights=tiny &     # or Tinker, with TINKER_API_KEY
    export TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-local
    python examples/gem_cookbook.py model_name=rlc/service/tiny/weights

An adapter makes GEM's environments the cookbook's, as GEM's guide describes. The cookbook loads the
tokenizer by the model's name, which is therefore a folder here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import chz
import gem
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.rl import train
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, RLDataset, RLDatasetBuilder, StepResult
from tinker_cookbook.tokenizer_utils import get_tokenizer


class GemEnv(Env):
    """One episode of a GEM environment as a chat."""

    def __init__(self, env_id: str, seed: int, renderer: Any, instruction: str) -> None:
        self.env = gem.make(env_id)
        self.renderer = renderer
        text, info = self.env.reset(seed=seed)
        self.messages = [self._user(f"{text}\n{instruction}", info)]

    async def initial_observation(self) -> Any:
        return self.renderer.build_generation_prompt(self.messages), self._stop()

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        message, _ = self.renderer.parse_response(action)
        text, reward, terminated, truncated, info = self.env.step(str(message["content"]))
        done = bool(terminated or truncated)
        self.messages += [message, self._user(text, info)]
        prompt = self.renderer.build_generation_prompt(self.messages)
        return StepResult(float(reward), done, prompt, self._stop())

    def _stop(self) -> Any:
        return self.renderer.get_stop_sequences()

    def _user(self, text: str, info: dict[str, Any]) -> Any:
        shown = f"{info.get('prefix', '')}{text}{info.get('suffix', '')}"
        return {"role": "user", "content": shown}


@dataclass(frozen=True)
class GemGroup(EnvGroupBuilder):
    """Episodes that start from the same seed, so that they can be compared."""

    env_id: str
    seed: int
    size: int
    model_name: str
    renderer_name: str
    instruction: str

    async def make_envs(self) -> Sequence[Env]:
        renderer = get_renderer(self.renderer_name, get_tokenizer(self.model_name))
        return [
            GemEnv(self.env_id, self.seed, renderer, self.instruction) for _ in range(self.size)
        ]

    def logging_tags(self) -> list[str]:
        return [self.env_id.replace(":", "_")]


@dataclass(frozen=True)
class GemDataset(RLDataset):
    builder: GemDatasetBuilder

    def __len__(self) -> int:
        return self.builder.n_batches

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        b = self.builder
        first = index * b.groups_per_batch
        return [
            GemGroup(b.env_id, seed, b.group_size, b.model_name, b.renderer_name, b.instruction)
            for seed in range(first, first + b.groups_per_batch)
        ]


@chz.chz
class GemDatasetBuilder(RLDatasetBuilder):
    env_id: str
    model_name: str
    renderer_name: str
    instruction: str
    groups_per_batch: int
    group_size: int
    n_batches: int

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        return GemDataset(self), None


@chz.chz
class Options:
    model_name: str = "rlc/service/tiny/weights"
    env_id: str = "rg:spell_backward"
    renderer_name: str = "qwen3_instruct"
    instruction: str = "Put your answer inside \\boxed{}."
    groups_per_batch: int = 16
    group_size: int = 8
    learning_rate: float = 1e-3
    max_tokens: int = 16
    lora_rank: int = 8
    n_batches: int = 30
    log_path: str = "runs/gem-cookbook"


async def main(options: Options) -> None:
    config = train.Config(
        model_name=options.model_name,
        recipe_name="gem",
        dataset_builder=GemDatasetBuilder(
            env_id=options.env_id,
            model_name=options.model_name,
            renderer_name=options.renderer_name,
            instruction=options.instruction,
            groups_per_batch=options.groups_per_batch,
            group_size=options.group_size,
            n_batches=options.n_batches,
        ),
        renderer_name=options.renderer_name,
        learning_rate=options.learning_rate,
        max_tokens=options.max_tokens,
        lora_rank=options.lora_rank,
        eval_every=0,
        save_every=0,
        log_path=options.log_path,
    )
    await train.main(config)


if __name__ == "__main__":
    asyncio.run(main(chz.entrypoint(Options)))
