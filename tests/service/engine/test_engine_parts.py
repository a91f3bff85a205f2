"""The engine's pure parts: packing, random numbers, token choice, the prefix cache."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlc.service.engine import open_engine
from rlc.service.engine.attention import (
    AttentionHeads,
    length_buckets,
    micro_batches,
    pack,
    stream_attention,
    using,
)
from rlc.service.engine.base_model import PrefixCache, WeightSnapshot
from rlc.service.engine.decoder import (
    SamplingRule,
    next_tokens,
    philox,
    plan_fills,
    stream_key,
    uniforms,
)
from rlc.service.interface import ServiceError

EXAMPLES = settings(deadline=None, derandomize=True)
SEQUENCES = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=8).map(lambda x: np.array(x, dtype=np.int64)),
    min_size=1,
    max_size=12,
)


@EXAMPLES
@given(SEQUENCES)
def test_a_path_spells_its_sequence_and_each_prefix_stands_once(
    sequences: list[np.ndarray],
) -> None:
    packed = pack(sequences)
    for tokens, path in zip(sequences, packed.paths, strict=True):
        np.testing.assert_array_equal(packed.tokens_N[path], tokens)
        np.testing.assert_array_equal(packed.positions_N[path], np.arange(len(tokens)))
    prefixes = {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}
    assert len(packed.tokens_N) == len(prefixes)


@EXAMPLES
@given(SEQUENCES, st.integers(1, 20))
def test_micro_batches_hold_everything_once_within_the_budget(
    sequences: list[np.ndarray], budget: int
) -> None:
    runs = list(micro_batches(sequences, budget))
    assert sorted(i for run in runs for i in run) == list(range(len(sequences)))
    for run in runs:
        assert len(run) == 1 or sum(len(sequences[i]) for i in run) <= budget


@EXAMPLES
@given(st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_buckets_pad_little(lengths: list[int]) -> None:
    buckets = length_buckets(lengths, waste=0.15)
    assert sorted(i for bucket in buckets for i in bucket) == list(range(len(lengths)))
    for bucket in buckets:
        inside = [lengths[i] for i in bucket]
        assert max(inside) == inside[0]
        assert max(inside) * len(inside) <= 1.15 * sum(inside) + 1e-9


def test_philox_gives_the_published_numbers() -> None:
    """The known answers that come with the authors' Random123 library."""

    def words(counter: int, key: int) -> list[int]:
        x = np.array([counter], dtype=np.uint64)
        return [int(w[0]) for w in philox((x, x, x, x), np.array([key], dtype=np.uint64))]

    assert words(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert words(ones, ones << 32 | ones) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def test_uniforms_are_uniform_and_streams_differ() -> None:
    keys = np.array([stream_key(seed, i) for seed in (0, -5, 2**70) for i in range(2)], np.uint64)
    draws = np.stack([uniforms(keys, np.full(6, t, dtype=np.uint64)) for t in range(2000)])
    assert (draws >= 0).all()
    assert (draws < 1).all()
    assert np.abs(draws.mean(0) - 0.5).max() < 0.03
    assert np.abs(np.corrcoef(draws.T) - np.eye(6)).max() < 0.1


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2.0**-53])
def test_a_token_without_probability_is_never_chosen(uniform: float) -> None:
    logits = torch.tensor([[-torch.inf, 1.0, -torch.inf, 1.0, -torch.inf]])
    tokens, logprobs = next_tokens(logits, [SamplingRule(1.0, -1, 1.0)], np.array([uniform]))
    assert tokens[0] in (1, 3)
    assert logprobs[0] == pytest.approx(np.log(0.5))


