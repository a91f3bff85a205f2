"""A training service whose model is a table of numbers: a double of the embedded engine.

It answers whatever a run asks, in the engine's order of requests, with the engine's checks of
losses and its files of checkpoints; only the model is another one. That is a softmax over the next
token, whose logits are what mostly follows the last token and a row that a hash of the whole text
picks. So replies depend on the prompt, the seed and the weights, a gradient changes later replies,
and a saved state goes on to the same bits. It costs a small part of a transformer and learns
little: what a model learns, and how exact its numbers are, is asked of the engine.

Dimensions: T tokens of a text, V vocabulary, R rows of the table, P parameters.
"""

from __future__ import annotations

import copy
import math
import random
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import transformers
from attrs import define, field, frozen
from tinker import types
from tinker.types.topk_logprobs import MASK_LOGPROB, TopkLogprobs

import rlc.service.engine
from rlc.algo.errors import AlgorithmError
from rlc.algo.served import builtin_loss_and_grad
from rlc.service import tiny
from rlc.service.engine.checkpoints import CheckpointStore, Description, Kind
from rlc.service.engine.lora import LoraSpec
from rlc.service.engine.losses import BuiltinLoss
from rlc.service.engine.service import ModelFacts
from rlc.service.engine.waves import PendingRequest, WaveWorker, attempt
from rlc.service.interface import LossHandle, MappedAwaitable, ServiceError

T = TypeVar("T")
Floats = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

TINY = "tiny"
CONTEXT = 8192  # tokens, as many as the tiny model takes
_ROWS = 16
_HASH = 2**61 - 1  # a prime: hashes are numbers below it


@frozen(eq=False)
class Table:
    """The base model: the tiny model's tokens, and logits for what follows them.

    A reply begins as that of the tiny model does: a box with a number or a word in it.
    """

    tokenizer: Any  # to be copied, since one serves one thread at a time
    follows_VV: Floats
    rows_RV: Floats
    end: int

    @classmethod
    def make(cls) -> Table:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(tiny.path()))
        ids, size = tokenizer.get_vocab(), len(tokenizer)
        end = int(tokenizer.eos_token_id)
        digits = [ids[c] for c in "0123456789"]
        letters = [ids[c] for c in "abcdefghijklmnopqrstuvwxyz"]
        boxed = tokenizer.encode("\\boxed{")[0]
        close = ids["}"]
        follows_VV = np.full((size, size), -6, dtype=np.float32)
        follows_VV[:, [*digits, *letters]] = [1] * 10 + [0] * 26
        follows_VV[:, boxed] = 8
        follows_VV[boxed, [*digits, *letters, boxed]] = [3] * 10 + [0.7] * 26 + [-6]
        follows_VV[[*digits, *letters], :] = -6
        follows_VV[np.ix_(digits, [*digits, close, end])] = [0] * 10 + [6, 2]
        follows_VV[np.ix_(letters, [*letters, close, end])] = [3] * 26 + [4.5, 3]
        follows_VV[close, end] = 10
        rows_RV = np.random.default_rng(0).normal(scale=0.5, size=(_ROWS, size)).astype(np.float32)
        return cls(tokenizer, follows_VV, rows_RV, end)

    @property
    def vocabulary(self) -> int:
        return len(self.follows_VV)

    def fresh_weights(self) -> Floats:
        """Return weights that change nothing: a row for each hash, and one for all texts."""
        return np.zeros((_ROWS + 1, self.vocabulary), dtype=np.float32)

    def logits(self, weights: Floats, tokens: IntArray, rows: IntArray) -> Floats:
        """Return the logits [T, V] of what follows each token, whose text so far has that row."""
        rows_TV = (self.rows_RV + weights[:-1])[rows]
        return np.asarray(self.follows_VV[tokens] + rows_TV + weights[-1])

    def logprobs(self, weights: Floats, tokens: IntArray) -> Floats:
        """Return the logprobs [T, V] of what follows each beginning of a text."""
        return log_softmax(self.logits(weights, tokens, rows_of(tokens)))

    def token_ids(self, text: types.ModelInput, where: str) -> IntArray:
        """Return the tokens of an input. Raise ServiceError unless the model can read them."""
        tokens = np.array(text.to_ints(), dtype=np.int64)
        if not len(tokens):
            raise ServiceError(f"{where} has no tokens.")
        if len(tokens) > CONTEXT:
            raise ServiceError(f"{where} has {len(tokens)} tokens, more than {CONTEXT}.")
        if tokens.min() < 0 or tokens.max() >= self.vocabulary:
            raise ServiceError(f"{where} has a token outside the vocabulary.")
        return tokens


