"""Checks, and what they work with: the SDK's clients, small datums, measures, a count of tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as OutOfTime
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import numpy as np
import tinker
from attrs import asdict, define, evolve, field, frozen
from tinker import types

from rlc.algo import Floats
from rlc.catalog import LIKELIHOOD, service_loss_traits, service_settings
from rlc.errors import Error
from rlc.service import tiny
from rlc.service.gradients import (
    IDS,
    Conversation,
    Fresh,
    MeasuredDifference,
    Pass,
    Request,
    Ruler,
    Sample,
    Snapshot,
    datum,
    likelihood,
    trained_logprobs,
)
from rlc.service.hosted.endpoint import Endpoint
from rlc.service.interface import ServiceError


@frozen
class TokenCount:
    """Tokens that the server was asked to process."""

    prefill: int = 0
    sample: int = 0
    train: int = 0


class DiffersError(Error):
    """The server differs from the protocol, and the check cannot go on."""


PROMPT = IDS[:16]
_PULL = 0.1  # of a pull to the sampler: strong enough to be measured


def prompt(tokens: Sequence[int]) -> types.ModelInput:
    return types.ModelInput.from_ints(list(tokens))


def config_of(loss: str) -> dict[str, float]:
    """Return the settings of a loss: its defaults, and a strength of a pull to the sampler."""
    pull = service_loss_traits(loss).pull
    settings = service_settings(loss).items()
    return {key: _PULL if v is None or key == pull else v for key, v in settings}


def recorded(sequence: types.SampledSequence, inputs: Mapping[str, Floats]) -> types.Datum:
    """Return a datum of `PROMPT` and a reply to it, with the provenance of its tokens."""
    known, reply = len(PROMPT), list(sequence.tokens)
    of_prompt = partial(types.PromptProvenanceSpan, sequence_id=sequence.sequence_id)
    of_reply = partial(types.SampledProvenanceSpan, sequence_id=sequence.sequence_id)
    seen = [of_reply(length=len(reply) - 1)] if len(reply) > 1 else []
    return datum([*PROMPT, *reply], inputs).with_provenance(
        model_input=[of_prompt(length=known), *seen],
        loss_fn_inputs=[of_prompt(offset=1, length=known - 1), of_reply(length=len(reply))],
    )


def reference_logprobs(source: str, tokens: Sequence[int]) -> Floats:
    """Return the logprob of each token but the first, in nats, shape (T - 1,). ``source`` is
    ``tiny`` or a folder of a Hugging Face model. Computed by transformers and not by the embedded
    engine. Raise ServiceError for a model that cannot be loaded."""
    import torch

    with torch.no_grad():
        logits = _model(source)(torch.tensor([list(tokens)])).logits[0, :-1]
        own = logits.log_softmax(-1).gather(1, torch.tensor(list(tokens[1:]))[:, None])[:, 0]
    return np.asarray(own, dtype=np.float64)


@cache
def _model(source: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    folder = tiny.path() if source == "tiny" else Path(source)
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    except (OSError, ValueError) as error:
        raise ServiceError(f"there is no model in {folder}: {error}") from error


_T = TypeVar("_T")

HOUR = 3600  # seconds after which checkpoints expire
RANK, RATE = 4, 1e-3
# Nats by which a sampler may differ from the trainer, on average over tokens: they may compute in
# another precision.
TOLERANCE = 0.05
EXACT = 1e-3  # of one request compared with another to the same model
REFERENCE = 2e-3  # of a model in float32 compared with float64


@define(eq=False)
class Bench:
    """A server under test, the clients that all checks share, and the checkpoints to delete."""

    endpoint: Endpoint
    base: str
    reference: str | None = None
    tolerance: float = TOLERANCE
    publishes: bool = False  # whether checkpoints may be made public for a moment
    tokens: TokenCount = field(factory=TokenCount, init=False)
    paths: list[str] = field(factory=list, init=False)
    rate: float | None = None  # a learning rate whose first step moves logprobs visibly
    rulers: list[Ruler | None] = field(factory=list, init=False)  # one, once it has been found
    sdk: tinker.ServiceClient = field(init=False, repr=False)
    rest: tinker.RestClient = field(init=False, repr=False)
    admin: tinker.AdminClient = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        at: Any = {"base_url": self.endpoint.client_url, "api_key": self.endpoint.api_key}
        self.sdk = self.service(self.endpoint.project)
        self.rest, self.admin = tinker.RestClient(**at), tinker.AdminClient(**at)

    def service(self, project: str | None) -> tinker.ServiceClient:
        at: Any = {"base_url": self.endpoint.client_url, "api_key": self.endpoint.api_key}
        return tinker.ServiceClient(user_metadata={"by": "rlc conform"}, project_id=project, **at)

    def clean_up(self) -> None:
        """Delete saved checkpoints, as far as the server does that, and finish the session."""
        for path in self.paths:
            # It expires by itself; a path of another form is a ValueError of the SDK.
            with suppress(tinker.TinkerError, OutOfTime, ValueError):
                self.rest.delete_checkpoint_from_tinker_path(path).result(timeout=30)
        with suppress(tinker.TinkerError, OutOfTime):  # the session ends by itself, too
            self.sdk.close("success").result(timeout=30)


@define(eq=False)
class Probe:
    """The bench of one check, with what it measures."""

    bench: Bench
    deadline: float  # of `time.monotonic`
    measures: list[MeasuredDifference] = field(factory=list)
    wrong: list[str] = field(factory=list)
    notes: list[str] = field(factory=list)

    def within(self, what: str, found: float, allowed: float) -> None:
        """Measure a difference."""
        self.measures.append(MeasuredDifference(what, float(found), allowed))

    def relative(self, what: str, found: float, expected: float, allowed: float) -> None:
        """Measure a difference relative to what is expected."""
        self.within(what, abs(found - expected) / abs(expected), allowed)

    def close(self, what: str, ours: Any, theirs: Any, allowed: float) -> None:
        """Measure the largest difference of two arrays."""
        self.within(what, _differences(what, ours, theirs).max(initial=0.0), allowed)

    def near(self, what: str, ours: Any, theirs: Any) -> None:
        """Measure the average difference of a sampler's and a trainer's logprobs."""
        self.within(what, _differences(what, ours, theirs).mean(), self.bench.tolerance)

    def that(self, holds: bool, otherwise: str) -> None:
        """Note a difference, unless something holds."""
        if not holds:
            self.wrong.append(otherwise)

    def refused(self, what: str, ask: Callable[[], Any]) -> None:
        """Note a request that is not refused."""
        try:
            ask()
        except (tinker.APIStatusError, tinker.RequestFailedError) as error:
            if isinstance(error, tinker.APIStatusError) and error.status_code >= 500:
                self.wrong.append(f"{what} is an error of the server, not refused")
        else:
            self.wrong.append(f"{what} is accepted")

    def get(self, future: Any) -> Any:
        """Return the result of a future of the SDK. Raise TimeoutError after the deadline."""
        return future.result(timeout=max(0.001, self.deadline - time.monotonic()))

    def train(self, **given: Any) -> tinker.TrainingClient:
        settings = {"rank": RANK, "seed": 7, **given}
        client = self.get(self.bench.sdk.create_lora_training_client(self.bench.base, **settings))
        assert isinstance(client, tinker.TrainingClient)
        return client

    def sampler(self, client: tinker.TrainingClient | None = None, **given: Any) -> Any:
        if client is None:
            return self.get(self.bench.sdk.create_sampling_client(base_model=self.bench.base))
        return self.get(client.save_weights_and_get_sampling_client(**given))

    def sample(
        self,
        sampler: tinker.SamplingClient,
        tokens: Sequence[int] = PROMPT,
        samples: int = 1,
        more: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> types.SampleResponse:
        """Sample; ``more`` are arguments of ``sample`` beyond the first three."""
        limits = types.SamplingParams(**{"max_tokens": 8, "temperature": 1.0, "seed": 3, **params})
        future = sampler.sample(prompt(tokens), samples, limits, **(more or {}))
        response: types.SampleResponse = self.get(future)
        sampled = sum(len(sequence.tokens) for sequence in response.sequences)
        self._count(prefill=len(tokens) * samples, sample=sampled)  # of all but one, cached
        return response

    def scored(self, sampler: tinker.SamplingClient, tokens: Sequence[int], **given: Any) -> Any:
        """Return a sampler's logprobs of a prompt; None for tokens that are not scored."""
        self._count(prefill=len(tokens), sample=1)
        computed = self.get(sampler.compute_logprobs(prompt(tokens), **given))
        last = given.get("prompt_logprobs_last_n", len(tokens) - 1)
        if (missing := [*computed][-last:].count(None)) > 0:
            raise DiffersError(f"{missing} of {last} tokens after others have no logprob")
        return computed

    def forward(
        self,
        client: tinker.TrainingClient,
        data: list[types.Datum],
        loss: Any = LIKELIHOOD.name,
        config: Mapping[str, float | str] | None = None,
        backward: bool = False,
    ) -> types.ForwardBackwardOutput:
        """Run a forward pass, and with ``backward`` add its gradient."""
        asked = Pass(data, loss, config or None, backward)
        output: types.ForwardBackwardOutput = self._answer(client, asked)
        if "loss:sum" not in output.metrics:
            raise DiffersError("the metrics of a pass have no `loss:sum`")
        return output

    def custom(self, client: tinker.TrainingClient, data: list[types.Datum], loss: Any) -> Any:
        """Run a pass with the gradient of a custom loss, and return its metrics."""
        self._count(train=2 * sum(item.model_input.length for item in data))
        return self.get(client.forward_backward_custom(data, loss)).metrics

    def step(self, client: tinker.TrainingClient, learning_rate: float, **given: float) -> Any:
        """Step the optimiser and return the norm of the gradient, None if it is not reported."""
        params = types.AdamParams(learning_rate=learning_rate, **given)
        return (self.get(client.optim_step(params)).metrics or {}).get("grad_norm")

    def logprobs(self, client: tinker.TrainingClient) -> list[Floats]:
        """Return the trainer's logprobs of the datums that all checks share."""
        return trained_logprobs(self.forward(client, likelihood()))

    def logprobs_of_all(self, client: tinker.TrainingClient) -> Floats:
        """Return the same, concatenated."""
        return np.concatenate(self.logprobs(client))

    def stepped(self, client: tinker.TrainingClient, scale: float = 1.0) -> Floats:
        """Step on a gradient of some scale, and return the logprobs of all datums after it."""
        self.forward(client, likelihood(scale), backward=True)
        self.step(client, RATE)
        return self.logprobs_of_all(client)

    def carry_out(self, talk: Conversation[_T], client: tinker.TrainingClient) -> _T:
        """Make the requests of a conversation on a client, and return what it returns."""
        answers: list[Any] | None = None
        while True:
            try:
                requests = next(talk) if answers is None else talk.send(answers)
            except StopIteration as end:
                found: _T = end.value
                return found
            if Fresh() in requests:
                client = self.train()
            answers = [self._answer(client, request) for request in requests]

    def _answer(self, client: tinker.TrainingClient, request: Request) -> Any:
        match request:
            case Pass(data, loss, config, backward):
                self._count(train=request.tokens)
                run = client.forward_backward if backward else client.forward
                return self.get(run(data, cast(Any, loss), config))
            case Snapshot():
                return self.sampler(client)
            case Sample(sampler):
                return self.sample(cast(Any, sampler), max_tokens=1)
            case Fresh():
                return None
            case step:
                return self.get(client.optim_step(step.params))

    def saved(self, saving: Any) -> str:
        """Return the path of a checkpoint when it is saved, and note it to delete it in the end."""
        return self.keep(self.get(saving).path)

    def keep(self, path: str) -> str:
        self.bench.paths.append(path)
        return path

    def _count(self, **more: int) -> None:
        total = {key: getattr(self.bench.tokens, key) + value for key, value in more.items()}
        self.bench.tokens = evolve(self.bench.tokens, **total)


