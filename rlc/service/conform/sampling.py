"""Samples and their logprobs."""

from __future__ import annotations

import math
import pickle
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import tinker
from tinker import types

from rlc.service.conform.probe import (
    EXACT,
    PROMPT,
    REFERENCE,
    DiffersError,
    Probe,
    check,
    prompt,
    reference_logprobs,
)

_DRAWS = 64
_SIGMAS = 5.0  # a right server draws further off once in two million


def tokens(response: types.SampleResponse) -> list[list[int]]:
    return [list(sequence.tokens) for sequence in response.sequences]


@check("sampling.scores", "SamplingClient.compute_logprobs", "ServiceClient.create_sampling_client")
def scores(probe: Probe) -> None:
    """compute_logprobs gives the model's logprobs: those of the reference, if it is at hand."""
    computed = probe.scored(probe.sampler(), PROMPT)
    probe.that(len(computed) == len(PROMPT), f"{len(computed)} values for {len(PROMPT)} tokens")
    probe.that(computed[0] is None, "the first token has a logprob, and nothing is before it")
    probe.that(all(x <= EXACT for x in computed[1:]), "a logprob is above 0")
    if probe.bench.reference is not None:
        expected = reference_logprobs(probe.bench.reference, PROMPT)
        probe.close("logprobs of a prompt and float64", computed[1:], expected, REFERENCE)


@check("sampling.logprobs", "SamplingClient.sample")
def logprobs(probe: Probe) -> None:
    """The logprobs of samples are those that compute_logprobs gives the same tokens."""
    sampler = probe.sampler()
    response = probe.sample(sampler, samples=2)
    if len(response.sequences) != 2:
        raise DiffersError(f"{len(response.sequences)} sequences, and 2 were asked for")
    for sequence in response.sequences:
        if sequence.logprobs is None:
            raise DiffersError("samples come without logprobs")
        full = [*PROMPT, *sequence.tokens]
        computed = probe.scored(sampler, full)[len(PROMPT) :]
        probe.near("sampled and computed logprobs", sequence.logprobs, computed)
        if probe.bench.reference is not None:
            expected = reference_logprobs(probe.bench.reference, full)[len(PROMPT) - 1 :]
            probe.close("sampled logprobs and float64", sequence.logprobs, expected, REFERENCE)


@check("sampling.temperature", "SamplingClient.sample")
def temperature(probe: Probe) -> None:
    """Logprobs of samples include the temperature."""
    sampler, gaps = probe.sampler(), []
    for given in (1.0, 0.5):
        response = probe.sample(
            sampler, max_tokens=1, temperature=given, more={"topk_sample_logprobs": 2}
        )
        (best,) = response.sequences[0].topk_logprobs or [None]
        if best is None or len(best) < 2:
            raise DiffersError("there are no two most likely tokens")
        gaps.append(best[0][1] - best[1][1])
    what = "gaps of logprobs at temperature 0.5, against twice those at 1,"
    probe.close(what, gaps[1], 2 * gaps[0], 2 * probe.bench.tolerance)


@check("sampling.draws", "SamplingClient.sample")
def draws(probe: Probe) -> None:
    """Tokens are drawn as often as their logprobs say, at temperatures 1 and 0.5."""
    sampler = probe.sampler()
    for given in (1.0, 0.5):
        response = probe.sample(sampler, samples=_DRAWS, max_tokens=1, temperature=given)
        best = probe.sample(
            sampler, max_tokens=1, temperature=given, more={"topk_sample_logprobs": 1}
        )
        ((token, logprob),) = (best.sequences[0].topk_logprobs or [[]])[0] or [(0, math.nan)]
        p = math.exp(min(logprob, 0.0))
        seen = sum(sampled[:1] == [token] for sampled in tokens(response))
        spread = math.sqrt(max(_DRAWS * p * (1 - p), 0.25))
        what = f"draws of the most likely token at temperature {given}, in deviations,"
        probe.within(what, abs(seen - _DRAWS * p) / spread, _SIGMAS)


@check("sampling.seeds", "SamplingClient.sample")
def seeds(probe: Probe) -> None:
    """A seed gives the same tokens again, other ones for each sample, and none repeats nothing."""
    sampler = probe.sampler()
    one, again, other = (
        tokens(probe.sample(sampler, samples=3, seed=seed)) for seed in (11, 11, 12)
    )
    probe.that(one == again, "a seed is ignored: the same request gives other tokens")
    probe.that(one != other, "another seed gives the same tokens")
    different = len({str(sampled) for sampled in one}) > 1
    probe.that(different, "all samples of a seeded request are alike")
    free = [tokens(probe.sample(sampler, samples=3, seed=None)) for _ in range(2)]
    probe.that(free[0] != free[1], "requests without a seed repeat each other")