@cache
def table() -> Table:
    """Return the base model, which is made once a process."""
    return Table.make()


_SPARE = dict[int, Any]()  # tokenizers of services that are closed, by their ids


def own_tokenizer() -> Any:
    """Return a tokenizer that no other open service has; to copy one takes 6 ms."""
    return _SPARE.popitem()[1] if _SPARE else copy.deepcopy(table().tokenizer)


def longer(text: int, token: int) -> int:
    """Return the hash of a text with one more token."""
    return (text * 1_000_003 + token + 1) % _HASH


def rows_of(tokens: Sequence[int] | IntArray) -> IntArray:
    """Return the row [T] of the text up to each token."""
    rows, text = [], 0
    for token in map(int, tokens):
        text = longer(text, token)
        rows.append(text % _ROWS)
    return np.array(rows, dtype=np.int64)


def log_softmax(logits: Floats) -> Floats:
    """Return logprobs over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def most_likely(logprobs_TV: Floats, k: int, skipped: int = 0) -> TopkLogprobs:
    """Return the ``k`` most likely tokens of each row, after ``skipped`` rows of none."""
    best_TK = np.argsort(-logprobs_TV, axis=-1, kind="stable")[:, :k]
    return TopkLogprobs(
        np.vstack([np.zeros((skipped, k), np.int32), best_TK.astype(np.int32)]),
        np.vstack(
            [
                np.full((skipped, k), MASK_LOGPROB, np.float32),
                np.take_along_axis(logprobs_TV, best_TK, axis=-1),
            ]
        ),
    )


@frozen(eq=False)
class Request:
    """What is sampled from some weights, and what is wanted beside the tokens."""

    weights: Floats
    tokenizer: Any  # of the thread that samples
    prompt: IntArray
    samples: int
    params: types.SamplingParams
    seed: int
    prompt_logprobs: bool = False
    topk_prompt: int = 0
    topk_sample: int = 0

    def answer(self) -> types.SampleResponse:
        """Draw the samples, each from a random stream of its own."""
        logprobs = topk = None
        if self.prompt_logprobs or self.topk_prompt:
            logprobs_TV = table().logprobs(self.weights, self.prompt)[:-1]
            if self.prompt_logprobs:
                found = np.take_along_axis(logprobs_TV, self.prompt[1:, None], axis=1)[:, 0]
                logprobs = np.concatenate([np.full(1, np.nan, np.float32), found])
            if self.topk_prompt:
                topk = most_likely(logprobs_TV, self.topk_prompt, skipped=1)
        return types.SampleResponse(
            sequences=[self._draw(i) for i in range(self.samples)],
            prompt_logprobs_np=logprobs,
            topk_prompt_logprobs_np=topk,
        )

    def _draw(self, number: int) -> types.SampledSequence:
        model, stream = table(), random.Random(f"{self.seed}/{number}")
        text, last, limit = 0, int(self.prompt[-1]), self._limit()
        for token in self.prompt.tolist():
            text = longer(text, token)
        tokens, logprobs, likely = list[int](), list[float](), list[Floats]()
        while len(tokens) < limit and not (tokens and self._stops(tokens)):
            logits_1V = model.logits(self.weights, np.array([last]), np.array([text % _ROWS]))
            tempered_V = log_softmax(logits_1V[0] / np.float32(self.params.temperature or 1.0))
            last, logprob = pick(tempered_V, self.params, stream.random())
            tokens.append(last)
            logprobs.append(logprob)
            likely.append(tempered_V)
            text = longer(text, last)
        return types.SampledSequence(
            stop_reason="stop" if self._stops(tokens) else "length",
            sequence_id=f"{self.seed}-{number}",
            tokens_np=np.array(tokens, dtype=np.int32),
            logprobs_np=np.array(logprobs, dtype=np.float32),
            topk_logprobs_np=most_likely(np.stack(likely), self.topk_sample)
            if self.topk_sample
            else None,
        )

    def _limit(self) -> int:
        room = CONTEXT - len(self.prompt)
        limit = room if self.params.max_tokens is None else self.params.max_tokens
        if not 1 <= limit <= room:
            raise ServiceError(
                f"The prompt's {len(self.prompt)} tokens and max_tokens = {self.params.max_tokens} "
                f"exceed the model's context of {CONTEXT}."
            )
        return limit

    def _stops(self, tokens: list[int]) -> bool:
        """Return whether the last token has ended a reply."""
        stop = self.params.stop
        items: list[Any] = (
            [table().end] if stop is None else [stop] if isinstance(stop, str) else [*stop]
        )
        if not items or isinstance(items[0], int):
            return tokens[-1] in items
        text = self.tokenizer.decode(tokens, skip_special_tokens=False)
        return any(item in text for item in items)


def pick(logprobs_V: Floats, params: types.SamplingParams, uniform: float) -> tuple[int, float]:
    """Return a token and its logprob in the distribution that is sampled from."""
    if params.temperature == 0:
        best = int(logprobs_V.argmax())
        return best, float(logprobs_V[best])
    order_V = np.argsort(-logprobs_V, kind="stable")
    chances_V = np.exp(logprobs_V[order_V].astype(np.float64))
    kept = len(order_V) if params.top_k == -1 else params.top_k
    if params.top_p < 1:
        kept = min(kept, int(np.searchsorted(np.cumsum(chances_V), params.top_p)) + 1)
    cumulative = np.cumsum(chances_V[:kept])
    place = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    place = min(place, kept - 1)
    return int(order_V[place]), float(np.log(chances_V[place] / cumulative[-1]))


def answer_all(wave: Sequence[PendingRequest[Request]]) -> list[Any]:
    """Return a response for each request, or the exception that it raised."""
    return [attempt(pending.work.answer) for pending in wave]


@define(eq=False)
class PlainSamplingClient:
    """Samples from one snapshot; see `rlc.service.interface.SamplingClient`."""

    service: PlainService
    weights: Floats

    def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        prompt_logprobs_last_n: int | None = None,
        topk_sample_logprobs: int = 0,
        target_prompt_logprobs: types.TensorData | None = None,
        prompt_alt_tokens_k: int = 0,
    ) -> Awaitable[types.SampleResponse]:
        if prompt_logprobs_last_n or target_prompt_logprobs or prompt_alt_tokens_k:
            raise ServiceError("A table of numbers scores whole prompts, and their own tokens.")
        seed = sampling_params.seed
        return self.service.worker.sample(
            Request(
                self.weights,
                self.service.decoding_tokenizer,
                table().token_ids(prompt, "The prompt"),
                num_samples,
                sampling_params,
                secrets.randbits(64) if seed is None else seed,
                include_prompt_logprobs,
                topk_prompt_logprobs,
                topk_sample_logprobs,
            )
        )

    def compute_logprobs(self, prompt: types.ModelInput) -> Awaitable[list[float | None]]:
        reply = self.sample(prompt, 0, types.SamplingParams(max_tokens=1), True)
        return MappedAwaitable(reply, lambda scored: scored.prompt_logprobs or [])

    def get_tokenizer(self) -> Any:
        return self.service.tokenizer


@define(eq=False)
class PlainTrainingClient:
    """The weights of the table and Adam's moments; see `rlc.service.interface.TrainingClient`."""

    service: PlainService
    spec: LoraSpec
    weights: Floats = field(factory=lambda: table().fresh_weights())
    mean: Floats = field(factory=lambda: table().fresh_weights())
    square: Floats = field(factory=lambda: table().fresh_weights())
    steps: int = 0
    gradient: Floats | None = field(default=None, init=False)
    model: str | None = field(default=None, kw_only=True)  # the folder of its checkpoints

    def forward(
        self,
        data: list[types.Datum],
        loss_fn: str,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        return self.service.worker.submit(lambda: self.passed(data, loss_fn, loss_fn_config)[0])

    def forward_backward(
        self,
        data: list[types.Datum],
        loss_fn: str,
        loss_fn_config: Mapping[str, float | str] | None = None,
    ) -> Awaitable[types.ForwardBackwardOutput]:
        def run() -> types.ForwardBackwardOutput:
            output, gradient = self.passed(data, loss_fn, loss_fn_config)
            self.add(gradient)
            return output

        return self.service.worker.submit(run)

    def forward_backward_custom(
        self, data: list[types.Datum], loss_fn: LossHandle
    ) -> Awaitable[types.ForwardBackwardOutput]:
        raise ServiceError("A table of numbers computes no custom losses.")

    def optim_step(self, optim_params: types.AdamParams) -> Awaitable[types.OptimStepResponse]:
        return self.service.worker.submit(lambda: self.step(optim_params))

    def save_state(
        self,
        name: str,
        ttl_seconds: int | None = None,
        overwrite: bool = False,
        user_metadata: dict[str, str] | None = None,
    ) -> Awaitable[types.SaveWeightsResponse]:
        save = partial(self._save, "weights", name, ttl_seconds, overwrite, user_metadata)
        return self.service.worker.submit(lambda: types.SaveWeightsResponse(path=save()))

    def save_weights_for_sampler(
        self,
        name: str,
        ttl_seconds: int | None = None,
        user_metadata: dict[str, str] | None = None,
    ) -> Awaitable[types.SaveWeightsForSamplerResponse]:
        save = partial(self._save, "sampler_weights", name, ttl_seconds, False, user_metadata)
        return self.service.worker.submit(lambda: types.SaveWeightsForSamplerResponse(path=save()))

    def save_weights_and_get_sampling_client(
        self, *, record_stability_info: bool = False
    ) -> Awaitable[PlainSamplingClient]:
        return self.service.worker.submit(
            lambda: PlainSamplingClient(self.service, self.weights.copy())
        )

    def get_tokenizer(self) -> Any:
        return self.service.tokenizer

    def add(self, gradient: Floats) -> None:
        """Add to the gradient of the next step."""
        self.gradient = gradient if self.gradient is None else self.gradient + gradient

    def passed(
        self,
        data: Sequence[types.Datum],
        loss_fn: str,
        config: Mapping[str, float | str] | None,
    ) -> tuple[types.ForwardBackwardOutput, Floats]:
        """Return logprobs and summed loss, and the gradient of that."""
        if not data:
            raise ServiceError("There is no data to compute a loss on.")
        loss, summed, outputs = BuiltinLoss.of(loss_fn, config), 0.0, []
        gradient = np.zeros_like(self.weights)
        for i, datum in enumerate(data):
            arrays = loss.read_inputs(datum, f"Datum {i}")
            targets = arrays.pop("target_tokens")
            targets_TK = targets.reshape(len(targets), -1)
            tokens = table().token_ids(datum.model_input, f"Datum {i}")
            logprobs_TV = table().logprobs(self.weights, tokens)
            logprobs_TK = np.take_along_axis(logprobs_TV, targets_TK, axis=1)
            per_token = {key for key in arrays if key.startswith("clip_")}
            inputs = {
                k: v.ravel() for k, v in arrays.items() if k in per_token or k not in loss.settings
            }
            try:
                value, slopes = builtin_loss_and_grad(
                    loss_fn, loss.settings, logprobs_TK.ravel(), inputs
                )
            except AlgorithmError as error:
                raise ServiceError(str(error)) from error
            summed += value
            slopes_TK = slopes.reshape(targets_TK.shape).astype(np.float32)
            moved_TV = -np.exp(logprobs_TV) * slopes_TK.sum(axis=1, keepdims=True)
            np.add.at(moved_TV, (np.arange(len(tokens))[:, None], targets_TK), slopes_TK)
            np.add.at(gradient, rows_of(tokens), moved_TV)
            gradient[-1] += moved_TV.sum(axis=0)
            outputs.append(
                {"logprobs": types.TensorData.from_numpy(logprobs_TK.reshape(targets.shape))}
            )
        output = types.ForwardBackwardOutput("logprobs", outputs, {"loss:sum": summed})
        return output, gradient

    def step(self, params: types.AdamParams) -> types.OptimStepResponse:
        """Step AdamW; without a gradient since the last step nothing changes."""
        gradient, self.gradient = self.gradient, None
        if gradient is None:
            return types.OptimStepResponse(metrics={"grad_norm": 0.0})
        norm = float(np.linalg.norm(gradient.astype(np.float64)))
        if not math.isfinite(norm):
            raise ServiceError("The gradient is not finite, so no optimiser step was taken.")
        if params.grad_clip_norm > 0:
            gradient = gradient * np.float32(min(1.0, params.grad_clip_norm / (norm + 1e-6)))
        self.steps += 1
        beta1, beta2 = np.float32(params.beta1), np.float32(params.beta2)
        self.mean = beta1 * self.mean + (1 - beta1) * gradient
        self.square = beta2 * self.square + (1 - beta2) * gradient**2
        mean = self.mean / np.float32(1 - params.beta1**self.steps)
        spread = np.sqrt(self.square / np.float32(1 - params.beta2**self.steps))
        kept = np.float32(1 - params.learning_rate * params.weight_decay)
        moved = np.float32(params.learning_rate) * mean / (spread + np.float32(params.eps))
        self.weights = kept * self.weights - moved
        return types.OptimStepResponse(metrics={"grad_norm": norm})

    def _save(
        self,
        kind: Kind,
        name: str,
        ttl_seconds: int | None,
        overwrite: bool,
        user_metadata: dict[str, str] | None,
    ) -> str:
        if self.model is None:
            self.model = self.service.store.claim_model()
        arrays = {"adapter/table": self.weights}
        if kind == "weights":
            arrays |= {"adam_mean/table": self.mean, "adam_square/table": self.square}
        steps = self.steps if kind == "weights" else None
        expires_at = self.service.store.expiry(ttl_seconds)
        about = "a table of numbers", self.spec, steps, expires_at, user_metadata
        description = Description(TINY, *about)
        return self.service.store.save(self.model, kind, name, arrays, description, overwrite)


@define(eq=False)
class PlainService:
    """Saves under a folder; see `rlc.service.interface.ServiceClient`."""

    store: CheckpointStore
    worker: WaveWorker[Request] = field(factory=lambda: WaveWorker(answer_all, 1))
    tokenizer: Any = field(factory=own_tokenizer)
    decoding_tokenizer: Any = field(factory=own_tokenizer)

    def create_lora_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: dict[str, str] | None = None,
        model: str | None = None,
    ) -> Awaitable[PlainTrainingClient]:
        def create() -> PlainTrainingClient:
            require_tiny(base_model)
            spec = LoraSpec(rank, train_mlp, train_attn, train_unembed)
            return PlainTrainingClient(self, spec, model=model)

        return self.worker.submit(create)

    def create_training_client_from_state_with_optimizer(
        self, path: str, user_metadata: dict[str, str] | None = None, model: str | None = None
    ) -> Awaitable[PlainTrainingClient]:
        def create() -> PlainTrainingClient:
            saved = self.store.load(path)
            steps, arrays = saved.description.optimizer_steps, saved.arrays
            if steps is None:
                raise ServiceError(f"{path} holds weights for sampling, not an optimiser's state.")
            return PlainTrainingClient(
                self,
                saved.description.lora,
                arrays["adapter/table"],
                arrays["adam_mean/table"],
                arrays["adam_square/table"],
                steps,
                model=model,
            )

        return self.worker.submit(create)

    def create_training_client_from_state(
        self, path: str, user_metadata: dict[str, str] | None = None, model: str | None = None
    ) -> Awaitable[PlainTrainingClient]:
        def create() -> PlainTrainingClient:
            saved = self.store.load(path)
            lora = saved.description.lora
            return PlainTrainingClient(self, lora, saved.arrays["adapter/table"], model=model)

        return self.worker.submit(create)

    def create_training_client_from_adapter(
        self, folder: str, base_model: str, user_metadata: dict[str, str] | None = None
    ) -> Awaitable[PlainTrainingClient]:
        raise ServiceError("A table of numbers takes no adapters.")

    def create_sampling_client(
        self,
        model_path: str | None = None,
        base_model: str | None = None,
        *,
        record_stability_info: bool = False,
    ) -> Awaitable[PlainSamplingClient]:
        def create() -> PlainSamplingClient:
            if model_path is not None:
                return PlainSamplingClient(
                    self, self.store.load(model_path).arrays["adapter/table"]
                )
            require_tiny(base_model)
            return PlainSamplingClient(self, table().fresh_weights())

        return self.worker.submit(create)

    def create_custom_loss(
        self, fn: Callable[..., Any], input_ranks: Mapping[str, Literal[0, 1, 2]]
    ) -> Awaitable[LossHandle]:
        raise ServiceError("A table of numbers computes no custom losses.")

    def delete_checkpoint(self, path: str) -> Awaitable[None]:
        return self.in_turn(lambda store: store.delete(path))

    def in_turn(self, work: Callable[[CheckpointStore], T]) -> Awaitable[T]:
        """Do something with the checkpoints between two requests."""
        return self.worker.submit(lambda: work(self.store))

    def facts(self, base_model: str) -> Awaitable[ModelFacts]:
        """What a server says of the model."""
        require_tiny(base_model)
        end = frozenset({table().end})
        return self.worker.submit(lambda: ModelFacts(CONTEXT, "table", tiny.path(), end))

    def close(self) -> None:
        """Finish what was submitted, and end the thread."""
        self.worker.close()
        _SPARE.update({id(one): one for one in (self.tokenizer, self.decoding_tokenizer)})


def require_tiny(base_model: str | None) -> None:
    """Raise ServiceError for another base model than the tiny one."""
    if base_model != TINY:
        raise ServiceError(f"A table of numbers stands for {TINY!r}, not for {base_model!r}.")


def open_plain(root: Path, *_: Any, **__: Any) -> PlainService:
    """Open the double as `rlc.service.engine.open_engine` opens the engine."""
    return PlainService(CheckpointStore(Path(root)))


@contextmanager
def plain_service() -> Iterator[None]:
    """Until the block ends, whoever opens the embedded engine gets the double."""
    with patch("rlc.service.engine.open_engine", open_plain):
        yield


def is_plain() -> bool:
    """Return whether the double stands in for the engine now."""
    opens: object = rlc.service.engine.open_engine
    return opens is open_plain