def _differences(what: str, ours: Any, theirs: Any) -> Floats:
    """Return the differences of two arrays. Raise DiffersError if their shapes differ."""
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if ours.shape != theirs.shape:
        raise DiffersError(f"{what} have the shapes {ours.shape} and {theirs.shape}")
    difference: Floats = np.abs(ours - theirs)
    return difference


Run = Callable[[Probe], None]
# `lacks`: the server does not know it, or refuses it by name; `fails`: an error, or no answer.
State = Literal["holds", "differs", "lacks", "fails"]


@frozen
class Check:
    """A promise of the protocol, and how to check it. ``name`` begins with its subject:
    ``losses.ppo``. ``calls`` are the SDK's methods that it is about. A server that conforms may
    lack what is not ``required``."""

    name: str
    promise: str
    calls: tuple[str, ...]
    run: Run
    required: bool = True

    @property
    def subject(self) -> str:
        return self.name.partition(".")[0]


@frozen
class CheckOutcome:
    """The result of a check. ``said``: what differs, or the server's own words."""

    check: Check
    state: State
    said: str
    measures: tuple[MeasuredDifference, ...]
    seconds: float

    @property
    def conforms(self) -> bool:
        return self.state == "holds" or (self.state == "lacks" and not self.check.required)

    @property
    def worst(self) -> MeasuredDifference | None:
        """The measure that is nearest to what is allowed, or furthest beyond it."""
        return max(self.measures, key=lambda m: m.found / m.allowed, default=None)


