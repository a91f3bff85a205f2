"""The dialects of advantages on random batches: groups of any size, of one and of equals, episodes
of several turns, roles. Against the libraries' own numbers, which
``tests/algo/data/make_dialect_vectors.py`` made, and against their formulas, written out here."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from dialect_batches import Batch, Rollout, draw_batch, episodes_of, scheme_of
from paths import ROOT

from rlc.algo.advantages import compute_advantages
from rlc.catalog.index import names_of

Array = npt.NDArray[np.float64]
Turns = list[list[float] | None]  # of each rollout's turns; None: it is left out

RECORDED = json.loads((ROOT / "tests/algo/data/dialect_vectors.json").read_text(encoding="utf-8"))
BATCHES = [[Rollout(**record) for record in batch] for batch in RECORDED["batches"]]


@pytest.mark.parametrize("record", RECORDED["advantages"], ids=lambda record: record["scheme"])
def test_a_dialect_gives_the_numbers_of_its_library(record: dict[str, Any]) -> None:
    """The library does not take some of the batches. Some libraries compute in float32."""
    compared = [pair for pair in zip(BATCHES, record["values"], strict=True) if pair[1]]
    assert compared
    for batch, expected in compared:
        found = compute_advantages(scheme_of(record["scheme"]), episodes_of(batch)).by_rollout()
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=2e-6)


# The formulas, independent of rlc.algo


def totals(batch: Batch) -> Array:
    return np.array([sum(rollout.rewards) for rollout in batch])


def members(batch: Batch, *labels: str) -> list[list[int]]:
    found: dict[tuple[int, ...], list[int]] = {}
    for at, rollout in enumerate(batch):
        found.setdefault(tuple(getattr(rollout, label) for label in labels), []).append(at)
    return list(found.values())


def spread(batch: Batch, values: Sequence[float | None]) -> Turns:
    return [
        None if value is None else [float(value)] * len(rollout.rewards)
        for value, rollout in zip(values, batch, strict=True)
    ]


def among(
    formula: Callable[[Array], Array | None], *labels: str
) -> Callable[[Batch], Sequence[float | None]]:
    """A formula on the returns of those who share the labels; None leaves them out."""

    def values(batch: Batch) -> list[float | None]:
        out: list[float | None] = [None] * len(batch)
        for peers in members(batch, *labels):
            found = formula(totals(batch)[peers])
            for at, value in zip(peers, peers if found is None else found, strict=True):
                out[at] = None if found is None else value
        return out

    return values


def episode(formula: Callable[[Array], Array | None], *labels: str) -> Callable[[Batch], Turns]:
    return lambda batch: spread(batch, among(formula, *(labels or ("group",)))(batch))


def centred(r: Array) -> Array:
    return np.asarray(r - r.mean())


def centred_or_raw(r: Array) -> Array:
    return centred(r) if len(r) > 1 else r


def over_std(ddof: int, eps: float, alone: float) -> Callable[[Array], Array]:
    """The deviation of equals leaves exact zeros; a group of one gets its return over ``alone``."""

    def formula(r: Array) -> Array:
        if len(r) == 1:
            return np.asarray(r / alone if alone else 0 * r)
        return np.asarray(centred(r) / (r.std(ddof=ddof) + eps) if np.ptp(r) else 0 * r)

    return formula


def others_mean(alone: bool) -> Callable[[Array], Array]:
    def formula(r: Array) -> Array:
        if len(r) == 1:
            return r if alone else 0 * r
        return np.array([x - np.delete(r, i).mean() for i, x in enumerate(r)])

    return formula


def best_margin(norm: bool) -> Callable[[Array], Array]:
    def formula(r: Array) -> Array:
        lead, first = np.sort(r)[-1] - np.sort(r)[-2], np.arange(len(r)) == r.argmax()
        return np.asarray(first * lead / (r.std(ddof=1) + 1e-6 if norm else 1.0))

    return formula


def nemo(others: bool, norm: bool) -> Callable[[Array], Array]:
    def formula(r: Array) -> Array:
        out = 0 * r
        for i, x in enumerate(r):
            of = np.delete(r, i) if others else r
            if len(r) > 1:
                std = of.std(ddof=1) if len(of) > 1 and np.ptp(of) else 0.0
                out[i] = (x - of.mean()) / (std + 1e-6 if norm and std else 1.0)
        return out

    return formula


def over_mean(eps: float, alone: bool) -> Callable[[Array], Array]:
    def formula(r: Array) -> Array:
        if len(r) == 1:
            return r if alone else 0 * r
        return np.asarray(centred(r) / (r.mean() + eps) if r.mean() > 0 else 0 * r)

    return formula


def openreward(method: str) -> Callable[[Array], Array | None]:
    def formula(r: Array) -> Array | None:
        std = r.std(ddof=1) if len(r) > 1 else 0.0
        if len(r) > 1 and std < 1e-8:
            return None
        scaled = centred(r) / std if std >= 1e-8 else 0 * r
        return np.asarray({"direct": r, "centered": centred(r)}.get(method, scaled))

    return formula


def whitened(
    values: Callable[[Batch], Sequence[float | None]] | float, ddof: int
) -> Callable[[Batch], Turns]:
    """To mean 0 and deviation 1 over the tokens; a number discounts the return of each turn."""

    def turns(batch: Batch) -> Turns:
        given = to_go(batch, values) if isinstance(values, float) else spread(batch, values(batch))
        pairs = [(v, r) for v, r in zip(given, batch, strict=True) if v is not None]
        tokens = np.concatenate([np.repeat(v, rollout.tokens) for v, rollout in pairs])
        variance = tokens.var(ddof=ddof)
        size = np.sqrt(variance + 1e-8 if ddof else max(variance, 1e-8))
        return [None if v is None else [(x - tokens.mean()) / size for x in v] for v in given]

    return turns


def to_go(batch: Batch, gamma: float) -> Turns:
    out: Turns = []
    for rollout in batch:
        following, turns = 0.0, list[float]()
        for reward in reversed(rollout.rewards):
            following = reward + gamma * following
            turns.insert(0, following)
        out.append(turns)
    return out


def rebn(gamma: float, ddof: int) -> Callable[[Batch], Turns]:
    def turns(batch: Batch) -> Turns:
        given = [v for v in to_go(batch, gamma) if v is not None]
        every = np.concatenate(given)
        size = every.std(ddof=ddof) + 1e-9
        return [list((np.array(v) - every.mean()) / size) for v in given]

    return turns


def opo(batch: Batch) -> Turns:
    out = totals(batch)
    for peers in members(batch, "group"):
        n = np.array([sum(batch[at].tokens) for at in peers])
        out[peers] -= (n * out[peers]).sum() / n.sum() if len(peers) > 1 else 0.0
    return spread(batch, list(out))


def gpg(batch: Batch) -> Turns:
    alpha = len(batch) / max(int(np.count_nonzero(totals(batch))), 1)
    return episode(lambda r: alpha * centred_or_raw(r))(batch)


def over_batch_std(values: str, ddof: int, eps: float, *role: str) -> Callable[[Batch], Turns]:
    """Less the group's mean, over the deviation of all returns or of what is left, role by role."""

    def turns(batch: Batch) -> Turns:
        out = np.array(among(centred, "group", *role)(batch), dtype=np.float64)
        for peers in members(batch, *role):
            x = (totals(batch) if values == "returns" else out)[peers]
            out[peers] /= x.std(ddof=ddof) + eps
        return spread(batch, list(out))

    return turns