@EXAMPLES
@given(SEQUENCES, SEQUENCES)
def test_a_row_is_filled_from_the_longest_prefix_there_is(
    known: list[np.ndarray], prompts: list[np.ndarray]
) -> None:
    cache, snapshot = PrefixCache(budget=10**6), WeightSnapshot(None)
    for tokens in known:
        # Each position's "keys" are the prefix that led to it, so a wrong copy shows.
        cache.put(snapshot, tokens, _spelled(tokens))
    prompts = sorted(prompts, key=lambda p: p.astype(">u4").tobytes())
    fills = plan_fills(prompts, [cache.longest(snapshot, p) for p in prompts])
    stream: list[tuple[int, ...]] = []
    for prompt, fill in zip(prompts, fills, strict=True):
        stream += [tuple(prompt[: i + 1]) for i in range(len(prompt) - fill.own, len(prompt))]
    for prompt, fill in zip(prompts, fills, strict=True):
        assert len(fill.path) >= 1
        assert fill.copied + len(fill.path) == len(prompt)
        if fill.copied:
            assert fill.entry is not None
            np.testing.assert_array_equal(fill.entry.tokens[: fill.copied], prompt[: fill.copied])
        for at, source in enumerate(fill.path, start=fill.copied):
            assert stream[source] == tuple(prompt[: at + 1])


def _spelled(tokens: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(tokens).float()[None, None, :, None].expand(2, -1, -1, -1)


def test_the_prefix_cache_is_bounded_and_knows_its_snapshot() -> None:
    sequences = [np.array([i, 1, 2, 3], dtype=np.int64) for i in range(4)]
    one, other = WeightSnapshot(None), WeightSnapshot(None)
    cache = PrefixCache(budget=3 * 32)
    for tokens in sequences[:3]:
        cache.put(one, tokens, _spelled(tokens))
    assert cache.longest(one, sequences[0])[1] == 4
    cache.put(one, sequences[3], _spelled(sequences[3]))
    assert cache.longest(one, sequences[0])[1] == 4  # used more recently than
    assert cache.longest(one, sequences[1])[1] == 0  # this one
    assert cache.longest(other, sequences[0]) == (None, 0)
    assert cache.used == 3 * 32


def test_a_longer_sequence_replaces_its_prefix() -> None:
    cache, snapshot = PrefixCache(budget=10**6), WeightSnapshot(None)
    for n in (2, 5, 3):
        tokens = np.arange(n, dtype=np.int64)
        cache.put(snapshot, tokens, _spelled(tokens))
    assert cache.used == 5 * 8
    assert cache.longest(snapshot, np.arange(9, dtype=np.int64))[1] == 5


def test_entries_of_a_dead_snapshot_are_dropped() -> None:
    cache = PrefixCache(budget=10**6)
    tokens = np.arange(4, dtype=np.int64)
    cache.put(WeightSnapshot(None), tokens, _spelled(tokens))
    alive = WeightSnapshot(None)
    cache.put(alive, tokens[:2], _spelled(tokens[:2]))
    assert cache.used == 2 * 8


@pytest.mark.parametrize(("device", "says"), [("tpu", "no device"), ("meta", "not on 'meta'")])
def test_devices_that_are_not_there(device: str, says: str, tmp_path: object) -> None:
    with pytest.raises(ServiceError, match=says):
        open_engine(tmp_path, device=device)  # type: ignore[arg-type]


def test_importing_the_package_sets_the_wait_policy_before_torch() -> None:
    code = (
        "import os, sys, rlc.service.engine; "
        "print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["passive", "False"]


def test_engines_of_one_process_keep_their_own_layout() -> None:
    """One thread is within its layout while another comes and goes with its own."""

    class Constant:
        def __init__(self, value: float) -> None:
            self.value = value

        def attend(
            self, head: AttentionHeads, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor
        ) -> Tensor:
            return torch.full_like(q_NHD, self.value)

    module = torch.nn.Module()
    module.layer_idx = 0  # type: ignore[assignment]
    x = torch.zeros(1, 2, 3, 4)

    def attended() -> float:
        return float(stream_attention(module, x, x, x, None)[0].mean())

    def other() -> float:
        with using(Constant(2.0)):  # type: ignore[arg-type]
            return attended()

    with using(Constant(1.0)), ThreadPoolExecutor(1) as pool:  # type: ignore[arg-type]
        assert pool.submit(other).result() == 2.0
        assert attended() == 1.0
