"""Losses of one's own."""

from __future__ import annotations

from typing import Any

from rlc.service.conform.checks import check
from rlc.service.conform.data import likelihood
from rlc.service.conform.probe import EXACT, Probe
from rlc.service.conform.records import Check

CHECKS: list[Check] = []


def _weighted(logprobs: Any, weights: Any) -> Any:
    """The log-likelihood, written out."""
    loss = -(logprobs * weights).sum()
    return loss, {"custom/weighted:sum": loss}


@check(CHECKS, "custom.in_client", "TrainingClient.forward_backward_custom")
def in_client(probe: Probe) -> None:
    """A loss that the SDK computes itself has its value and its gradient."""
    client, data = probe.train(), likelihood()
    expected = probe.forward(client, data, backward=True).metrics["loss:sum"]
    norm = probe.step(client, 0.0)

    def summed(data: Any, logprobs: Any) -> Any:
        return -sum(row.sum() for row in logprobs), {"datums": float(len(data))}

    metrics = probe.custom(client, data, summed)
    probe.within(
        "a custom loss and the same one of the server, in parts of it,",
        abs(metrics["loss:sum"] - expected) / abs(expected),
        EXACT,
    )
    found = probe.step(client, 0.0)
    if norm:
        probe.within("norms of their gradients, in parts of them,", abs(found - norm) / norm, 0.02)


@check(
    CHECKS,
    "custom.on_server",
    "ServiceClient.create_custom_loss",
    "TrainingClient.forward_backward_custom",
    required=False,
)
def on_server(probe: Probe) -> None:
    """A loss that was traced once has its value, its gradient and its metrics."""
    client, data = probe.train(), likelihood(scale=0.5)
    expected = probe.forward(client, data, backward=True).metrics["loss:sum"]
    norm = probe.step(client, 0.0)
    ranks: Any = {"logprobs": 1, "weights": 1}
    handle = probe.get(probe.bench.sdk.create_custom_loss(_weighted, ranks))
    where = "in the client" if handle.loss_id is None else "on the server"
    probe.notes.append(f"computed {where}")
    metrics = probe.custom(client, data, handle)
    for name in ("loss:sum", "custom/weighted:sum"):
        if name not in metrics:
            probe.that(False, f"the metric {name} is not there")
            continue
        probe.within(
            f"{name} and the same loss of the server, in parts of it,",
            abs(metrics[name] - expected) / abs(expected),
            EXACT,
        )
    found = probe.step(client, 0.0)
    if norm:
        probe.within("norms of their gradients, in parts of them,", abs(found - norm) / norm, 0.02)
