"""Runs that are killed with SIGKILL, resumed, and compared with undisturbed ones.

The runs are real processes of the real command, forked from a server that has the heavy libraries
imported already. A process reports what it is doing through shared memory, so that whoever kills
it knows what it was in the middle of.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from paths import RECIPES
from plain_service import is_plain, plain_service
from processes import FORKING, fork
from run_support import TINY, block, train

from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.episodes import TOKENS_FILE
from rlc.runtime.journal.folder import RunFolder

PHASES = (
    *("sampling", "training", "saving", "evaluating", "snapshot", "journalling"),
    *("scoring", "judging", "answering"),
)
_AWAKE = len(PHASES)  # the place after those of the phases: whether there was any yet
_LONGEST = 240.0  # seconds that a run may take on a busy machine

EVAL = {
    "model": "main",
    "env": "spell",
    "tasks": "4",
    "every": "2",
    "first": "true",
    "metrics": "[mean_reward(), pass_at(1)]",
}
SMALL = {"batch": "groups(3, group_size = 2)", "sampling": "sample(max_tokens = 8)"}
MIXED = SMALL | {"env": "guess + spell"}
_ASYNC = SMALL | {"overlap": "asynchronous(max_staleness = 2)", "loss": "ppo()", "steps": "6"}
# Of two steps, and what learns from it without an advantage.
_EXPERT = train("expert", **SMALL | {"env": "guess", "steps": "2", "optimizer": "adam(3e-2)"})
_STUDENT = train(
    "student",
    **MIXED
    | {
        "teacher": '{ spell = reverse_kl(expert), guess = forward_kl(policy, system = "Halve.") }',
        "overlap": "streamed(minibatches = 2)",
    },
).replace("  advantage = grpo()\n", "")
PREFERENCE = {
    "model": "policy",
    "data": "preferred(policy, env = spell, n = 8, samples = 3)",
    "heldout": "preferred(policy, env = spell, n = 3, samples = 3)",
    "every": "2",
    "loss": "dpo()",
    "batch": "4",
    "steps": "4",
    "optimizer": "adam(1e-3)",
}
SCENARIOS: dict[str, str] = {
    "synchronous": train(**MIXED) + block("eval", "held", EVAL),
    "streamed": train(**SMALL | {"overlap": "streamed(minibatches = 2)", "steps": "5"}),
    "streamed, waiting": train(
        **SMALL
        | {
            "env": "guess |> reward(total - 0.01 * rank(tokens, over = group))",
            "batch": "groups(4, group_size = 2, updates = 2, resample = 3)",
            "kl": 'reference("tiny", coef = 0.1)',
            "overlap": "streamed(minibatches = 3)",
        }
    ),
    "asynchronous": train(**MIXED | _ASYNC | {"save": "every(4)"}) + block("eval", "held", EVAL),
    "job": block(
        "sft",
        "warmup",
        {
            "model": "policy",
            "data": "demonstrations(spell, n = 12)",
            "batch": "4",
            "steps": "4",
            "optimizer": "adam(1e-3)",
        },
    )
    + train(**SMALL | {"model": "warmup", "env": "spell", "steps": "3"})
    + block("eval", "held", EVAL),
    "preferences": block("preference", "first", PREFERENCE)
    + block("preference", "second", PREFERENCE | {"model": "first", "loss": "kto()"}),
    "game": f'env tug = python_game("{RECIPES}/tug_of_war.py:TugOfWar")\n'
    + train(
        **_ASYNC
        | {
            "env": "tug |> play(against = past(every = 2))",
            "batch": "groups(2, group_size = 4)",
            "advantage": "rae()",
        }
    ),
    "teachers": _EXPERT + _STUDENT,
    "no rolling": train(**SMALL | {"steps": "5", "save": "every(2, rolling = none)"}),
    # Two rounds a step or more, of chats and of a game.
    "asynchronous, turns": f'env tug = python_game("{RECIPES}/tug_of_war.py:TugOfWar")\n'
    + train(
        **_ASYNC
        | {
            "env": "2 * guess + tug |> play(against = self)",
            "batch": "turns(14, parallel = 4)",
            "advantage": "rebn()",
        }
    ),
    "asynchronous, no rolling": train(**_ASYNC | {"save": "every(2, rolling = none)"}),
}


@frozen
class Kill:
    """What a process was in the middle of when it was killed, and how many steps that were
    journalled it lost, by stage."""

    phases: tuple[str, ...]
    lost: Mapping[str, int]


@define(eq=False)
class _Watched:
    """A function that counts, in shared memory, how many of its calls are under way; at the
    ``fatal``-th call the process kills itself."""

    counts: Any
    phase: int
    fatal: int = 0
    calls: int = field(default=0, init=False)

    def enter(self) -> None:
        self.calls += 1
        self.counts[self.phase] += 1
        self.counts[_AWAKE] = 1
        if self.calls == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    def leave(self) -> None:
        self.counts[self.phase] -= 1

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.enter()
            try:
                return function(*args, **kwargs)
            finally:
                self.leave()

        return call

    def around_async(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.enter()
            try:
                return await function(*args, **kwargs)
            finally:
                self.leave()

        return call


def _watch(counts: Any, fatal: tuple[str, int] | None) -> None:
    """Have this process count what it does, and kill itself at the call ``fatal``, if any."""
    from rlc.runtime.auxiliary import ReplyCache
    from rlc.runtime.rollouts.agents import AgentEpisode
    from rlc.runtime.rollouts.player import Player
    from rlc.runtime.stages.evaluation import EvaluationRunner
    from rlc.runtime.updates import optimizer
    from rlc.runtime.updates.scorers import LogprobScorer
    from rlc.runtime.weights import StageWeights

    watched = {
        phase: _Watched(counts, i, fatal[1] if fatal and fatal[0] == phase else 0)
        for i, phase in enumerate(PHASES)
    }
    Player.play = watched["sampling"].around_async(Player.play)  # type: ignore[method-assign]
    EvaluationRunner.play = watched["evaluating"].around_async(EvaluationRunner.play)  # type: ignore[method-assign]
    StageWeights.snapshot = watched["snapshot"].around_async(StageWeights.snapshot)  # type: ignore[method-assign]
    optimizer.finish_updates = watched["training"].around_async(optimizer.finish_updates)
    LogprobScorer.score = watched["scoring"].around_async(LogprobScorer.score)  # type: ignore[method-assign]
    AgentEpisode.replies = watched["answering"].around_async(AgentEpisode.replies)  # type: ignore[method-assign]
    ReplyCache.reply = watched["judging"].around_async(ReplyCache.reply)  # type: ignore[method-assign]
    Journal.finish_step = watched["journalling"].around(Journal.finish_step)  # type: ignore[method-assign]
    os.fsync = watched["saving"].around(os.fsync)  # in the middle of a checkpoint's file


def _command(words: list[str], counts: Any, fatal: tuple[str, int] | None, plain: bool) -> None:
    """The body of a process: the command line."""
    _watch(counts, fatal)
    from rlc.cli.main import entry

    sys.argv = ["rlc", *words]
    with plain_service() if plain else nullcontext():
        entry()


def start(words: list[str], log: Path, fatal: tuple[str, int] | None = None) -> tuple[Any, Any]:
    """A process of the command on the service of this one, and the counts of what it is doing."""
    counts = FORKING.Array("i", len(PHASES) + 1, lock=False)
    return fork(log, _command, words, counts, fatal, is_plain()), counts


def finished(words: list[str], log: Path) -> float:
    """Run the command to its end and return the seconds it took."""
    since = time.monotonic()
    process, _ = start(words, log)
    process.join(_LONGEST)
    assert process.exitcode == 0, f"{words} ended with {process.exitcode}:\n{log.read_text()}"
    return time.monotonic() - since


@define(eq=False)
class Victim:
    """One run that is killed again and again. ``path`` is its folder, made by the first start."""

    recipe: Path
    path: Path
    log: Path
    seed: int = 3
    begun: bool = field(default=False, init=False)

    @property
    def words(self) -> list[str]:
        if self.begun and (self.path / "journal.sqlite").exists():
            return ["run", "--resume", str(self.path)]
        return ["run", str(self.recipe), "--seed", str(self.seed), "--run-dir", str(self.path)]

    def kill_after(self, seconds: float) -> Kill | None:
        """Kill it ``seconds`` after it has begun to work; return None if it ended before."""
        process, counts = self._started(None)
        process.join(seconds)
        return self._killed(process, tuple(counts))

    def kill_at(self, phase: str, call: int) -> Kill | None:
        """Kill it at the ``call``-th call of a phase; return None if it ended before."""
        process, counts = self._started((phase, call))
        process.join(_LONGEST)
        return self._killed(process, tuple(counts))

    def finish(self) -> None:
        finished(self.words, self.log)

    def _started(self, fatal: tuple[str, int] | None) -> tuple[Any, Any]:
        words, self.begun = self.words, True
        process, counts = start(words, self.log, fatal)
        while process.is_alive() and not counts[_AWAKE]:
            process.join(0.01)
        return process, counts

    def _killed(self, process: Any, counts: tuple[int, ...]) -> Kill | None:
        if process.exitcode is None:
            process.kill()
            process.join()
        if process.exitcode == 0:
            return None
        assert process.exitcode == -signal.SIGKILL, self.log.read_text()
        phases = tuple(phase for phase, n in zip(PHASES, counts, strict=False) if n)
        return Kill(phases, lost_steps(self.path))


def lost_steps(path: Path) -> dict[str, int]:
    """Return, by stage, how many finished steps have weights in no journalled state."""
    plan = json.loads((path / "plan.json").read_text())
    journal = Journal(path / "journal.sqlite", read_only=True)
    try:
        lost = {}
        for stage in plan["stages"]:
            if stage["kind"] != "evaluation":
                saved = journal.checkpoints(stage["name"])
                lost[stage["name"]] = len(journal.steps(stage["name"])) - max([0, *saved])
        return lost
    finally:
        journal.close()


def write_recipe(folder: Path, scenario: str) -> Path:
    """Write the recipe of a scenario into a folder."""
    recipe = folder / f"{scenario.replace(', ', '-').replace(' ', '-')}.rl"
    recipe.write_text(TINY + SCENARIOS[scenario], encoding="utf-8")
    return recipe


def outcome(path: Path) -> dict[str, Any]:
    """Everything that two runs of the same plan have in common: metrics but for times, rollouts
    but for seconds, tokens, data cursors, and the last weights and optimiser to the bit."""
    from rlc.service.engine.checkpoints import CheckpointStore

    folder = RunFolder.resume(path)
    try:
        store = CheckpointStore(path / "checkpoints")
        return {
            "metrics": [_timeless(record) for record in folder.read("metrics.jsonl")],
            "rollouts": [_timeless(r) for r in folder.read("rollouts.jsonl")]
            if (path / "rollouts.jsonl").exists()
            else [],
            "tokens": (path / TOKENS_FILE).read_bytes() if (path / TOKENS_FILE).exists() else b"",
            "cursors": {
                stage.name: [step.cursor for step in folder.journal.steps(stage.name)]
                for stage in folder.plan.stages
            },
            "weights": {
                stage.name: {
                    name: array.tobytes()
                    for name, array in store.load(checkpoints[max(checkpoints)]).arrays.items()
                }
                for stage in folder.plan.stages
                if (checkpoints := folder.journal.checkpoints(stage.name))
            },
            "checkpoints": {
                stage.name: list(folder.journal.checkpoints(stage.name))
                for stage in folder.plan.stages
            },
        }
    finally:
        folder.close()


def _timeless(record: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in record.items() if k != "seconds" and not k.startswith("time/")}


def differences(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    """Return the parts in which two outcomes differ, with the first difference of each."""
    return [f"{p}: {_first_difference(one[p], two[p])}" for p in one if one[p] != two[p]]


def _first_difference(one: Any, two: Any, where: str = "") -> str:
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        key = next(k for k in one if one[k] != two[k])
        return _first_difference(one[key], two[key], f"{where}.{key}")
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        at = next(i for i, pair in enumerate(zip(one, two, strict=True)) if pair[0] != pair[1])
        return _first_difference(one[at], two[at], f"{where}[{at}]")
    return f"{where}: {str(one)[:80]} != {str(two)[:80]}"


def counted(kills: list[Kill]) -> Counter[str]:
    """Count the kills by phase; ``between`` if a process was in none."""
    return Counter(phase for kill in kills for phase in (kill.phases or ("between",)))


def any_moment(rng: random.Random) -> tuple[str, int]:
    """Return one of the phases of a run at random, and which of its calls is meant."""
    phase = rng.choice(PHASES)
    return phase, rng.randint(1, 3 if phase in ("evaluating", "snapshot", "training") else 6)
