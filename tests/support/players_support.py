"""Players in threads of this process, with a loop of their own: what they say and hear is the same
as of other processes, and they cost no start."""

from __future__ import annotations

import asyncio
import socket
import threading

from attrs import define, field

from rlc.runtime.players.messages import StreamChannel
from rlc.runtime.players.process import serve


@define(eq=False)
class ThreadPlayer:
    """See :class:`rlc.runtime.players.starting.RunningPlayer`."""

    channel: StreamChannel
    thread: threading.Thread

    def die(self) -> None:
        """As a process that is killed: nothing more is said or heard."""
        self.channel.writer.transport.abort()

    async def end(self) -> str:
        await self.channel.close()
        await asyncio.to_thread(self.thread.join)
        return "signal 9"


@define(eq=False)
class ThreadStarter:
    """See :class:`rlc.runtime.players.starting.PlayerStarter`."""

    started: list[ThreadPlayer] = field(factory=list)

    async def room(self) -> int:
        return 2

    async def start(self) -> ThreadPlayer:
        ours, theirs = socket.socketpair()

        async def play() -> None:
            channel = StreamChannel(*await asyncio.open_connection(sock=theirs))
            try:
                await serve(channel)
            finally:
                await channel.close()

        thread = threading.Thread(target=lambda: asyncio.run(play()))
        thread.start()
        channel = StreamChannel(*await asyncio.open_connection(sock=ours))
        self.started.append(player := ThreadPlayer(channel, thread))
        return player

    async def close(self) -> None:
        """Threads have nothing in common."""
