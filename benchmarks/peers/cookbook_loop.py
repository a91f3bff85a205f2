"""tinker-cookbook's own training loop on questions of a file, in the mode that is asked for.

    python benchmarks/peers/cookbook_loop.py URL LOGS MODE QUESTIONS GROUPS MEMBERS STEPS STALENESS

Its model is called `tiny` as on the other side; the tokenizer is that of the folder.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import chz
import tiny_model
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.rl import train
from tinker_cookbook.rl.problem_env import ProblemEnv, ProblemGroupBuilder
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder
from tinker_cookbook.tokenizer_utils import get_tokenizer

MAX_TOKENS = 16
# A server of the protocol has no defaults of its own for the clips.
PPO: dict[str, Any] = {
    "loss_fn": "ppo",
    "loss_fn_config": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
}


class Question(ProblemEnv):
    def __init__(self, renderer: Any, question: str, answer: str) -> None:
        super().__init__(renderer, format_coef=0.0)
        self.question, self.answer = question, answer

    def get_question(self) -> str:
        return self.question

    def check_answer(self, sample_str: str) -> bool:
        return sample_str.strip() == self.answer

    def check_format(self, sample_str: str) -> bool:
        return bool(sample_str)

    def get_reference_answer(self) -> str:
        return self.answer


@dataclass(frozen=True)
class Questions(RLDataset):
    rows: Sequence[dict[str, str]]
    renderer: Any
    groups: int
    members: int

    def __len__(self) -> int:
        return len(self.rows) // self.groups

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        rows = self.rows[index * self.groups : (index + 1) * self.groups]
        make = [partial(Question, self.renderer, row["question"], row["answer"]) for row in rows]
        return [ProblemGroupBuilder(env_thunk=one, num_envs=self.members) for one in make]


@chz.chz
class Builder(RLDatasetBuilder):
    path: str
    groups: int
    members: int

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        rows = [json.loads(line) for line in Path(self.path).read_text().splitlines()]
        renderer = get_renderer("qwen3_instruct", get_tokenizer("tiny"))
        return Questions(rows, renderer, self.groups, self.members), None


def config(url: str, mode: str, path: str, logs: str, sizes: tuple[int, int, int, int]) -> Any:
    groups, members, steps, staleness = sizes
    modes: dict[str, dict[str, Any]] = {
        "synchronous": {},
        "streamed": {
            "stream_minibatch_config": train.StreamMinibatchConfig(
                groups_per_batch=groups, num_minibatches=4
            )
        },
        "asynchronous": {
            "async_config": train.AsyncConfig(
                max_steps_off_policy=staleness, groups_per_batch=groups
            )
        },
    }
    return train.Config(
        recipe_name="questions",
        dataset_builder=Builder(path=path, groups=groups, members=members),
        **(PPO if mode == "asynchronous" else {"loss_fn": "importance_sampling"}),
        **settings(url, logs, steps),
        **modes[mode],
    )


def settings(url: str, logs: str, steps: int) -> dict[str, Any]:
    """Return the settings of a loop that does nothing but play and train."""
    return {
        "model_name": "tiny",
        "renderer_name": "qwen3_instruct",
        "learning_rate": 1e-4,
        "max_tokens": MAX_TOKENS,
        "lora_rank": 8,
        "eval_every": 0,
        "save_every": 0,
        "log_path": logs,
        "base_url": url,
        "max_steps": steps,
        "num_groups_to_log": 0,
        "rollout_json_export": False,
    }


def main() -> None:
    url, logs, mode, path, *sizes = sys.argv[1:]
    tiny_model.register()
    groups, members, steps, staleness = map(int, sizes)
    given = (groups, members, steps, staleness)
    asyncio.run(train.main(config(url, mode, path, logs, given)))


if __name__ == "__main__":
    main()
