"""How often the bounds of a loss act."""

from __future__ import annotations

import numpy as np
import pytest
from expressions import program
from hypothesis import given
from hypothesis import strategies as st
from loss_library import library, library_loss

from rlc.algo import ClipRange, Program, changed_share, clip_fraction, unbounded


def share(loss: Program, rows: list[dict[str, np.ndarray]]) -> float | None:
    free = unbounded(loss)
    assert free is not None
    return changed_share(loss, free, rows)


@st.composite
def batches(draw: st.DrawFn) -> list[dict[str, np.ndarray]]:
    made = []
    for size in draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)):
        columns = {
            "logq": st.floats(-3, -1),
            "drift": st.floats(-0.9, 0.9) | st.floats(-1.6, 1.6),
            "adv": st.sampled_from([1.0, -0.5, 2.0]),
        }
        row = {
            name: np.array(draw(st.lists(values, min_size=size, max_size=size)))
            for name, values in columns.items()
        }
        made.append({"logp": row["logq"] + row["drift"], "logq": row["logq"], "adv": row["adv"]})
    return made


@pytest.mark.parametrize(
    ("name", "clip"),
    [
        ("clipped_surrogate", ClipRange(0.8, 1.2, "gradient")),
        ("clipped_weight", ClipRange(0.0, 4.0, "weight")),
        ("truncated_importance", ClipRange(0.0, 2.0, "weight")),
        ("shared_ratio", ClipRange(0.9997, 1.0004, "gradient", per_sequence=True)),
    ],
)
@given(rows=batches())
def test_it_is_the_share_that_a_clip_range_has(
    name: str, clip: ClipRange, rows: list[dict[str, np.ndarray]]
) -> None:
    """Written out, a loss of the service is clipped as it is there."""
    q, p, adv = ([row[key] for row in rows] for key in ("logq", "logp", "adv"))
    masks = [np.ones(len(row["adv"])) for row in rows]
    assert share(library_loss(name), rows) == clip_fraction(clip, q, p, adv, masks)


@given(rows=batches())
def test_every_bound_counts(rows: list[dict[str, np.ndarray]]) -> None:
    dual, ppo = (share(library_loss(name), rows) for name in ("dual_clip", "clipped_surrogate"))
    far = np.concatenate([(r["adv"] < 0) & (np.exp(r["logp"] - r["logq"]) > 3) for r in rows])
    assert dual == pytest.approx((ppo or 0.0) + far.mean())


def test_which_losses_have_bounds() -> None:
    without = {name for name in library() if unbounded(library_loss(name)) is None}
    assert without == {
        *("log_likelihood", "importance", "quadratic_pull"),
        *("sapo", "icepop", "kl_cov"),
    }
    assert unbounded(program("-min(adv, 1) * ratio")) is None  # it bounds no ratio
    assert unbounded(program("-min(ratio, 2) * adv")) == program("-ratio * adv")


def test_what_overflows_without_its_bound_is_changed_by_it() -> None:
    loss = program("-exp(min(900 * ratio, 2)) * adv")
    row = {"logp": [-1.0, -1.0], "logq": [-1.0, -1.0], "adv": [1.0, 1.0]}
    assert share(loss, [{key: np.array(column) for key, column in row.items()}]) == 1.0
    assert share(loss, []) is None
