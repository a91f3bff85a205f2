"""tinker-cookbook's own on-policy distillation, `distillation/train_on_policy.py`, on prompts of a
file.

    python benchmarks/peers/cookbook_distillation.py URL LOGS PROMPTS TEACHER GROUPS MEMBERS STEPS

The teacher is a path of saved weights, and the only reward what it thinks of each token.
"""

# mypy: disable-error-code="misc"

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import chz
import tiny_model
from tinker_cookbook.distillation import train_on_policy
from tinker_cookbook.distillation.datasets import (
    DistillationDatasetConfig,
    PromptOnlyDataset,
    TeacherConfig,
)
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.rl.types import RLDatasetBuilder
from tinker_cookbook.tokenizer_utils import get_tokenizer


@chz.chz
class Prompts(RLDatasetBuilder):
    path: str
    groups: int
    members: int

    async def __call__(self) -> tuple[PromptOnlyDataset, None]:
        rows = [json.loads(line) for line in Path(self.path).read_text().splitlines()]
        tokenizer = get_tokenizer("tiny")
        renderer = get_renderer("qwen3_instruct", tokenizer)
        prompts = [row["prompt"] for row in rows]
        return PromptOnlyDataset(prompts, self.groups, self.members, renderer, tokenizer), None


def main() -> None:
    url, logs, path, teacher, *sizes = sys.argv[1:]
    groups, members, steps = map(int, sizes)
    tiny_model.register()
    data = DistillationDatasetConfig(
        dataset_builder=Prompts(path=path, groups=groups, members=members),
        teacher_config=TeacherConfig(base_model="tiny", load_checkpoint_path=teacher),
        groups_per_batch=groups,
    )
    config = train_on_policy.Config(
        learning_rate=1e-4,
        dataset_configs=[data],
        model_name="tiny",
        recipe_name="prompts",
        renderer_name="qwen3_instruct",
        max_tokens=16,
        kl_penalty_coef=1.0,
        lora_rank=8,
        log_path=logs,
        base_url=url,
        eval_every=0,
        save_every=0,
        max_steps=steps,
    )
    asyncio.run(train_on_policy.main(config))


if __name__ == "__main__":
    main()
