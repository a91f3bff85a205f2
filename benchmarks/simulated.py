"""A training service that computes nothing and takes its time: declared latencies, made-up tokens.

    python benchmarks/simulated.py --port 8123 --model tiny --sample lognormal:0.4,0.8

It stands behind the same protocol and application as `rlc serve`, or is called in-process, and
speaks the interface of `rlc.service.interface`. What it answers depends on the prompt alone:

- Sample number k of a prompt, over a whole run, takes a time and has tokens drawn from (prompt,
  k). A request of several samples is answered with the slowest, so n requests of one and one
  request of n are as slow.
- The logprobs of a prompt take a time drawn from the prompt.
- A model's gradients, updates and snapshots are worked off one after the other, each in a fixed
  time; different models, all samples and all logprobs run side by side.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TextIO, TypeVar

import numpy as np
from attrs import define, field, frozen
from made_up_outputs import LOGPROB, output_of
from tinker import types

import rlc.service.engine  # noqa: F401 (before torch)
from rlc.service.engine.checkpoints import CheckpointStore, Description
from rlc.service.engine.custom_loss import CustomLoss
from rlc.service.engine.lora import LoraSpec
from rlc.service.engine.service import ModelFacts, find_folder
from rlc.service.server.faults import ConstantDelay, Delay, parse_delay

T = TypeVar("T")
CONTEXT = 32_768
SCORED = -0.4  # logprob of a token that is scored, as if by another model


@frozen
class Times:
    """How long things take, in seconds. A ``gradient`` or ``forward`` pass is one request,
    of however many datums, to which a gradient adds ``token`` for each of its tokens; ``score`` is
    the logprobs of one prompt."""

    sample: Delay = field(factory=ConstantDelay)
    score: Delay = field(factory=ConstantDelay)
    forward: float = 0.0
    gradient: float = 0.0
    update: float = 0.0
    snapshot: float = 0.0
    token: float = 0.0


@frozen
class Draw:
    """A sample: its seconds, and tokens with their logprobs."""

    seconds: float
    tokens: list[int]
    logprobs: list[float]


@define(eq=False)
class SimulatedService:
    """See :class:`rlc.service.interface.ServiceClient`. ``replies`` are the texts, as tokens, that
    a sample may be; one of them is drawn."""

    store: CheckpointStore
    times: Times
    replies: Sequence[Sequence[int]]
    device: Any = field(factory=lambda: SimpleNamespace(type="none"))
    trained_tokens: int = 0
    asked: Counter[bytes] = field(factory=Counter)
    events: TextIO | None = None  # is told of samples and updates, one JSON object a line

    def tell(self, **event: Any) -> None:
        if self.events is not None:
            print(json.dumps({"at": time.time(), **event}), file=self.events, flush=True)

    def draw(self, model: str, prompt: Sequence[int], count: int) -> list[Draw]:
        """The next samples of a prompt, for a model: another one starts anew."""
        key = blake2b(np.asarray(prompt, dtype=np.int64).tobytes(), digest_size=8).digest()
        asked = key + model.encode()
        first = self.asked[asked]
        self.asked[asked] += count
        draws = [self._draw(key, first + number) for number in range(count)]
        self.tell(kind="sample", seconds=[draw.seconds for draw in draws])
        return draws

    def _draw(self, key: bytes, number: int) -> Draw:
        bits = blake2b(key, digest_size=16, salt=number.to_bytes(8, "little")).digest()
        quantile = int.from_bytes(bits[:8], "little") / 2**64
        tokens = list(self.replies[int.from_bytes(bits[8:], "little") % len(self.replies)])
        return Draw(self.times.sample.at(quantile), tokens, [LOGPROB] * len(tokens))

    def trainer(self, base_model: str, spec: LoraSpec, model: str) -> SimulatedTrainer:
        """A new client of the kind that this service has."""
        return SimulatedTrainer(self, base_model, spec, model)

    def sampler(self, model: str) -> SimulatedSampler:
        """A new client on a snapshot of a model's weights."""
        return SimulatedSampler(self, model)

    async def facts(self, base_model: str) -> ModelFacts:
        return ModelFacts(CONTEXT, "simulated", find_folder(base_model), frozenset())

    async def create_lora_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,  # noqa: ARG002
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: dict[str, str] | None = None,  # noqa: ARG002
        model: str | None = None,
    ) -> SimulatedTrainer:
        spec = LoraSpec(rank, train_mlp, train_attn, train_unembed)
        return self.trainer(base_model, spec, model or self.store.claim_model())

    async def create_training_client_from_state_with_optimizer(
        self,
        path: str,
        user_metadata: dict[str, str] | None = None,  # noqa: ARG002
        model: str | None = None,
    ) -> SimulatedTrainer:
        description = self.store.load(path).description
        name = model or self.store.claim_model()
        return self.trainer(description.base_model, description.lora, name)

    create_training_client_from_state = create_training_client_from_state_with_optimizer

    async def create_sampling_client(
        self,
        model_path: str | None = None,
        base_model: str | None = None,  # noqa: ARG002
        *,
        record_stability_info: bool = False,  # noqa: ARG002
    ) -> SimulatedSampler:
        if model_path is not None:
            self.store.load(model_path)  # raises ServiceError if there is none
        model = "" if model_path is None else model_path.split("/")[2]
        return self.sampler(model)

    async def create_custom_loss(
        self, fn: Callable[..., Any], input_ranks: Mapping[str, Literal[0, 1, 2]]
    ) -> CustomLoss:
        return CustomLoss.trace(fn, input_ranks)

    async def delete_checkpoint(self, path: str) -> None:
        self.store.delete(path)

    def close(self) -> None:
        """Nothing is running."""


