"""The catalogue as a whole: every kind, every builtin, found by name."""

from __future__ import annotations

from rlc.catalog.advantages import PRESETS, STEPS
from rlc.catalog.environments import SOURCES, WRAPPERS
from rlc.catalog.losses import LOSSES
from rlc.catalog.records import Builtin, Kind
from rlc.catalog.training import BATCHES, FAILURES, OPTIMIZERS, SAMPLING, SAVES

KINDS = {
    kind.name: kind
    for kind in (
        Kind("model", "a model", "policy"),
        Kind(
            "env",
            "an environment",
            'gem("game:Sudoku-v0-easy") |> chat()',
            step="wrapper",
            start='gem("…")',
        ),
        Kind("wrapper", "a wrapper", "chat()"),
        Kind("advantage", "an advantage scheme", "grpo()", step="step", start="returns()"),
        Kind("step", "an advantage step", "baseline(mean, over = group)"),
        Kind("loss", "a loss", "importance_sampling()"),
        Kind("optimizer", "an optimizer", "adam(1e-4)"),
        Kind("batch", "a batch", "groups(16, of = 8)"),
        Kind("sampling", "a way of sampling", "sample(max_tokens = 512)"),
        Kind("save", "a checkpoint rule", "every(20)"),
        Kind("failure", "a failure policy", "retry(3) then drop"),
        Kind("retry", "a number of retries", "retry(3)"),
    )
}

BUILTINS: tuple[Builtin, ...] = (
    *SOURCES,
    *WRAPPERS,
    *PRESETS,
    *STEPS,
    *LOSSES,
    *OPTIMIZERS,
    *BATCHES,
    *SAMPLING,
    *SAVES,
    *FAILURES,
)


def find_builtin(kind: str, name: str) -> Builtin | None:
    """The builtin of a kind with that name."""
    return next((b for b in BUILTINS if b.name == name and b.kind == kind), None)


def find_anywhere(name: str) -> Builtin | None:
    """A builtin of that name, of whatever kind."""
    return next((builtin for builtin in BUILTINS if builtin.name == name), None)


def names_of(kind: str) -> list[str]:
    """The names of a kind's builtins."""
    return [builtin.name for builtin in BUILTINS if builtin.kind == kind]


def words_of(kind: str) -> list[str]:
    """Those of them that are words, without parentheses."""
    return [builtin.name for builtin in BUILTINS if builtin.kind == kind and builtin.word]
