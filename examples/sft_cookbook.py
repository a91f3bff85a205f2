"""Supervised training on Tinker with tinker-cookbook's own loop.

    rlc serve --model rlc/service/tiny/weights=tiny &     # or Tinker, with TINKER_API_KEY
    export TINKER_BASE_URL=http://127.0.0.1:8000 TINKER_API_KEY=tml-local
    python examples/sft_cookbook.py

Teaches a chat model to spell words backward, from pairs made on the spot.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import chz
import tinker
from tinker_cookbook.renderers import TrainOnWhat, get_renderer
from tinker_cookbook.supervised import train
from tinker_cookbook.supervised.data import conversation_to_datum
from tinker_cookbook.supervised.types import SupervisedDataset, SupervisedDatasetBuilder
from tinker_cookbook.tokenizer_utils import get_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Spelling(SupervisedDataset):
    """Words of random letters and the same words backward."""

    def __init__(self, builder: SpellingBuilder) -> None:
        self.renderer = get_renderer(builder.renderer_name, get_tokenizer(builder.model_name))
        self.builder = builder
        self.seed = 0

    def __len__(self) -> int:
        return self.builder.n_batches

    def set_epoch(self, seed: int = 0) -> None:
        self.seed = seed

    def get_batch(self, index: int) -> list[tinker.Datum]:
        generator = random.Random(f"{self.seed}/{index}")
        words = [
            "".join(generator.choices(LETTERS, k=generator.randint(3, 6)))
            for _ in range(self.builder.batch_size)
        ]
        return [self._datum(word) for word in words]

    def _datum(self, word: str) -> tinker.Datum:
        messages: Any = [
            {"role": "user", "content": f"Spell this word backward: {word}"},
            {"role": "assistant", "content": word[::-1]},
        ]
        what = TrainOnWhat.LAST_ASSISTANT_MESSAGE
        datum: tinker.Datum = conversation_to_datum(messages, self.renderer, 256, what)
        return datum


@chz.chz
class SpellingBuilder(SupervisedDatasetBuilder):
    model_name: str
    renderer_name: str
    batch_size: int
    n_batches: int

    def __call__(self) -> tuple[SupervisedDataset, SupervisedDataset | None]:
        return Spelling(self), None


@chz.chz
class Options:
    model_name: str = "rlc/service/tiny/weights"
    renderer_name: str = "qwen3_instruct"
    batch_size: int = 32
    n_batches: int = 30
    learning_rate: float = 1e-3
    lora_rank: int = 8
    log_path: str = "runs/sft-cookbook"


async def main(options: Options) -> None:
    config = train.Config(
        log_path=options.log_path,
        model_name=options.model_name,
        recipe_name="spelling",
        renderer_name=options.renderer_name,
        dataset_builder=SpellingBuilder(
            model_name=options.model_name,
            renderer_name=options.renderer_name,
            batch_size=options.batch_size,
            n_batches=options.n_batches,
        ),
        learning_rate=options.learning_rate,
        lora_rank=options.lora_rank,
        save_every=0,
        eval_every=0,
        infrequent_eval_every=0,
    )
    await train.main(config)


if __name__ == "__main__":
    asyncio.run(main(chz.entrypoint(Options)))