@define(eq=False)
class SimulatedSampler:
    """See :class:`rlc.service.interface.SamplingClient`."""

    service: SimulatedService
    model: str

    def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
        *_: Any,  # other scores, which are not simulated
        **__: Any,
    ) -> Awaitable[types.SampleResponse]:
        if include_prompt_logprobs:  # what the SDK sends for `compute_logprobs`
            return self._scored(prompt)
        most = sampling_params.max_tokens or CONTEXT
        draws = self.service.draw(self.model, prompt.to_ints(), num_samples)
        sequences = [
            types.SampledSequence(
                stop_reason="stop" if len(draw.tokens) <= most else "length",
                sequence_id="",
                tokens_np=np.array(draw.tokens[:most], dtype=np.int32),
                logprobs_np=np.array(draw.logprobs[:most], dtype=np.float32),
            )
            for draw in draws
        ]
        answer = types.SampleResponse(sequences=sequences)
        return _after(max(draw.seconds for draw in draws), answer)

    async def compute_logprobs(self, prompt: types.ModelInput) -> list[float | None]:
        return (await self._scored(prompt)).prompt_logprobs or []

    def _scored(self, prompt: types.ModelInput) -> Awaitable[types.SampleResponse]:
        """The logprobs of a prompt, with a sample of one token that nobody looks at."""
        content = np.asarray(prompt.to_ints(), dtype=np.int64).tobytes()
        bits = blake2b(content, digest_size=8, person=b"score").digest()
        seconds = self.service.times.score.at(int.from_bytes(bits, "little") / 2**64)
        self.service.tell(kind="score", seconds=seconds)
        logprobs = np.full(prompt.length, SCORED, np.float32)
        logprobs[0] = np.nan
        sequence = types.SampledSequence(
            stop_reason="length",
            sequence_id="",
            tokens_np=np.zeros(1, np.int32),
            logprobs_np=np.full(1, LOGPROB, np.float32),
        )
        answer = types.SampleResponse(sequences=[sequence], prompt_logprobs_np=logprobs)
        return _after(seconds, answer)


