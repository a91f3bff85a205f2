"""Many agents at once, and one killed at random: is an episode lost, or mixed up with another?

    python benchmarks/agents.py [--agents 512] [--turns 3] [--commands] [--seed 1]

Each agent has a number of its own, and asks for it several times in one conversation. The model is
made up: it repeats the last number of the prompt, after a while, and answers nobody until all have
asked, so that all of them live at once. An agent that reads another number than its own gives a
reward of 0, and the turns of an episode are compared with what it asked. With ``--commands`` each
is a process, else a function in a thread. Prints how many episodes there were, the requests in a
second, the longest time that the event loop stood still, and the memory of this process and of the
agents'; the exit status is 1 if an episode was lost or mixed up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import number_agent
import numpy as np
from attrs import define, field
from loop_lag import lags
from number_agent import TASK
from tinker import types

from rlc.compile.recipe import compile_source
from rlc.data.code import search_beside
from rlc.lang.render import render_human
from rlc.lang.source import Source
from rlc.plan.parts import FailurePlan, SamplingPlan
from rlc.runtime.records import Rollout, Usage
from rlc.runtime.rollouts.groups import build_envs, play_groups
from rlc.runtime.rollouts.player import Player, close_envs
from rlc.runtime.rollouts.tasks import TaskStream, new_cursor

RECIPE = """\
model policy {{ base = "tiny" }}
env numbers = agent({program}, tasks = rows("rows.jsonl", shuffle = false), concurrency = {agents})
  |> rollouts(step_timeout = 10m)
train main {{
  model = policy  env = numbers  batch = groups({agents}, group_size = 1)
  sampling = sample(max_tokens = 16)  advantage = reinforce()  loss = importance_sampling()
  optimizer = adam(1e-4)  steps = 1
}}
"""


@define
class Echo:
    """Repeats the last number of a prompt, after a time drawn from the prompt, and not before so
    many ``agents`` have asked. ``memory``: of the processes that were there then, in MB."""

    tokenizer: Any
    agents: int
    memory: float = field(default=0.0, init=False)
    all_here: asyncio.Event = field(factory=asyncio.Event, init=False)
    requests: int = 0
    at_once: int = 0
    most: int = field(default=0, init=False)

    def get_tokenizer(self) -> Any:
        return self.tokenizer

    async def sample(
        self, prompt: types.ModelInput, num_samples: int, sampling_params: types.SamplingParams
    ) -> types.SampleResponse:
        number = re.findall(r"number (\d+)\.", self.tokenizer.decode(prompt.to_ints()))[-1]
        self.requests += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        if self.requests == self.agents:
            self.memory = await asyncio.to_thread(memory_of_children)
            self.all_here.set()
        await asyncio.wait_for(self.all_here.wait(), 600)
        await asyncio.sleep(random.Random(f"{sampling_params.seed}").uniform(0.05, 0.5))
        self.at_once -= 1
        tokens = [*self.tokenizer.encode(number), *self.tokenizer.encode("<|im_end|>")]
        sequence = types.SampledSequence(
            stop_reason="stop",
            sequence_id="",
            tokens_np=np.array(tokens, np.int32),
            logprobs_np=np.full(len(tokens), -1.0, np.float32),
        )
        return types.SampleResponse(sequences=[sequence] * num_samples, prompt_cache_hit_tokens=0)


async def play(agents: int, turns: int, commands: bool, seed: int, folder: Path) -> bool:
    from transformers import AutoTokenizer

    from rlc.service.tiny import path

    victim = random.Random(seed).randrange(agents)
    rows = [
        {"prompt": TASK % (1000 * n), "number": 1000 * n, "turns": turns, "victim": n == victim}
        for n in range(agents)
    ]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    agent = str(Path(number_agent.__file__).resolve())
    words = json.dumps([sys.executable, agent])
    called = f"command = {words}" if commands else f'"{agent}:solve"'
    recipe = RECIPE.format(program=called, agents=agents)
    os.chdir(folder)
    search_beside("recipe.rl")
    compiled = compile_source(Source("recipe.rl", recipe))
    assert compiled.plan is not None, render_human(compiled.diagnostics, color=False)
    plan = compiled.plan
    (env_plan,) = plan.stages[0].environments
    tokenizer = AutoTokenizer.from_pretrained(str(path()))
    echo: Any = Echo(tokenizer, agents - 1)  # the victim asks nothing
    began = time.perf_counter()
    envs = build_envs([env_plan], tokenizer, "qwen3_instruct", None)  # type: ignore[arg-type]
    drop, sampling = FailurePlan(0, "drop", None), SamplingPlan(16, 1.0, 1.0, -1)
    player = Player(echo, sampling, None, drop, Usage())
    stream = TaskStream(envs, new_cursor([*envs]), seed, ("main",), size=1)
    played = asyncio.ensure_future(play_groups(player, stream.take(agents), lambda _: None))
    try:
        longest = max(await lags(played))
        rollouts = [rollout for (rollout,) in await played]
    finally:
        await close_envs(envs.values())
    seconds = time.perf_counter() - began
    lost, mixed = wrong(rollouts, rows)
    failed = sum(rollout.error is not None for rollout in rollouts)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(
        f"{agents} agents ({'processes' if commands else 'threads'}): {agents - failed} ended, "
        f"{failed} killed, {lost} lost, {mixed} mixed up\n"
        f"{seconds:.1f} s, {echo.requests / seconds:.0f} requests/s, up to {echo.most} at once, "
        f"event loop stood still for up to {longest:.2f} s, {memory:.0f} MB"
        + (f" and {echo.memory:.0f} MB in the agents" if commands else "")
    )
    return not (lost or mixed) and failed == 1


def memory_of_children() -> float:
    """The memory of the processes that this one has started, in MB. What several share, such as the
    code of Python, is counted once (their PSS)."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(") ")[2].split()[1])
            rollup = (status.parent / "smaps_rollup").read_text() if parent == os.getpid() else ""
        except OSError:  # it has ended
            continue
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:")
    return total / 2**10


def wrong(rollouts: list[Rollout], rows: list[dict[str, Any]]) -> tuple[int, int]:
    """How many episodes were lost, and how many have a turn or a reward of another."""
    lost = mixed = 0
    for rollout, row in zip(rollouts, rows, strict=True):
        if rollout.error is not None:
            lost += not row["victim"]
            continue
        said = [turn.observation for turn in rollout.turns]
        own = [TASK % (row["number"] + turn) for turn in range(row["turns"])]
        mixed += said != own or rollout.reward != 1.0
    return lost, mixed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=512)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--commands", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        job = play(args.agents, args.turns, args.commands, args.seed, Path(folder))
        sys.exit(0 if asyncio.run(job) else 1)


if __name__ == "__main__":
    main()
