"""Requests over kept connections, to a server that says what a test wants; and how long answers are
kept for the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from attrs import define, field

from rlc.service.bridge import connections, models
from rlc.service.bridge.connections import Answer, BrokenError, Connections, UnreachedError
from rlc.service.http import RefusedRequest

pytestmark = pytest.mark.server

WHOLE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 4\r\n\r\nwell"
)
CHUNKED = (
    b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nwe\r\n",
    b"2\r\nll\r\n0\r\n\r\n",
)
LAST = WHOLE.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")


@define
class Script:
    """Answers in pieces, one list for each request; a connection ends after an empty one. What it
    was asked, and over how many connections."""

    answers: list[tuple[bytes, ...]]
    asked: list[bytes] = field(factory=list)
    opened: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        with suppress(asyncio.IncompleteReadError):
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.asked.append(head + await reader.readexactly(length))
                for piece in (pieces := self.answers.pop(0)):
                    writer.write(piece)
                    await writer.drain()
                if not pieces or pieces[-1] == b"":
                    break
        writer.close()


@asynccontextmanager
async def to(script: Script, path: str = "") -> AsyncIterator[Connections]:
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    there = Connections(f"http://127.0.0.1:{port}{path}")
    try:
        yield there
    finally:
        there.close()
        server.close()


def ask(there: Connections, path: str = "/x", seconds: float = 5) -> Awaitable[Answer]:
    return there.ask("POST", path, b"body", "text/plain", seconds)


def run(script: Script, talk: Callable[[Connections], Awaitable[None]]) -> None:
    async def main() -> None:
        async with to(script) as there:
            await talk(there)

    asyncio.run(main())


def test_requests_after_one_another_share_a_connection() -> None:
    script = Script([(WHOLE,), CHUNKED, (WHOLE,)])

    async def talk(there: Connections) -> None:
        answers = [await ask(there) for _ in range(3)]
        assert answers[0] == Answer(200, "text/plain", b"well")
        assert answers[1] == Answer(202, "", b"well")

    run(script, talk)
    assert script.opened == 1
    assert script.asked[0].startswith(b"POST /x HTTP/1.1\r\nhost: 127.0.0.1:")
    assert script.asked[0].endswith(b"content-type: text/plain\r\ncontent-length: 4\r\n\r\nbody")


def test_what_is_asked_at_once_does_not_wait_for_one_another() -> None:
    script = Script([(WHOLE,)] * 3)

    async def talk(there: Connections) -> None:
        await asyncio.gather(*(ask(there) for _ in range(3)))

    run(script, talk)
    assert script.opened == 3


def test_a_connection_that_the_server_gives_up_is_not_used_again() -> None:
    script = Script([(LAST,), (WHOLE,)])

    async def talk(there: Connections) -> None:
        await ask(there)
        await ask(there)

    run(script, talk)
    assert script.opened == 2


def test_a_connection_is_not_used_that_the_server_may_be_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would not be known whether the server had got the request."""
    monkeypatch.setattr(connections, "_IDLE_SECONDS", 0.0)
    script = Script([(WHOLE,), (WHOLE,)])

    async def talk(there: Connections) -> None:
        await ask(there)
        await ask(there)

    run(script, talk)
    assert script.opened == 2


@pytest.mark.parametrize("pieces", [(), (WHOLE[:-2], b""), (b"SSH-2.0 hello\r\n\r\n", b"")])
def test_half_an_answer_is_none(pieces: tuple[bytes, ...]) -> None:
    async def talk(there: Connections) -> None:
        with pytest.raises(BrokenError):
            await ask(there)
        assert (await ask(there)).content == b"well"

    run(Script([pieces, (WHOLE,)]), talk)


def test_a_server_that_says_nothing_is_not_waited_for_longer_than_told() -> None:
    async def talk(there: Connections) -> None:
        with pytest.raises(BrokenError):
            await ask(there, seconds=0.01)
        assert (await ask(there)).content == b"well"

    run(Script([(b"HTTP/1.1 ",), (WHOLE,)]), talk)


def test_a_request_that_was_given_up_leaves_its_answer_to_nobody() -> None:
    async def talk(there: Connections) -> None:
        given_up = asyncio.ensure_future(ask(there))
        while not script.asked:
            await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        assert (await ask(there)).content == b"well"

    script = Script([(b"HTTP/1.1 200 OK\r\n",), (WHOLE,)])
    run(script, talk)
    assert script.opened == 2


def test_where_nobody_listens_nothing_was_asked() -> None:
    async def talk(there: Connections) -> None:
        await ask(there)

    with pytest.raises(UnreachedError):
        asyncio.run(talk(Connections("http://127.0.0.1:1")))


def test_a_path_cannot_hold_another_request() -> None:
    script = Script([(WHOLE,)])

    async def main() -> None:
        async with to(script, "/behind") as there:
            await ask(there, "/a b\r\nx: y")

    asyncio.run(main())
    assert script.asked[0].startswith(b"POST /behind/a%20b%0D%0Ax%3A%20y HTTP/1.1\r\n")


@pytest.mark.parametrize("fetched", [False, True])
def test_answers_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch, fetched: bool) -> None:
    """Neither those that were fetched, nor those that nobody has asked for."""
    monkeypatch.setattr(models, "_SWEEP_SECONDS", 0.0)
    monkeypatch.setattr(models, "_KEEP_FETCHED" if fetched else "_KEEP_UNFETCHED", 0.0)

    async def reply(content: bytes) -> models.Reply:
        return content, "text/plain"

    async def main() -> None:
        promises, held = models.Promises(), asyncio.get_running_loop().create_future()
        waiting = promises.make(held_reply(held))
        done = promises.make(reply(b"well"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if fetched:
            assert bytes((await promises.answer(done)).body) == b"well"
        promises.make(reply(b"next"))
        assert done not in promises
        with pytest.raises(RefusedRequest, match="answered long ago"):
            await promises.answer(done)
        held.set_result((b"late", "text/plain"))
        assert bytes((await promises.answer(waiting)).body) == b"late"

    async def held_reply(held: asyncio.Future[models.Reply]) -> models.Reply:
        return await held

    asyncio.run(main())
