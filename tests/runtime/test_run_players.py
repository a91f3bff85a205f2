"""Players: whatever their number, and whatever becomes of them, a run is the same."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import agent_programs
import pytest
from paths import RECIPES
from players_support import ThreadStarter
from run_support import (
    TINY,
    assert_same,
    block,
    comparable,
    compiled,
    metrics,
    rollouts,
    run,
    tiny,
    train,
    undisturbed,
)
from scripted_judge import judged_text, scripted_judge

from rlc.plan.codec import plan_hash
from rlc.plan.parts import PlayersPlan
from rlc.plan.records import Plan
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.players.messages import PlayTask, StreamChannel
from rlc.runtime.players.starting import ProcessStarter
from rlc.runtime.records import Rollout, RunError
from rlc.runtime.summary import Observer, Summary

pytestmark = [pytest.mark.plain, pytest.mark.kill, pytest.mark.slow]

EVAL = block("eval", "check", {"model": "main", "env": "spell", "tasks": "3", "first": "true"})
TWO = PlayersPlan("processes", 2)


def job(**fields: str) -> Plan:
    return tiny(train(env="3 * guess + spell", steps="2", **fields), EVAL)


def run_with(
    path: Path, plan: Plan, observer: Observer | None = None, players: PlayersPlan = TWO
) -> Summary:
    folder = RunFolder.create(path, plan)
    folder.players = players
    return run(folder, observer=observer)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> ThreadStarter:
    """Players are threads, which cost no start."""
    starter = ThreadStarter()
    monkeypatch.setattr("rlc.runtime.players.stage.starter_of", lambda _: starter)
    return starter


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


DEADLY = """
import os, signal
from pathlib import Path
from rlc.chat.turns import Observation

class Episode:
    first = Observation("Say e.")
    def step(self, action):
        return Observation("", float(action.count("e")), True)

class Source:
    def group(self, seed, size):
        if not Path("spared").exists():
            Path("spared").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return [Episode() for _ in range(size)]

def make():
    return Source()