@define(eq=False)
class SimulatedTrainer:
    """See :class:`rlc.service.interface.TrainingClient`."""

    service: SimulatedService
    base_model: str
    spec: LoraSpec
    model: str
    _queue: deque[asyncio.Task[Any]] = field(factory=lambda: deque(maxlen=1), init=False)

    @property
    def trainer(self) -> Any:
        """What the server asks a trained model for."""
        return SimpleNamespace(adapter=SimpleNamespace(spec=self.spec))

    def forward(
        self,
        data: list[types.Datum],
        loss_fn: str | CustomLoss,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        return self._pass(self.service.times.forward, data, loss_fn, loss_fn_config)

    def forward_backward(
        self,
        data: list[types.Datum],
        loss_fn: str | CustomLoss,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        tokens, times = sum(datum.model_input.length for datum in data), self.service.times
        self.service.trained_tokens += tokens
        self.service.tell(kind="gradient", tokens=tokens)
        return self._pass(times.gradient + times.token * tokens, data, loss_fn, loss_fn_config)

    def forward_backward_custom(
        self, data: list[types.Datum], loss_fn: CustomLoss
    ) -> Awaitable[types.ForwardBackwardOutput]:
        return self.forward_backward(data, loss_fn)

    def optim_step(
        self,
        optim_params: types.AdamParams,  # noqa: ARG002
    ) -> Awaitable[types.OptimStepResponse]:
        def update() -> types.OptimStepResponse:
            self.service.tell(kind="update", model=self.model, processor=time.process_time())
            return types.OptimStepResponse()

        return self._work(self.service.times.update, update)

    def save_state(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> Awaitable[types.SaveWeightsResponse]:
        def save() -> types.SaveWeightsResponse:
            given = self._describe(0, ttl_seconds, user_metadata)
            path = self.service.store.save(self.model, "weights", name, {}, given, overwrite)
            return types.SaveWeightsResponse(path=path)

        return self._work(self.service.times.snapshot, save)

    def save_weights_for_sampler(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = True,
        user_metadata: dict[str, str] | None = None,
    ) -> Awaitable[types.SaveWeightsForSamplerResponse]:
        def save() -> types.SaveWeightsForSamplerResponse:
            given = self._describe(None, ttl_seconds, user_metadata)
            path = self.service.store.save(
                self.model, "sampler_weights", name, {}, given, overwrite
            )
            return types.SaveWeightsForSamplerResponse(path=path)

        return self._work(self.service.times.snapshot, save)

    def save_weights_and_get_sampling_client(
        self,
        *,
        record_stability_info: bool = False,  # noqa: ARG002
    ) -> Awaitable[SimulatedSampler]:
        return self._work(self.service.times.snapshot, lambda: self.service.sampler(self.model))

    def get_tokenizer(self) -> Any:
        return tokenizer_of(self.base_model)

    def _describe(
        self, steps: int | None, ttl: int | None, metadata: dict[str, str] | None
    ) -> Description:
        expiry = self.service.store.expiry(ttl)
        return Description(self.base_model, "simulated", self.spec, steps, expiry, metadata)

    def _pass(
        self,
        seconds: float,
        data: list[types.Datum],
        loss_fn: str | CustomLoss,
        config: Mapping[str, float | str] | None,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        def output() -> types.ForwardBackwardOutput:
            return output_of(data, loss_fn, config)

        return self._work(seconds, output)

    def _work(self, seconds: float, make: Callable[[], T]) -> Awaitable[T]:
        """In turn: after what was asked for before has been done."""
        before = self._queue[-1] if self._queue else None

        async def work() -> T:
            if before is not None:
                with suppress(Exception):  # whoever asked for it hears of it
                    await asyncio.shield(before)
            if seconds:
                await asyncio.sleep(seconds)
            return make()

        task = asyncio.ensure_future(work())
        self._queue.append(task)
        return task


async def _after(seconds: float, answer: T) -> T:
    if seconds:
        await asyncio.sleep(seconds)
    return answer


@cache
def tokenizer_of(base_model: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(find_folder(base_model))


def tiny_replies(texts: Sequence[str]) -> list[list[int]]:
    """Texts as the tiny model's chat replies, with the token that ends them."""
    tokenizer = tokenizer_of("tiny")
    return [tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False) for text in texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", default="tiny", help="the name that clients call it by")
    parser.add_argument("--checkpoints", type=Path, required=True)
    for kind in ("sample", "score"):
        parser.add_argument(f"--{kind}", default="0", help="seconds, or lognormal:MEDIAN,SIGMA …")
    for kind in ("forward", "gradient", "update", "snapshot", "token"):
        parser.add_argument(f"--{kind}", type=float, default=0.0)
    parser.add_argument("--quick", action="store_true", help="answer samples at next to no cost")
    parser.add_argument("--flags", type=json.loads, default={}, help="of the SDK, with --quick")
    parser.add_argument("--replies", type=json.loads, default=["0", "1", "2"])
    options = parser.parse_args()
    serve(options)


def serve(options: argparse.Namespace) -> None:
    """Serve until told to stop; the first line says where."""
    from rlc.service.http import Server
    from rlc.service.server.app import build_app
    from rlc.service.server.backend import Backend, load_models
    from rlc.service.sockets import LOOPBACK, bind

    times = Times(
        parse_delay(options.sample),
        parse_delay(options.score),
        options.forward,
        options.gradient,
        options.update,
        options.snapshot,
        options.token,
    )
    engine: Any = SimulatedService(
        CheckpointStore(options.checkpoints),
        times,
        tiny_replies(options.replies),
        events=(options.checkpoints / "events.jsonl").open("a", encoding="utf-8"),
    )
    served = asyncio.run(load_models(engine, {options.model: "tiny"}))
    backend = Backend(engine, served)
    with bind(LOOPBACK, options.port) as listening:
        print(f"TINKER_BASE_URL=http://{LOOPBACK}:{listening.getsockname()[1]}", flush=True)
        server = Server(build_app(backend), backend.futures.close)
        if options.quick:
            import uvloop
            from quick_server import quick_protocol

            asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
            given = engine.replies, times.sample.at(0.5), engine.events, options.flags
            server.config.http = quick_protocol(*given)
        server.serve_on(listening)


if __name__ == "__main__":
    main()