def trl_rloo(batch: Batch) -> Turns:
    left = among(lambda r: others_mean(False)(r) if len(r) > 1 else None, "group")(batch)
    known = np.array([value for value in left if value is not None])
    size = known.std(ddof=1) + 1e-4
    return spread(batch, [None if v is None else (v - known.mean()) / size for v in left])


def areal(mean: str, std: str, out: bool, ddof: int) -> Callable[[Batch], Turns]:
    def baseline(r: Array) -> Array:
        if not out:
            return np.full(len(r), r.mean())
        return np.array([np.delete(r, i).mean() if len(r) > 1 else 0.0 for i in range(len(r))])

    def turns(batch: Batch) -> Turns:
        r = totals(batch)
        places = {"batch": members(batch), "group": members(batch, "group")}
        left, size = r.copy(), np.ones(len(r))
        for peers in places.get(mean, []):
            left[peers] -= baseline(r[peers])
        for peers in places.get(std, []):
            n = len(peers) - ddof
            size[peers] = np.sqrt((left[peers] ** 2).sum() / n) + 1e-5 if n else 1 + 1e-5
        return spread(batch, list(left / size))

    return turns


def trl_gdpo(batch: Batch) -> Turns:
    """Of a reward that is one number."""
    out = np.array(among(over_std(1, 1e-4, 0), "group")(batch), dtype=np.float64)
    size = out.std(ddof=1) + 1e-4
    return spread(batch, list((out - out.mean()) / size if np.ptp(out) else 0 * out))


def same(r: Array) -> Array:
    return r


