"""How players are started: processes of this machine, and actors of Ray clusters."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from attrs import define, field, frozen

from rlc.envs import CLUSTER, EnvError
from rlc.plan import PlayersPlan
from rlc.runtime.concurrency import cancel_all, mark_seen
from rlc.runtime.players.messages import Channel, StreamChannel, packed
from rlc.runtime.records import RunError

CLOSE_SECONDS = 15.0  # that a player has for the end of its environments
_START_SECONDS = 600.0  # until a cluster has room for an actor
_TAKE_SECONDS = 10.0  # that an actor waits for a message to hand over
# The SDK's transport would start a thread for each core in every player.
_ONE_EACH = {"TOKIO_WORKER_THREADS": "1"}
# Ctrl-C is for the run, which ends its players, whenever it is pressed.
_RUN = """import signal, sys
for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(name, signal.SIG_IGN)
sys.path[:] = {0}
from rlc.runtime.players.process import main
main({1})
"""


class RunningPlayer(Protocol):
    """A player that has been started."""

    @property
    def channel(self) -> Channel: ...

    async def end(self) -> str:
        """End it, unless it has ended by itself, which it may do in its own time once its channel
        is closed; say how it ended."""


class PlayerStarter(Protocol):
    """Starts players of one kind."""

    async def room(self) -> int:
        """Return how many there is room for. Raise RunError if there is none."""

    async def start(self) -> RunningPlayer:
        """Start a player. Raise RunError if it does not start."""

    async def close(self) -> None:
        """Release what they had in common."""


@frozen(eq=False)
class LocalPlayer:
    """A process. It ends with the process of the run, however that ends: its channel is closed."""

    channel: StreamChannel
    process: asyncio.subprocess.Process

    async def end(self) -> str:
        self.channel.writer.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                status = await self.process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self.process.kill()
            status = await self.process.wait()
        self.channel.writer.transport.abort()  # nobody reads what was not sent
        return f"signal {-status}" if status < 0 else f"exit status {status}"


class ProcessStarter:
    async def room(self) -> int:
        return room_here()

    async def start(self) -> LocalPlayer:
        # Not a fork, since the program has threads, and not its main script again.
        ours, theirs = socket.socketpair()
        try:
            code = _RUN.format(repr(sys.path), theirs.fileno())
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", code),
                env=_ONE_EACH | os.environ,
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            ours.close()
            raise RunError(f"a player does not start: {error}") from error
        finally:
            theirs.close()
        return LocalPlayer(StreamChannel(*await asyncio.open_connection(sock=ours)), process)

    async def close(self) -> None:
        """Do nothing: processes have nothing in common."""


_OF_A_PLAYER = 2**30  # bytes: half is its own, and as much is left to others


def room_here() -> int:
    """Return how many players this machine has room for: one for each core that this process may
    use, as far as memory goes."""
    own = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(own, memory // _OF_A_PLAYER))


class PlayerActor:
    """The actor. Both sides of its channel are calls of the process of the run: it need not be
    reached from the cluster."""

    def __init__(self, paths: Sequence[str]) -> None:
        sys.path.extend(path for path in paths if path not in sys.path)
        self.inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self.outbox: asyncio.Queue[bytes] = asyncio.Queue()

    async def play(self) -> None:
        from rlc.runtime.players.process import serve

        await serve(_ActorChannel(self.inbox, self.outbox))

    async def put(self, messages: list[bytes]) -> None:
        for message in messages:
            self.inbox.put_nowait(message)

    async def take(self) -> list[bytes]:
        """Return what there is, at least one message unless there is none for a while."""
        found = []
        with suppress(TimeoutError):
            async with asyncio.timeout(_TAKE_SECONDS):
                found.append(await self.outbox.get())
        while not self.outbox.empty():
            found.append(self.outbox.get_nowait())
        return found


@frozen(eq=False)
class _ActorChannel:
    """See :class:`rlc.runtime.players.messages.Channel`; in the actor."""

    inbox: asyncio.Queue[bytes]
    outbox: asyncio.Queue[bytes]

    def send(self, message: Any) -> None:
        self.outbox.put_nowait(packed(message))

    async def receive(self) -> Any:
        import pickle

        if not (content := await self.inbox.get()):
            raise EOFError
        return pickle.loads(content)

    async def drain(self) -> None:
        """Do nothing: the process of the run takes all that there is."""


@define(eq=False)
class RayChannel:
    """See :class:`rlc.runtime.players.messages.Channel`; in the process of the run."""

    actor: Any
    _unsent: list[bytes] = field(factory=list, init=False)
    _received: asyncio.Queue[bytes | None] = field(factory=asyncio.Queue, init=False)
    _more: asyncio.Event = field(factory=asyncio.Event, init=False)
    _tasks: list[asyncio.Task[None]] = field(factory=list, init=False)

    def start(self) -> None:
        """Begin to exchange messages with the actor."""
        self._tasks = [asyncio.create_task(work()) for work in (self._put, self._take, self._play)]
        for task in self._tasks:
            task.add_done_callback(mark_seen)

    def send(self, message: Any) -> None:
        self._unsent.append(packed(message))
        self._more.set()

    async def receive(self) -> Any:
        import pickle

        if (content := await self._received.get()) is None:
            raise EOFError
        return pickle.loads(content)

    async def drain(self) -> None:
        """Do nothing: what waits is one call's argument."""

    async def close(self) -> None:
        """Tell the actor that there is no more; give it time to end by itself."""
        self._unsent.append(b"")
        self._more.set()
        *others, playing = self._tasks
        await asyncio.wait([playing], timeout=CLOSE_SECONDS)
        await cancel_all([*others, playing])

    async def _put(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            due, self._unsent = self._unsent, []
            if due:
                await _result(self.actor.put.remote(due))

    async def _take(self) -> None:
        try:
            while True:
                for content in await _result(self.actor.take.remote()):
                    self._received.put_nowait(content)
        finally:
            self._received.put_nowait(None)

    async def _play(self) -> None:
        await _result(self.actor.play.remote())


async def _result(reference: Any) -> Any:
    return await asyncio.wrap_future(reference.future())


@frozen(eq=False)
class RayPlayer:
    channel: RayChannel

    async def end(self) -> str:
        import ray

        await self.channel.close()
        ray.kill(self.channel.actor)
        return "its actor, or its node"


@define(eq=False)
class RayStarter:
    """Actors of a cluster, of which each reserves what the plan says."""

    plan: PlayersPlan
    _room: int | None = field(default=None, init=False)
    _joining: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def room(self) -> int:
        async with self._joining:
            if self._room is None:
                demand = {"CPU": self.plan.cpus, **self.plan.resources}
                try:
                    self._room = await asyncio.to_thread(CLUSTER.join, self.plan.address, demand)
                except EnvError as error:
                    raise RunError(f"players: {error}", error.hint) from error
            return self._room

    async def start(self) -> RayPlayer:
        import ray

        await self.room()
        # One that dies is replaced here, where it is known what it played.
        actor = (
            ray.remote(PlayerActor)
            .options(max_restarts=0, num_cpus=self.plan.cpus, resources=dict(self.plan.resources))
            .remote(sys.path)
        )
        try:
            async with asyncio.timeout(_START_SECONDS):
                await _result(actor.put.remote([]))
        except Exception as error:  # of Ray, whose classes are not imported here
            ray.kill(actor)
            why = str(error).strip().splitlines()[0] if str(error).strip() else "no room for it"
            raise RunError(f"a player does not start on the Ray cluster: {why}") from error
        channel = RayChannel(actor)
        channel.start()
        return RayPlayer(channel)

    async def close(self) -> None:
        if self._room is not None:
            self._room = None
            await asyncio.to_thread(CLUSTER.leave)


def starter_of(plan: PlayersPlan) -> PlayerStarter:
    """Return what starts players of a kind."""
    return RayStarter(plan) if plan.kind == "ray" else ProcessStarter()
