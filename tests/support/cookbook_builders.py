"""Small data sets in the cookbook's own types, as a user would write them."""

# mypy: disable-error-code="misc"

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import chz
from tinker import ModelInput
from tinker.types import ImageChunk
from tinker.types.dmel_chunk import DmelChunk
from tinker_cookbook.renderers import get_renderer, get_text_content
from tinker_cookbook.rl.problem_env import ProblemEnv, ProblemGroupBuilder
from tinker_cookbook.rl.types import (
    Env,
    EnvGroupBuilder,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
)
from tinker_cookbook.tokenizer_utils import get_tokenizer

cleaned: list[str] = []


class Echo(Env):
    """Say a word back, twice. A reward of 1, an int, for each time."""

    def __init__(self, word: str, renderer: Any, member: int) -> None:
        self.word = word
        self.renderer = renderer
        self.member = member
        self.messages = [{"role": "user", "content": f"Say {word}."}]

    def prompt(self) -> ModelInput:
        made: ModelInput = self.renderer.build_generation_prompt(self.messages)
        return made

    async def initial_observation(self) -> Any:
        return self.prompt(), self.renderer.get_stop_sequences()

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        message, _ = self.renderer.parse_response(action)
        said = get_text_content(message)
        if said == "fall over":
            raise RuntimeError("fell over")
        if said == "block":
            time.sleep(0.2)
        self.messages += [message, {"role": "user", "content": "Once more."}]
        done = len(self.messages) > 3
        return StepResult(
            reward=int(self.word in said),
            episode_done=done,
            next_observation=ModelInput.empty() if done else self.prompt(),
            next_stop_condition=self.renderer.get_stop_sequences(),
            metrics={"finished": float(extra["stop_reason"] == "stop")},
        )


class OldEcho(Echo):
    """From before `step` received the reason why sampling stopped."""

    async def step(self, action: list[int]) -> StepResult:  # type: ignore[override]
        return await super().step(action, extra={"stop_reason": "stop"})


class Words(EnvGroupBuilder):
    env: Any = Echo

    def __init__(self, word: str, renderer: Any, size: int) -> None:
        self.word, self.renderer, self.size = word, renderer, size

    async def make_envs(self) -> Sequence[Env]:
        return [self.env(self.word, self.renderer, member) for member in range(self.size)]

    async def cleanup(self) -> None:
        cleaned.append(self.word)

    def logging_tags(self) -> list[str]:
        return ["echo", self.word]


class OldWords(Words):
    env = OldEcho


class Rivals(Words):
    """The longest episode of those that are compared gets one more."""

    async def compute_group_rewards(self, trajectory_group: Any, env_group: Any) -> Any:
        lengths = [sum(len(t.ac.tokens) for t in one.transitions) for one in trajectory_group]
        best = lengths.index(max(lengths))
        compared = {"compared": float(len(env_group))}
        return [(float(n == best), compared) for n in range(len(lengths))]


class Unequal(Words):
    """Each member is asked for a word of its own."""

    async def make_envs(self) -> Sequence[Env]:
        return [Echo(f"{self.word}{n}", self.renderer, n) for n in range(self.size)]


class Waits(Words):
    """A game of two: the second waits for the first to move."""

    async def make_envs(self) -> Sequence[Env]:
        envs = await super().make_envs()
        envs[1].initial_observation = asyncio.Event().wait
        return envs


class Pictured(Echo):
    """Shows a picture of the word before each question; both turns show the first."""

    def prompt(self) -> ModelInput:
        told = super().prompt()
        picture = ImageChunk(data=self.word.encode(), format="png", expected_tokens=3)
        return ModelInput(chunks=[picture, *told.chunks])


class Pictures(Words):
    env = Pictured


class Spoken(Echo):
    """Says the word before each question, as the tensor of a sound: type, dimensions, content."""

    def prompt(self) -> ModelInput:
        said = bytes([0, 1, len(self.word)]) + self.word.encode()
        return ModelInput(chunks=[DmelChunk(dmel=said), *super().prompt().chunks])


class Sounds(Words):
    env = Spoken


class Table:
    """Whose turn it is, and what was said."""

    def __init__(self, players: int) -> None:
        self.players, self.moves = players, list[str]()
        self.news = asyncio.Condition()

    async def turn_of(self, player: int) -> None:
        async with self.news:
            await self.news.wait_for(lambda: len(self.moves) % self.players == player)

    async def move(self, said: str) -> None:
        async with self.news:
            self.moves.append(said)
            self.news.notify_all()