FORMULAS: dict[str, Callable[[Batch], Turns]] = {
    "verl.grpo()": episode(over_std(1, 1e-6, 1 + 1e-6)),
    "verl.grpo(norm = false)": episode(centred_or_raw),
    "verl.rloo()": episode(others_mean(True)),
    "verl.rloo_vectorized()": episode(others_mean(False)),
    "verl.opo()": opo,
    "verl.gpg()": gpg,
    "verl.reinforce_pp()": whitened(1.0, 1),
    "verl.reinforce_pp_baseline()": whitened(among(centred_or_raw, "group"), 1),
    "verl.gdpo()": whitened(among(over_std(1, 1e-6, 1 + 1e-6), "group"), 1),
    "verl.gdpo(norm = false)": whitened(among(centred_or_raw, "group"), 1),
    "verl.grpo_passk()": episode(best_margin(True)),
    "verl.grpo_passk(norm = false)": episode(best_margin(False)),
    "trl.grpo()": episode(over_std(1, 1e-4, 0)),
    "trl.grpo(scale_rewards = batch)": over_batch_std("returns", 1, 1e-4),
    "trl.grpo(scale_rewards = none)": episode(centred),
    "trl.rloo()": episode(lambda r: others_mean(False)(r) if len(r) > 1 else None),
    "trl.rloo(normalize = true)": trl_rloo,
    "trl.gdpo()": trl_gdpo,
    "openrlhf.grpo()": episode(over_std(1, 1e-9, 0)),
    "openrlhf.reinforce_pp()": whitened(among(same), 0),
    "openrlhf.reinforce_pp_baseline()": whitened(among(centred, "group"), 0),
    "openrlhf.flash_reinforce()": lambda batch: spread(batch, list(centred(totals(batch)))),
    "rllm.grpo()": episode(over_std(0, 1e-6, 1 + 1e-6), "group", "role"),
    "rllm.grpo(norm = false)": episode(centred_or_raw, "group", "role"),
    "rllm.grpo(scope = group)": episode(over_std(0, 1e-6, 1 + 1e-6)),
    "rllm.legacy_grpo()": episode(over_std(0, 0.0, 1.0), "group", "role"),
    "rllm.rloo()": episode(others_mean(True), "group", "role"),
    "rllm.reinforce_pp_baseline()": over_batch_std("values", 0, 1e-6, "role"),
    "rllm.prpo()": episode(lambda r: (r - r.mean()) / (r.std() + 1e-6), "role"),
    "skyrl.grpo()": episode(over_std(1, 1e-6, 1 + 1e-6)),
    "skyrl.grpo(norm = false)": episode(centred_or_raw),
    "skyrl.rloo()": episode(others_mean(False)),
    "skyrl.maxrl()": episode(over_mean(1e-6, True)),
    "nemo.grpo()": episode(nemo(True, True)),
    "nemo.grpo(normalize = false)": episode(nemo(True, False)),
    "nemo.grpo(leave_one_out = false)": episode(nemo(False, True)),
    "nemo.reinforce_pp()": whitened(among(centred, "group"), 0),
    "nemo.reinforce_pp(minus_baseline = false)": whitened(among(same), 0),
    "prime.center()": episode(lambda r: centred(r) if np.ptp(r) else None),
    "prime.maxrl()": episode(over_mean(0.0, False)),
    "openreward.centered_normalized()": episode(openreward("centered_normalized")),
    "openreward.centered()": episode(openreward("centered")),
    "openreward.direct()": episode(openreward("direct")),
    "cookbook.center()": episode(centred),
    "cookbook.center(drop_constant = true)": episode(lambda r: centred(r) if np.ptp(r) else None),
    "gem.rebn()": rebn(0.9, 1),
    "oat.rebn()": rebn(1.0, 0),
    "oat.rebn(gamma = 0.5)": rebn(0.5, 0),
    "areal.normalize()": areal("batch", "batch", False, 1),
    "areal.normalize(mean_level = group, std_level = group)": areal("group", "group", False, 1),
    "areal.normalize(mean_level = group, std_level = group, leave_one_out = true)": areal(
        "group", "group", True, 1
    ),
    "areal.normalize(mean_level = none, std_level = batch, unbiased = false)": areal(
        "none", "batch", False, 0
    ),
}


def test_every_dialect_is_written_out_here() -> None:
    dialects = {name for name in names_of("advantage") if "." in name}
    assert {text.partition("(")[0] for text in FORMULAS} == dialects


@pytest.mark.parametrize("text", FORMULAS)
def test_a_dialect_is_the_formula_of_its_library(text: str) -> None:
    """Where a group of one is an error, no batch has one."""
    scheme, draw, compared = scheme_of(text), random.Random(text), 0
    refused = scheme.require is not None
    while compared < 60:
        batch = draw_batch(draw)
        sizes = [len(peers) for peers in members(batch, "group")]
        if np.ptp(totals(batch)) == 0 or max(sizes) < 2 or (refused and min(sizes) < 2):
            continue
        compared += 1
        found, expected = compute_advantages(scheme, episodes_of(batch)), FORMULAS[text](batch)
        for mine, theirs, kept in zip(found.by_rollout(), expected, found.kept_R, strict=True):
            assert kept == (theirs is not None)
            np.testing.assert_allclose(mine, theirs or 0 * mine, rtol=1e-9, atol=1e-9)
