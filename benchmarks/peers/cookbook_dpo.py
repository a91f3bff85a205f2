"""tinker-cookbook's own DPO loop, `preference/train_dpo.py`, on pairs of a file.

    python benchmarks/peers/cookbook_dpo.py URL LOGS PAIRS BATCH

Once through the pairs, whose rows have a `prompt`, a `chosen` and a `rejected` reply.
"""

# mypy: disable-error-code="misc"

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import chz
import datasets
import tiny_model
from tinker_cookbook.preference import train_dpo
from tinker_cookbook.preference.dpo_datasets import DPODatasetBuilderFromComparisons
from tinker_cookbook.preference.preference_datasets import ComparisonDatasetBuilder
from tinker_cookbook.preference.types import Comparison, LabeledComparison
from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig


@chz.chz
class Pairs(ComparisonDatasetBuilder):
    path: str

    def get_train_and_test_datasets(self) -> tuple[Any, None]:
        rows = [json.loads(line) for line in Path(self.path).read_text().splitlines()]
        return datasets.Dataset.from_list(rows), None

    def example_to_labeled_comparison(self, example: dict[str, str]) -> LabeledComparison:
        def reply(name: str) -> list[Any]:
            return [{"role": "assistant", "content": example[name]}]

        prompt: list[Any] = [{"role": "user", "content": example["prompt"]}]
        return LabeledComparison(Comparison(prompt, reply("chosen"), reply("rejected")), "A")


def main() -> None:
    url, logs, path, batch = sys.argv[1:]
    tiny_model.register()
    common = ChatDatasetBuilderCommonConfig(
        model_name_for_tokenizer="tiny",
        renderer_name="qwen3_instruct",
        max_length=2048,
        batch_size=int(batch),
    )
    config = train_dpo.Config(
        log_path=logs,
        model_name="tiny",
        recipe_name="pairs",
        dataset_builder=DPODatasetBuilderFromComparisons(
            common_config=common, comparison_builder=Pairs(path=path)
        ),
        renderer_name="qwen3_instruct",
        learning_rate=1e-4,
        lr_schedule="constant",
        dpo_beta=0.1,
        lora_rank=8,
        base_url=url,
        save_every=0,
        eval_every=0,
        infrequent_eval_every=0,
    )
    train_dpo.main(config)


if __name__ == "__main__":
    main()
