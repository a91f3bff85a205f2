"""The first step of a run at which something holds of its metrics."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from rlc.catalog import find_metric, metric_name, metrics_of
from rlc.check import known_values
from rlc.plan import Training
from rlc.replays.recorded import RecordedRun, ReplayError

_COMPARES: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_ONE = re.compile(r"\s*([\w./@-]+)\s*(>=|<=|==|!=|>|<)\s*([-+]?[\d._]+(?:e[-+]?\d+)?)(%?)\s*")
# What a word means that is no metric: the distance of the trainer from the sampler.
_SHORT = {"kl": "kl/sample_train_k2"}


def first_step(run: RecordedRun, stage: Training, text: str) -> int:
    """Return the first finished step of a stage at which an expression holds: comparisons of
    metrics with numbers, ``kl > 0.1 and reward < 50%``. A metric has the name that `expect` reads
    it by, or its key in ``metrics.jsonl``.

    Raise ReplayError if it cannot be read, names no metric of the stage, or holds at no step.
    """
    tests = [_comparison(stage, part) for part in re.split(r"\band\b", text)]
    done = run.steps(stage.name)
    for one in done:
        if all(_holds(one.metrics, *test) for test in tests):
            return one.step
    rows = []
    for key, sign, _ in tests:
        values = [one.metrics[key] for one in done if one.metrics.get(key) is not None]
        if not values:
            raise ReplayError(f"no step of `{stage.name}` has the metric `{key}`")
        extreme = max(values) if ">" in sign else min(values)
        rows.append(f"`{key}` comes to {extreme:.4g} at {'most' if '>' in sign else 'least'}")
    raise ReplayError(
        f"`{text.strip()}` holds at none of the {len(done):,} steps of `{stage.name}`",
        "; ".join(rows),
    )


def _comparison(stage: Training, text: str) -> tuple[str, str, float]:
    found = _ONE.fullmatch(text)
    if found is None:
        raise ReplayError(
            f"`{text.strip()}` is no comparison of a metric with a number",
            "for example `kl > 0.1`, or `reward < 50% and optim.grad_norm >= 2`",
        )
    name, sign, number, per_cent = found.groups()
    try:
        value = float(number)
    except ValueError:
        raise ReplayError(f"`{number}` is no number") from None
    key = _SHORT.get(name)
    if key is None:
        entry = find_metric(stage, metric_name(name).removeprefix(f"{stage.name}."))
        if entry is None:
            known = sorted({*metrics_of(stage), *_SHORT})
            raise ReplayError(f"`{stage.name}` has no metric `{name}`", known_values(known, name))
        key = entry.key
    return key, sign, value / 100 if per_cent else value


def _holds(metrics: Mapping[str, Any], key: str, sign: str, limit: float) -> bool:
    value = metrics.get(key)
    return value is not None and _COMPARES[sign](float(value), limit)
