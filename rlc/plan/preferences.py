"""The records of preferences in a plan: the data that compares replies, and the loss over it."""

from __future__ import annotations

from typing import Any, Literal

from attrs import frozen

from rlc.plan.environments import EnvPlan
from rlc.plan.models import ModelState
from rlc.records import Record


@frozen(eq=False, repr=False, slots=False)
class PreferencesPlan(Record):
    """What a preference stage compares.

    Rows of a file or data set. ``pairs``: a ``prompt`` with a ``chosen`` and a ``rejected`` reply;
    ``labelled``: a ``prompt`` with one ``reply``, and a ``label`` that says whether it is good.
    Those are names of fields; None: the usual ones (:mod:`rlc.data.comparisons`). The other
    attributes are those of :class:`rlc.plan.records.DataPlan`.

    ``preferred``: ``count`` pairs that ``model`` makes in ``env``, of ``samples`` replies to each
    task the best and the worst.
    """

    kind: Literal["pairs", "labelled", "preferred"]
    path: str | None
    prompt: str | None
    chosen: str | None
    rejected: str | None
    reply: str | None
    label: str | None
    split: Any
    count: int | None
    max_tokens: int | None
    too_long: Literal["stop", "drop"]
    env: EnvPlan | None = None
    model: ModelState | None = None
    samples: int | None = None

    @property
    def read(self) -> str | None:
        """What its rows are read from; None if the model makes them."""
        return self.path


@frozen(eq=False, repr=False, slots=False)
class PreferenceLossPlan(Record):
    """A loss over preferences, by its name in the catalogue, with its settings."""

    name: str
    config: dict[str, float]