class Seat(Env):
    """One player at a table: says something twice, hears the others in between. What is said
    later wins against what was said first, if it is not the same."""

    def __init__(self, table: Table, player: int, renderer: Any) -> None:
        self.table, self.player, self.renderer, self.said = table, player, renderer, 0

    async def initial_observation(self) -> Any:
        await self.table.turn_of(self.player)
        return self.prompt(), self.renderer.get_stop_sequences()

    def prompt(self) -> ModelInput:
        heard = " ".join(self.table.moves) or "nothing"
        messages = [{"role": "user", "content": f"Player {self.player}, you heard {heard}."}]
        made: ModelInput = self.renderer.build_generation_prompt(messages)
        return made

    async def step(self, action: list[int], *, extra: Any = None) -> StepResult:
        message, _ = self.renderer.parse_response(action)
        if message["content"] == "fall over":
            raise RuntimeError("fell over")
        won = bool(self.table.moves) and message["content"] != self.table.moves[-1]
        await self.table.move(message["content"])
        self.said += 1
        done = self.said == 2
        if not done:
            await self.table.turn_of(self.player)
        return StepResult(
            reward=float(won),
            episode_done=done,
            next_observation=ModelInput.empty() if done else self.prompt(),
            next_stop_condition=self.renderer.get_stop_sequences(),
            metrics={},
        )


class Tables(Words):
    """A game that all members play with each other."""

    async def make_envs(self) -> Sequence[Env]:
        table = Table(self.size)
        return [Seat(table, player, self.renderer) for player in range(self.size)]


class Data(RLDataset):
    def __init__(self, batches: list[list[EnvGroupBuilder]]) -> None:
        self.batches = batches
        self.asked: list[int] = []

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        self.asked.append(index)
        return self.batches[index]

    def __len__(self) -> int:
        return len(self.batches)


GROUPS = {
    "words": Words,
    "old": OldWords,
    "rivals": Rivals,
    "unequal": Unequal,
    "waits": Waits,
    "pictures": Pictures,
    "sounds": Sounds,
    "tables": Tables,
}


@chz.chz
class WordsBuilder(RLDatasetBuilder):
    """Five words in batches of two."""

    model_name_for_tokenizer: str
    renderer_name: str
    group_size: int
    kind: str = "words"

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        renderer = get_renderer(self.renderer_name, get_tokenizer(self.model_name_for_tokenizer))
        made = [
            GROUPS[self.kind](word, renderer, self.group_size)
            for word in ("one", "two", "three", "four", "five")
        ]
        return Data([made[:2], made[2:4], made[4:]]), Data([made[:1]])


@chz.chz
class PairsBuilder(RLDatasetBuilder):
    """Groups of two, also if another size is asked for; no test set."""

    renderer_name: str
    model_name: str

    async def __call__(self) -> tuple[RLDataset, None]:
        renderer = get_renderer(self.renderer_name, get_tokenizer(self.model_name))
        return Data([[Words("pair", renderer, 2)]]), None


@chz.chz
class BrokenBuilder(RLDatasetBuilder):
    how: str = "raises"

    async def __call__(self) -> Any:
        if self.how == "raises":
            raise OSError("the hub is away")
        return Data([]), None


class Sums(ProblemEnv):
    """The four methods, and nothing else."""

    def __init__(self, question: str, answer: str, renderer: Any) -> None:
        super().__init__(renderer)
        self.question, self.answer = question, answer

    def get_question(self) -> str:
        return self.question

    def check_answer(self, sample_str: str) -> bool:
        return self.answer in sample_str

    def check_format(self, sample_str: str) -> bool:
        return sample_str.strip() != ""

    def get_reference_answer(self) -> str:
        return self.answer


class Unfinished(ProblemEnv):
    """Lacks three of the four."""

    def get_question(self) -> str:
        return "What is 1 + 1?"


class SimpleDataset(RLDataset):
    """As the data set of the cookbook's tutorial on its abstractions."""

    def __init__(
        self, problems: list[tuple[str, str]], batch_size: int, group_size: int, renderer: Any
    ) -> None:
        self.problems = problems
        self.batch_size = batch_size
        self.group_size = group_size
        self.renderer = renderer

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        start = (index * self.batch_size) % len(self.problems)
        batch_problems = [
            self.problems[(start + i) % len(self.problems)] for i in range(self.batch_size)
        ]
        return [
            ProblemGroupBuilder(
                env_thunk=partial(Sums, problem, answer, self.renderer), num_envs=self.group_size
            )
            for problem, answer in batch_problems
        ]

    def __len__(self) -> int:
        return len(self.problems) // self.batch_size


def made_set(num_envs: int, tokenizer: Any) -> RLDataset:
    renderer = get_renderer("qwen3_instruct", tokenizer)
    return SimpleDataset([("What is 1 + 2?", "3")], 1, num_envs, renderer)


async def both_sets(group_size: int, renderer: Any) -> tuple[RLDataset, RLDataset]:
    sets = ([("What is 1 + 2?", "3")], [("What is 2 + 2?", "4")])
    train, test = (SimpleDataset(one, 1, group_size, renderer) for one in sets)
    return train, test


not_a_builder = 7
