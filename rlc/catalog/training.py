"""Batches, sampling, optimiser, checkpoints, and what happens to a failed rollout."""

from __future__ import annotations

from rlc.catalog.records import Args, Builtin, Param
from rlc.plan.tree import AdamPlan, BatchPlan, FailurePlan, SamplingPlan, SavePlan

HOUR = 3_600
YEAR = 365 * 24 * HOUR

BATCHES = (
    Builtin(
        "groups",
        "batch",
        "groups of rollouts that share one task, so that they can be compared",
        lambda args: BatchPlan("groups", args.count, args.of, None),
        (
            Param("count", "int", "tasks in a step", low=1, high=10_000),
            Param("of", "int", "rollouts of each task", 8, low=1, high=1_024),
        ),
    ),
    Builtin(
        "turns",
        "batch",
        "single episodes until there are enough turns, then a random choice of exactly so many",
        lambda args: BatchPlan("turns", args.count, 1, args.parallel),
        (
            Param("count", "int", "turns that a step trains on", low=1, high=1_000_000),
            Param("parallel", "int", "episodes played side by side", 64, low=1, high=10_000),
        ),
    ),
)

SAMPLING = (
    Builtin(
        "sample",
        "sampling",
        "how replies are drawn",
        lambda args: SamplingPlan(args.max_tokens, args.temperature, args.top_p, args.top_k),
        (
            Param("max_tokens", "int", "longest reply, in tokens", low=1),
            Param("temperature", "float", "1 samples the model itself", 1.0, above=0, high=10),
            Param(
                "top_p", "float", "share of the probability to sample from", 1.0, above=0, high=1
            ),
            Param("top_k", "int", "likeliest tokens to sample from; -1 for all", -1, low=-1),
        ),
    ),
)

OPTIMIZERS = (
    Builtin(
        "adam",
        "optimizer",
        "Adam with decoupled weight decay",
        lambda args: AdamPlan(**args.values),
        (
            Param("learning_rate", "float", "step size", low=0, high=1),
            Param("beta1", "float", "decay of the gradient's mean", 0.9, low=0, below=1),
            Param("beta2", "float", "decay of the squared gradient's mean", 0.95, low=0, below=1),
            Param("eps", "float", "added to the root of the squared mean", 1e-8, above=0, high=1),
            Param("weight_decay", "float", "decoupled weight decay", 0.0, low=0, high=1),
            Param("grad_clip_norm", "float", "largest gradient norm; 0 for any", 0.0, low=0),
        ),
    ),
)

SAVES = (
    Builtin(
        "every",
        "save",
        "a checkpoint every so many steps and at the end",
        lambda args: SavePlan(args.n, args.keep, args.ttl),
        (
            Param("n", "int", "steps from one checkpoint to the next", low=1),
            Param("keep", "int", "newest checkpoints that are kept", 3, low=1),
            Param(
                "ttl",
                "duration",
                "time after which the service may delete one",
                None,
                low=HOUR,
                high=10 * YEAR,
                optional=True,
            ),
        ),
    ),
)

DEFAULT_SAVE = SavePlan(every=None, keep=3, ttl_seconds=None)
DEFAULT_FAILURE = FailurePlan(retries=1, then="drop")


def retry_then(retries: Args, then: FailurePlan) -> FailurePlan:
    """``retry(n) then drop``."""
    return FailurePlan(retries.n, then.then)


FAILURES = (
    Builtin(
        "drop",
        "failure",
        "leave the failed rollout out and go on",
        lambda _: FailurePlan(0, "drop"),
        word=True,
    ),
    Builtin(
        "stop",
        "failure",
        "stop the run at the first failure",
        lambda _: FailurePlan(0, "stop"),
        word=True,
    ),
    Builtin(
        "retry",
        "retry",
        "play the rollout again, up to n times; `then` says what if that fails too",
        lambda args: args,
        (Param("n", "int", "attempts after the first", low=1, high=100),),
    ),
)
