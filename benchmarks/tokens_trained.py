"""Tokens trained per episode: a chat that keeps its prefix against one datum a turn.

    python benchmarks/tokens_trained.py [--episodes 64] [--envs game:Sudoku-v0-easy …]

The same episodes, played by a player that knows the answers, under each of three histories; what is
counted is what training would send. Needs neither a GPU nor the model: only its tokenizer.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from stage_parts import flat
from transformers import AutoTokenizer

import rlc.service.engine  # noqa: F401 (before anything imports torch)
from rlc.compile.recipe import compile_source
from rlc.envs.gem.oracles import find_oracle
from rlc.envs.responders import no_responders
from rlc.lang.source import Source
from rlc.plan.stages import Training
from rlc.runtime.records import Rollout
from rlc.runtime.rollouts.groups import build_envs
from rlc.runtime.rollouts.tasks import TaskStream, new_cursor
from rlc.runtime.rollouts.tokens import merged_sequences
from rlc.runtime.stages.samples import OraclePlayer
from rlc.service.tiny import path

HISTORIES = {
    "chat()": "chat()",
    "concat_chat()": "concat_chat() |> template(no)",
    "concat()": "concat() |> template(qwen3_game)",
}
ENVS = ("game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy", "game:Sudoku-v0-easy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--envs", nargs="+", default=list(ENVS))
    args = parser.parse_args()
    header = f"{'environment':28} {'history':14} {'turns':>6} {'datums':>7} {'tokens':>8}"
    print(f"{header} {'of chat()':>9}")
    for env in args.envs:
        chat = 0.0
        for name, history in HISTORIES.items():
            turns, datums, tokens = measure(env, history, args.episodes)
            chat = chat or tokens
            print(
                f"{env:28} {name:14} {turns:6.1f} {datums:7.1f} {tokens:8.0f} {tokens / chat:8.1f}×"
            )


def measure(env: str, history: str, episodes: int) -> tuple[float, float, float]:
    """Turns, datums and tokens of an episode, in the mean."""
    played = asyncio.run(demonstrations(env, history, episodes))
    datums = [merged_sequences(rollout.turns) for rollout in played]
    return (
        fmean(len(rollout.turns) for rollout in played),
        fmean(map(len, datums)),
        fmean(sum(map(length, sequences)) for sequences in datums),
    )


def length(sequence: Any) -> int:
    """Tokens that a datum sends: all but the last, which is only a target."""
    return len(sequence.tokens) - 1


async def demonstrations(env: str, history: str, episodes: int) -> Sequence[Rollout]:
    result = compile_source(
        Source(
            "tokens.rl",
            f"""
            model policy {{ base = "tiny" lora_rank = 4 }}
            env game = gem("{env}") |> {history}
            sft warmup {{
              model = policy  data = demonstrations(game, n = {episodes}, min_reward = 0.0)
              steps = 1  optimizer = adam(1e-4)
            }}
            """,
        ),
        {},
        1,
    )
    assert result.plan is not None, result.diagnostics
    (stage,) = result.plan.stages
    assert isinstance(stage, Training)
    assert flat(stage).data.env is not None
    tokenizer = AutoTokenizer.from_pretrained(str(path()))
    played, renderer = flat(stage).data.env, stage.model.renderer
    made = build_envs([played], tokenizer, renderer, no_responders)[played.name]
    try:
        oracle = find_oracle(played)
        assert oracle is not None
        player, name = OraclePlayer(oracle, tokenizer), played.name
        tasks = TaskStream({name: made}, new_cursor([name]), 1, ("tokens",)).take(episodes)
        return [rollout for task in tasks for rollout in await player.play(task)]
    finally:
        await made.source.close()


if __name__ == "__main__":
    main()
