"""Builders of tinker-cookbook's kinds whose prompts are text, for those that need more."""

# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tinker_cookbook.renderers import TrainOnWhat, get_renderer
from tinker_cookbook.rl.problem_env import ProblemEnv, ProblemGroupBuilder
from tinker_cookbook.rl.types import RLDataset
from tinker_cookbook.supervised.data import conversation_to_datum
from tinker_cookbook.supervised.types import SupervisedDataset
from tinker_cookbook.tokenizer_utils import get_tokenizer

WORDS = ("cat", "dog", "sun", "map")


class Word(ProblemEnv):
    """A prompt of text in the place of a sound, or of a question for an index."""

    def __init__(self, word: str, renderer: Any) -> None:
        super().__init__(renderer)
        self.word = word

    def get_question(self) -> str:
        return f"Say {self.word}."

    def check_answer(self, sample_str: str) -> bool:
        return len(sample_str) % 2 == 0  # so that replies differ in what they earn

    def check_format(self, sample_str: str) -> bool:
        return bool(sample_str)

    def get_reference_answer(self) -> str:
        return self.word


class Words(RLDataset):
    def __init__(self, renderer: Any, size: int) -> None:
        self.renderer, self.size = renderer, size

    def get_batch(self, index: int) -> Sequence[ProblemGroupBuilder]:
        return [
            ProblemGroupBuilder(partial(Word, word, self.renderer), self.size) for word in WORDS
        ]

    def __len__(self) -> int:
        return 2


class PromptsBuilder:
    """Takes any arguments; what a recipe decides elsewhere is filled in."""

    def __init__(self, model_name: str, group_size: int, renderer_name: str, **_: Any) -> None:
        self.renderer = get_renderer(renderer_name, get_tokenizer(model_name))
        self.size = group_size

    async def __call__(self) -> tuple[Words, None]:
        return Words(self.renderer, self.size), None


class Examples(SupervisedDataset):
    """A few chats of text, in one batch."""

    def __init__(self, renderer: Any) -> None:
        self.renderer = renderer

    def get_batch(self, index: int) -> list[Any]:
        def chat(word: str) -> list[Any]:
            said = {"role": "user", "content": f"Say {word}."}
            return [said, {"role": "assistant", "content": word}]

        train_on = TrainOnWhat.LAST_ASSISTANT_MESSAGE
        return [conversation_to_datum(chat(w), self.renderer, 512, train_on) for w in WORDS]

    def __len__(self) -> int:
        return 1


class ExamplesBuilder:
    """What imitates text in the place of photos and sounds. Takes any arguments."""

    def __init__(
        self,
        model_name: str,
        renderer_name: str,
        batch_size: int,
        **_: Any,
    ) -> None:
        self.renderer = get_renderer(renderer_name, get_tokenizer(model_name))

    def __call__(self) -> tuple[Examples, Examples]:
        return Examples(self.renderer), Examples(self.renderer)