@frozen
class ConformReport:
    """The outcomes of all checks of a server; ``reference`` names the model that its logprobs were
    compared with, None if it is not at hand."""

    server: str
    model: str
    reference: str | None
    found: tuple[CheckOutcome, ...]
    tokens: TokenCount

    @property
    def conforms(self) -> bool:
        return all(found.conforms for found in self.found)

    def to_dict(self) -> Mapping[str, Any]:
        """Return the report as values of JSON."""
        return {
            "server": self.server,
            "model": self.model,
            "reference": self.reference,
            "conforms": self.conforms,
            "tokens": asdict(self.tokens),
            "checks": [
                {
                    "name": found.check.name,
                    "promise": found.check.promise,
                    "calls": list(found.check.calls),
                    "required": found.check.required,
                    "state": found.state,
                    "said": found.said,
                    "measures": [asdict(measure) for measure in found.measures],
                    "seconds": round(found.seconds, 3),
                }
                for found in self.found
            ],
        }


REGISTERED: list[Check] = []  # of all modules that have been imported


def check(name: str, *calls: str, required: bool = True) -> Callable[[Run], Run]:
    """Register a function as a check; the first line of its docstring is the promise."""

    def add(run: Run) -> Run:
        promise = (run.__doc__ or name).splitlines()[0].rstrip(".")
        REGISTERED.append(Check(name, promise, calls, run, required))
        return run

    return add