@check("sampling.greedy", "SamplingClient.sample")
def greedy(probe: Probe) -> None:
    """Temperature 0, top_k = 1 and a tiny top_p all take the most likely token."""
    sampler = probe.sampler()
    ways: list[dict[str, Any]] = [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-6}]
    found = [tokens(probe.sample(sampler, **way)) for way in ways]
    for way, sampled in zip(ways[1:], found[1:], strict=True):
        probe.that(
            sampled == found[0], f"{next(iter(way))} samples other tokens than temperature 0"
        )
    best = probe.sample(sampler, max_tokens=1, temperature=1.0, more={"topk_sample_logprobs": 1})
    first = ((best.sequences[0].topk_logprobs or [None])[0] or [(-1, 0.0)])[0][0]
    probe.that(found[0][0][0] == first, "temperature 0 does not take the most likely token")


@check("sampling.stop", "SamplingClient.sample")
def stop(probe: Probe) -> None:
    """A reply ends after a stop token or text, or at max_tokens, and says which."""
    sampler = probe.sampler()
    full = probe.sample(sampler, stop=[]).sequences[0]
    sampled = list(full.tokens)
    if full.stop_reason == "length":
        probe.that(len(sampled) == 8, f"max_tokens = 8 gives {len(sampled)} tokens")
    at = next((i for i, token in enumerate(sampled) if i and token not in sampled[:i]), 0)
    cut = probe.sample(sampler, stop=[sampled[at]]).sequences[0]
    expected = sampled[: sampled.index(sampled[at]) + 1]
    probe.that(list(cut.tokens) in (expected, expected[:-1]), "a stop token does not end a reply")
    probe.that(cut.stop_reason == "stop", f"the reason of a stop token is {cut.stop_reason!r}")
    text = probe.train().get_tokenizer().decode(sampled)
    short = text[: len(text) // 2 + 1][-2:]
    if len(short.strip()) == 2 and "\N{REPLACEMENT CHARACTER}" not in text:
        worded = probe.sample(sampler, stop=[short]).sequences[0]
        ended = len(worded.tokens) < len(sampled) or worded.stop_reason == "stop"
        probe.that(ended, f"the stop text {short!r} does not end a reply")


@check("sampling.prompt_logprobs", "SamplingClient.sample")
def prompt_logprobs(probe: Probe) -> None:
    """A request's prompt logprobs are those of compute_logprobs; the last ones can be had alone."""
    sampler = probe.sampler()
    computed = probe.scored(sampler, PROMPT)
    response = probe.sample(sampler, max_tokens=1, more={"include_prompt_logprobs": True})
    found = response.prompt_logprobs or []
    probe.that(found[:1] == [None], "there is no None for the first token")
    probe.close("prompt and computed logprobs", found[1:], computed[1:], EXACT)
    last = probe.scored(sampler, PROMPT, prompt_logprobs_last_n=3)
    probe.that(last[:-3] == [None] * (len(PROMPT) - 3), "more than the last ones are scored")
    probe.near("the last logprobs, alone and with the others,", last[-3:], computed[-3:])


@check("sampling.topk", "SamplingClient.sample", required=False)
def topk(probe: Probe) -> None:
    """The most likely tokens of each position, in order, with their logprobs."""
    sampler = probe.sampler()
    more = {"include_prompt_logprobs": True, "topk_prompt_logprobs": 3, "topk_sample_logprobs": 3}
    response = probe.sample(sampler, max_tokens=2, temperature=0.0, more=more)
    own, topk = response.prompt_logprobs or [], response.topk_prompt_logprobs or []
    probe.that(len(topk) == len(PROMPT), "there is not a row for each token of the prompt")
    for position, best in list(enumerate(topk))[1:]:
        computed = [logprob for _, logprob in best or []]
        probe.that(len(computed) == 3, "3 were asked for")
        probe.that(all(a >= b for a, b in pairwise(computed)), "they are not in order")
        probe.that(sum(map(math.exp, computed)) <= 1 + EXACT, "their probabilities exceed 1")
        if (same := dict(best or []).get(PROMPT[position])) is not None:
            what, expected = "logprobs of a token in the list and in the prompt", own[position]
            probe.close(what, same, expected or 0.0, EXACT)
    sequence = response.sequences[0]
    firsts = [row[0][0] for row in sequence.topk_logprobs or [] if row]
    probe.that(firsts == list(sequence.tokens), "temperature 0 samples what is not the most likely")


@check("sampling.targets", "SamplingClient.sample", required=False)
def targets(probe: Probe) -> None:
    """The logprobs of tokens that are named for each position, dense and sparse."""
    sampler, own = probe.sampler(), np.array(PROMPT[1:], dtype=np.int64)
    computed = probe.scored(sampler, PROMPT)
    ids = np.stack([own, np.full_like(own, -1)], axis=1)
    dense = types.TensorData(ids.ravel(), "int64", list(ids.shape))
    response = probe.sample(sampler, max_tokens=1, more={"target_prompt_logprobs": dense})
    if response.target_prompt_logprobs is None:
        raise DiffersError("they are not in the answer")
    found = response.target_prompt_logprobs.to_numpy()
    probe.close("named and computed logprobs", found[:, 0], computed[1:], EXACT)
    probe.that(not found[:, 1].any(), "a cell with -1 is not 0")
    sparse = types.TensorData(own[:1], "int64", [len(own), 1], [0, *[1] * len(own)], [0])
    response = probe.sample(sampler, max_tokens=1, more={"target_prompt_logprobs": sparse})
    values = getattr(response.target_prompt_logprobs, "data", [])
    probe.close("the same in a sparse tensor", values, computed[1:2], EXACT)


@check("sampling.alternatives", "SamplingClient.sample", required=False)
def alternatives(probe: Probe) -> None:
    """Other tokens for each position of a prompt, with the logprobs of those tokens."""
    sampler = probe.sampler()
    found = probe.sample(sampler, max_tokens=1, more={"prompt_alt_tokens_k": 2}).prompt_alt_tokens
    if found is None:
        raise DiffersError("they are not in the answer")
    computed = probe.sample(sampler, max_tokens=1, more={"target_prompt_logprobs": found.tokens})
    if computed.target_prompt_logprobs is None:
        raise DiffersError("they cannot be compared: the server scores no named tokens")
    what, expected = "logprobs of alternatives, and of the same tokens named,", found.logprobs
    probe.close(what, expected.to_numpy(), computed.target_prompt_logprobs.to_numpy(), EXACT)


@check("sampling.at_once", "SamplingClient.sample")
def at_once(probe: Probe) -> None:
    """A request is answered alike alone and among others."""
    sampler = probe.sampler()
    alone = [probe.sample(sampler, PROMPT[: 8 + i], seed=i) for i in range(4)]
    params = [types.SamplingParams(max_tokens=8, temperature=1.0, seed=i) for i in range(4)]
    futures = [sampler.sample(prompt(PROMPT[: 8 + i]), 1, p) for i, p in enumerate(params)]
    together = [probe.get(future) for future in futures]
    same = [tokens(a) for a in alone] == [tokens(t) for t in together]
    probe.that(same, "the tokens of a seeded request depend on the others")
    ids = [s.sequence_id for t in together for s in t.sequences]
    probe.that(len(set(ids)) == 4, "two sequences have one id")


@check(
    "sampling.handles",
    "SamplingClient.get_base_model",
    "SamplingClient.get_sampler_handle",
    "SamplingClient.from_sampler_handle",
    "RestClient.get_sampler",
)
def handles(probe: Probe) -> None:
    """A sampler is described, and goes on in another process by its handle or pickled."""
    sampler = probe.sampler()
    probe.that(sampler.get_base_model() == probe.bench.base, "its base model is another")
    described = probe.get(probe.bench.rest.get_sampler(sampler._sampling_session_id))
    probe.that(described.base_model == probe.bench.base, "the server names another base model")
    expected = tokens(probe.sample(sampler))
    handle, key = sampler.get_sampler_handle(), probe.bench.endpoint.api_key
    for copy in (
        tinker.SamplingClient.from_sampler_handle(handle, api_key=key),
        pickle.loads(pickle.dumps(sampler)),
    ):
        probe.that(tokens(probe.sample(copy)) == expected, "a copy samples other tokens")


@check("sampling.refusals", "SamplingClient.sample")
def refusals(probe: Probe) -> None:
    """What cannot be sampled is refused."""
    sampler = probe.sampler()
    wrong = [("max_tokens", 100_000_000), ("max_tokens", 0), ("temperature", -1.0), ("top_p", 0.0)]
    for name, value in wrong:
        given: dict[str, Any] = {name: value}
        probe.refused(f"{name} = {value}", partial(probe.sample, sampler, **given))
    outside = partial(probe.sample, sampler, [2_000_000_000])
    probe.refused("a token outside of every vocabulary", outside)
