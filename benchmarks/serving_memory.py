"""The resident memory of ``rlc serve`` over half an hour of mixed load.

    python benchmarks/serving_memory.py [--minutes 30] [--json FILE]

The server is a process of its own. At the same time two clients train (one with a built-in loss,
one with a loss of its own), save, restore and end their sessions; others sample, chat, stream and
leave in the middle, send large bodies, send what is refused, and open connections without ever
sending a whole request. The model is the tiny one, whose cache of prompts is full after some 15
minutes. The exit status is 1 if memory has grown by more than a tenth over the last third.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from attrs import define, field
from serving import BASE, KEY, datums, prompt, sampling, serving

_MOST_GROWTH = 0.1
_PAUSE = 0.05  # seconds that each client waits before it asks again
_WORDS = ["red", "green", "blue", "one", "two", "three", "cat", "dog", "tree", "house", "runs"]
_REFUSED: tuple[tuple[str, str], ...] = (
    ("/api/v1/forward_backward", "{}"),
    ("/api/v1/asample", '{"sampling_session_id": "none", "seq_id": 1}'),
    ("/api/v1/optim_step", '{"model_id": "none:train:0", "seq_id": 1}'),
    ("/api/v1/nothing", "{}"),
    ("/v1/chat/completions", '{"model": "none", "messages": []}'),
    ("/v1/chat/completions", "[" * 2000),
    ("/v1/messages", '{"model": "tiny"}'),
)


@define
class Load:
    """Clients of one server, and how often each kind of work was done."""

    url: str
    sdk: Any
    done: Counter[str] = field(factory=Counter)
    rng: random.Random = field(factory=lambda: random.Random(0))

    async def train(self, is_custom: bool) -> None:
        """One session: eight steps with samples, a saved state that is restored, and its end."""
        import tinker
        from tinker import types

        with tinker.ServiceClient(base_url=self.url, api_key=KEY) as sdk:
            client = await sdk.create_lora_training_client(BASE, rank=8, seed=0)
            handle = await sdk.create_custom_loss(own_loss, RANKS) if is_custom else None
            for step in range(8):
                data, sampler = datums(16, 64), await snapshot(client)
                await asyncio.gather(
                    *(sampler.sample(prompt(g), 4, sampling(16, g)) for g in range(8))
                )
                if handle is None:
                    passed = client.forward_backward(data, "importance_sampling")
                else:
                    passed = client.forward_backward_custom(data, handle)
                stepped = client.optim_step(types.AdamParams(learning_rate=1e-5))
                await passed, await stepped
                if step == 4:
                    saved = await client.save_state("kept", overwrite=True)
                    await client.load_state_with_optimizer(saved.path)
        self.done["sessions"] += 1

    async def sample(self) -> None:
        sampler = await self.sdk.create_sampling_client(base_model=BASE)
        for _ in range(20):
            await sampler.sample(prompt(self.rng.randrange(1600)), 4, sampling(16))
            self.done["samples"] += 4

    async def chat(self, http: httpx.AsyncClient) -> None:
        body = {"model": BASE, "messages": self._messages(12), "max_tokens": 12}
        (await http.post("/v1/chat/completions", json=body)).raise_for_status()
        self.done["chats"] += 1

    async def leave(self, http: httpx.AsyncClient) -> None:
        """Read the beginning of a stream."""
        body = {"model": BASE, "messages": self._messages(12), "max_tokens": 200, "stream": True}
        async with http.stream("POST", "/v1/chat/completions", json=body) as response:
            async for _ in response.aiter_bytes():
                break
        self.done["streams left"] += 1

    async def send_much(self, http: httpx.AsyncClient) -> None:
        """A chat that is longer than the context, and a body that is too large."""
        for words in (100_000, 700_000):
            body = {"model": BASE, "messages": self._messages(words), "max_tokens": 1}
            await http.post("/v1/chat/completions", json=body)
        await http.post("/api/v1/asample", json={"prompt": {"chunks": [{"tokens": [7] * 2**20}]}})
        self.done["large bodies"] += 3
        await asyncio.sleep(5)

    async def be_refused(self, http: httpx.AsyncClient) -> None:
        for path, body in _REFUSED:
            response = await http.post(
                path, content=body, headers={"content-type": "application/json"}
            )
            assert 400 <= response.status_code < 500, (path, response.text)
            self.done["refused"] += 1

    async def stay_half_open(self) -> None:
        """Ten connections that are closed, or reset, in the middle of a request."""
        host, port = self.url.removeprefix("http://").split(":")
        opened = []
        for _ in range(10):
            _, writer = await asyncio.open_connection(host, int(port))
            head = (
                f"POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            )
            writer.write(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
            opened.append(writer)
        await asyncio.sleep(2)
        for number, writer in enumerate(opened):
            writer.transport.abort() if number % 2 else writer.close()
        self.done["half open"] += 10

    def _messages(self, words: int) -> list[dict[str, str]]:
        return [{"role": "user", "content": " ".join(self.rng.choices(_WORDS, k=words))}]


RANKS: dict[str, Any] = {"logprobs": 1, "target_tokens": 1, "advantages": 1}


def own_loss(logprobs: Any, target_tokens: Any, advantages: Any) -> Any:  # noqa: ARG001
    loss = -(logprobs * advantages).sum()
    return loss, {"custom/loss:mean": loss}


async def snapshot(client: Any) -> Any:
    return await client.save_weights_and_get_sampling_client()


async def forever(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await work()
        await asyncio.sleep(_PAUSE)


def resident(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def put_under_load(url: str, pid: int, minutes: int) -> list[float]:
    """Return the memory of the server at each minute, from the first on."""
    import tinker

    measured, started = list[float](), time.monotonic()
    with tinker.ServiceClient(base_url=url, api_key=KEY) as sdk:
        async with httpx.AsyncClient(base_url=url, timeout=120) as http:
            load = Load(url, sdk)
            work: list[Callable[[], Awaitable[None]]] = [load.sample, load.stay_half_open]
            work += [partial(load.train, False), partial(load.train, True)]
            work += [partial(load.chat, http)] * 4 + [partial(load.leave, http)]
            work += [partial(load.send_much, http), partial(load.be_refused, http)]
            running = [asyncio.ensure_future(forever(one)) for one in work]
            for minute in range(1, minutes + 1):
                left = started + 60 * minute - time.monotonic()
                ended, _ = await asyncio.wait(running, timeout=left, return_when="FIRST_COMPLETED")
                for one in ended:
                    one.result()
                measured.append(resident(pid))
                done = "  ".join(f"{what} {count:,}" for what, count in load.done.items())
                print(f"minute {minute:2}   {measured[-1]:7.0f} MB   {done}", flush=True)
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    os.environ["TINKER_TELEMETRY"] = "0"
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), "cpu") as (url, pid):
        measured = asyncio.run(put_under_load(url, pid, args.minutes))
    if args.json is not None:
        args.json.write_text(json.dumps({"megabytes": measured}) + "\n")
    growth = measured[-1] / measured[2 * len(measured) // 3 - 1] - 1
    print(f"{growth:+.1%} over the last third")
    sys.exit(growth > _MOST_GROWTH)


if __name__ == "__main__":
    main()