"""


def test_a_process_that_is_killed_loses_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deadly.py").write_text(DEADLY)
    text = TINY + 'env deadly = python("deadly.py:make") |> chat()\n'
    plan, seen = compiled(text + train(env="deadly", steps="1")), Notes()
    Path("spared").touch()
    whole = undisturbed(plan)
    Path("spared").unlink()
    run_with(tmp_path / "run", plan, seen, PlayersPlan("processes", 1))
    assert_same(tmp_path / "run", whole)
    assert seen.notes[:2] == [
        "1 process plays the episodes of `main`; its replies are sampled through the process of "
        "the run",
        "player 1 has died (signal 9); what it played is played again: 3 groups",
    ]
    processes = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in processes]
    assert not [one for one in commands if b"rlc.runtime.players" in one]


@pytest.mark.parametrize(
    "fields",
    [
        {"overlap": "asynchronous(max_staleness = 1)", "loss": "cispo()"},
        {"batch": "turns(12, parallel = 4)", "advantage": "rebn()"},
        {"overlap": "streamed(minibatches = 2)", "batch": "groups(4, group_size = 4)"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_overlap_and_turns_are_the_same(
    fields: dict[str, str], threads: ThreadStarter, tmp_path: Path
) -> None:
    run_with(tmp_path / "run", job(**fields))
    assert_same(tmp_path / "run", undisturbed(job(**fields)))
    assert len(threads.started) == 2


@pytest.mark.engine
def test_the_engine_gives_the_same_bits(threads: ThreadStarter, tmp_path: Path) -> None:
    run_with(tmp_path / "run", job())
    assert_same(tmp_path / "run", undisturbed(job()))


def test_a_run_that_is_stopped_goes_on_with_other_players(
    threads: ThreadStarter, tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path / "run", job())
    folder.players = TWO
    run(folder, stop_after=("main", 1))
    resumed = RunFolder.resume(tmp_path / "run")
    resumed.players = PlayersPlan("processes", 1)
    run(resumed)
    assert_same(tmp_path / "run", undisturbed(job()))


def test_what_is_cancelled_is_cancelled_at_the_players(
    threads: ThreadStarter, tmp_path: Path
) -> None:
    class Interrupted(Observer):
        def played(self, members: Sequence[Rollout]) -> None:
            raise asyncio.CancelledError  # as Ctrl-C, pressed twice

    with pytest.raises(asyncio.CancelledError):
        run_with(tmp_path / "run", job(), Interrupted())
    assert not any(player.thread.is_alive() for player in threads.started)
    run(RunFolder.resume(tmp_path / "run"))
    assert_same(tmp_path / "run", undisturbed(job()))


def test_players_that_die_over_a_task_end_the_run_and_it_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch, threads: ThreadStarter, tmp_path: Path
) -> None:
    def send_and_die(channel: StreamChannel, message: Any) -> None:
        send(channel, message)
        if isinstance(message, PlayTask):
            channel.writer.transport.abort()

    send = StreamChannel.send
    monkeypatch.setattr(StreamChannel, "send", send_and_die)
    with pytest.raises(RunError, match=r"players died 3 times .* the last by signal 9") as failed:
        run_with(tmp_path / "run", job())
    assert "lack of memory" in str(failed.value.hint)


@pytest.mark.server
def test_judges_answer_through_the_process_of_the_run(
    threads: ThreadStarter, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "Say e."}\n{"prompt": "Say it."}\n')
    with scripted_judge(lambda body, _: str(len(judged_text(body)[0]) % 10)) as judge:
        text = (
            'model policy { base = "tiny" lora_rank = 4 }\n'
            f'judge likes = rubric("Many e.", model = endpoint("{judge.url}", '
            f'model = "{judge.model}"), scale = [0, 10])\n'
            f'env essays = rows("{tmp_path}/rows.jsonl") |> judged(likes)\n'
        )
        plan = compiled(text + train(env="essays", steps="1"))
        run_with(tmp_path / "run", plan)
        asked = len(judge.asked)
        assert_same(tmp_path / "run", undisturbed(plan))
        assert len(judge.asked) == 2 * asked  # nothing twice with players either


def test_games_against_the_past_are_the_same(
    threads: ThreadStarter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(RECIPES / "tug_of_war.py", tmp_path)
    text = (
        'model policy { base = "tiny" lora_rank = 4 }\n'
        'env tug = python_game("tug_of_war.py:TugOfWar") |> chat(instruction = "One word only.")\n'
        "env table = tug |> play(against = past(every = 1))\n"
    )
    fields = {"env": "table", "advantage": "grpo(scope = role)", "loss": "cispo()", "steps": "2"}
    plan = compiled(text + train(**fields))
    run_with(tmp_path / "run", plan)
    assert_same(tmp_path / "run", undisturbed(plan))


@pytest.mark.server
def test_agents_run_at_the_players(
    threads: ThreadStarter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agent_programs.FIRST_TRIES.clear()
    Path("rows.jsonl").write_text('{"prompt": "Spell this word backward: sun", "answer": "e"}\n')
    text = (
        'model policy { base = "tiny" lora_rank = 4 }\n'
        'env shop = agent("agent_programs:two_turns", tasks = rows("rows.jsonl"))\n'
    )
    plan = compiled(text + train(env="shop", batch="groups(2, group_size = 3)", steps="1"))
    run_with(tmp_path / "run", plan)
    assert_same(tmp_path / "run", undisturbed(plan))
    assert len(rollouts(tmp_path / "run")[0]["turns"]) == 2


def test_what_fails_at_a_player_fails_as_here(threads: ThreadStarter, tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(
        "def make():\n    return Source()\n"
        "class Source:\n"
        "    def group(self, seed, size):\n        raise ValueError(f'no task for {size}')\n"
    )
    text = TINY + f'env broken = python("{tmp_path}/faulty.py:make") |> chat()\n'
    stop = compiled(text + train(env="broken", on_error="stop", steps="1"))
    with pytest.raises(RunError, match=r"a rollout of `broken` failed: ValueError: no task for 4"):
        run_with(tmp_path / "stopped", stop)
    dropped = compiled(text + train(env="broken", on_error="drop", give_up="none", steps="1"))
    seen = Notes()
    run_with(tmp_path / "dropped", dropped, seen)
    (record,) = metrics(tmp_path / "dropped")
    assert record["rollouts/failed"] == 12
    failures = (tmp_path / "dropped" / "failures.jsonl").read_text().splitlines()
    (failure,) = map(json.loads, failures)
    assert failure["place"].endswith("faulty.py:5")


def test_what_is_paid_is_counted(threads: ThreadStarter, tmp_path: Path) -> None:
    run_with(tmp_path / "run", job())
    for mine, theirs in zip(
        comparable(tmp_path / "run"), comparable(undisturbed(job())), strict=True
    ):
        used = [name for name in theirs if name.startswith("tokens/")]
        assert {name: mine[name] for name in used} == {name: theirs[name] for name in used}
        assert mine["tokens/sampled"] > 0


def test_players_are_no_part_of_what_a_plan_is() -> None:
    plans = [job(), job(players="processes(2)"), job(players="ray(4, cpus = 2)")]
    assert len({plan_hash(plan) for plan in plans}) == 1
    assert plans[0] == plans[1]
    (stage,) = plans[2].trainings
    assert stage.rollouts is not None
    assert stage.rollouts.players == PlayersPlan("ray", 4, 2.0)


def test_a_process_that_cannot_start_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def fails(*_: Any, **__: Any) -> Any:
        raise OSError("no more processes")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", fails)
    with pytest.raises(RunError, match="a player does not start: no more processes"):
        asyncio.run(ProcessStarter().start())
