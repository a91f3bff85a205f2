"""Demonstrations: episodes that oracles play in the real environments, in a run's own format.

Clean ones teach the skill. Noisy ones, played with planted slips, bring the sampled reward down
to where a short reinforcement-learning run has something to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from attrs import Factory, frozen
from transformers import PreTrainedTokenizerFast

from rlc.envs.gem.oracles import binary_search, boxed, consistent_code, spell_backward, sudoku_move
from tools.tiny.chatml import BOXED, framed, user_turn
from tools.tiny.games import Game
from tools.tiny.slips import Slips, slip

SEED_RANGE = 2**31


@frozen
class Task:
    """An environment, how its prompt is written, who plays it, and how many episodes."""

    env_id: str
    oracle: Callable[[Sequence[str]], str]
    slips: Slips
    clean: int
    noisy: int
    args: dict[str, Any] = Factory(dict)
    instruction: str = ""
    frame: str | None = None  # None: a chat; else one prompt a turn with the whole history


@frozen
class Turn:
    """The model's prompt, up to its own turn, and the reply that it is taught."""

    prompt: str
    reply: str


@frozen
class Demonstration:
    """One played episode (a chat) or one turn of it (a frame)."""

    turns: tuple[Turn, ...]
    reward: float  # of the whole episode


_GUESS = Slips(forget_box=0.12, out_of_range=0.05, heedless=0.42)
_CODE = Slips(forget_box=0.05, heedless=0.40)
_MOVE = Slips(forget_box=0.02, heedless=0.25)
_SPELL = Slips(heedless=0.38, wrong_letter=0.25)
_WORDS: dict[str, Any] = {"seed": 20_251_001, "size": 200_000}  # not the 500 that a run asks

TASKS = (
    Task("game:GuessTheNumber-v0-easy", binary_search, _GUESS, 5_000, 5_000),
    Task("game:GuessTheNumber-v0-random", binary_search, _GUESS, 1_500, 500),
    Task("game:GuessTheNumber-v0-easy", binary_search, _GUESS, 800, 400, frame="qwen3_game"),
    Task("rg:spell_backward", spell_backward, _SPELL, 20_000, 8_000, _WORDS, BOXED),
    Task("rg:spell_backward", spell_backward, _SPELL, 3_000, 1_000, _WORDS, "", "qwen3_general"),
    Task("game:Mastermind-v0-easy", consistent_code, _CODE, 2_000, 1_000),
    Task("game:Sudoku-v0-easy", sudoku_move, _MOVE, 400, 120),
    Task("game:Sudoku-v0-easy", sudoku_move, _MOVE, 250, 80, frame="qwen3_game"),
)


def play(task: Task, noisy: bool, seed: int) -> Iterator[Demonstration]:
    """Play the task's episodes; the same ``seed`` plays the same ones."""
    game = Game(task.env_id, concat=task.frame is not None, **task.args)
    rng = Random(f"{seed} {task.env_id} {task.frame} {noisy}")
    for _ in range(task.noisy if noisy else task.clean):
        turns, reward = play_episode(task, game, noisy, rng)
        groups = [turns] if task.frame is None else [[turn] for turn in turns]
        for group in groups:
            yield Demonstration(tuple(group), reward)


def play_episode(task: Task, game: Game, noisy: bool, rng: Random) -> tuple[list[Turn], float]:
    """Play one episode, and return the turns and the sum of the rewards."""
    texts = [game.reset(rng.randrange(SEED_RANGE))]
    turns: list[Turn] = []
    reward, done = 0.0, False
    while not done:
        answer = task.oracle(texts)
        reply = slip(task.env_id, answer, texts, task.slips, rng) if noisy else boxed(answer)
        turns.append(Turn(prompt_after(task, texts), reply))
        seen = game.step(reply)
        texts.append(seen.text)
        reward, done = reward + seen.reward, seen.done
    return turns, reward


def prompt_after(task: Task, texts: Sequence[str]) -> str:
    """Return what the newest observation adds to the tokens before it (all of it in a frame)."""
    if task.frame is not None:
        return framed(task.frame, texts[-1])
    if len(texts) > 1:
        return "\n" + user_turn(texts[-1])
    opening = texts[0]
    if task.instruction:
        opening += ("" if opening.endswith("\n") else "\n") + task.instruction
    return user_turn(opening)


@frozen
class Example:
    """Token ids of a demonstration, and which of them the model is taught to write."""

    tokens_T: list[int]
    taught_T: list[bool]


def encode(demonstration: Demonstration, tokenizer: PreTrainedTokenizerFast) -> Example:
    """Replies are taught with the end of turn that closes them; prompts are not."""
    tokens: list[int] = []
    taught: list[bool] = []
    for turn in demonstration.turns:
        prompt = tokenizer.encode(turn.prompt, add_special_tokens=False)
        reply = tokenizer.encode(turn.reply, add_special_tokens=False)
        reply.append(tokenizer.eos_token_id)
        tokens += prompt + reply
        taught += [False] * len(prompt) + [True] * len(reply)
    return Example(tokens, taught)
