"""Runs from Python: what a run has left answers at once."""

from __future__ import annotations

import os
from collections.abc import Callable

from attrs import fields, frozen

from rlc.errors import Error
from rlc.models.model import Model, model
from rlc.plan import Plan
from rlc.runtime import ExpectationError, Observer, Summary
from rlc.runtime import resume as resume_run
from rlc.runtime import run_plan as start_plan


class NoWeightsError(Error):
    """A run that has left no weights."""


@frozen
class TrainedSummary(Summary):
    """The summary of a run, whose model can be asked."""

    def model(self, base_url: str | None = None) -> Model:
        """Return what the last stage that was trained has left, as :func:`rlc.model` does; it is a
        context manager. ``base_url`` is the address of a Tinker server to use instead of the hosted
        service.

        Raise rlc.Error if nothing was saved, or the model cannot be used.

        Example::

            with rlc.run("recipes/quickstart.rl").model() as trained:
                print(trained.chat("2 + 3 = ?"))
        """
        if self.weights is None:
            raise NoWeightsError(f"{self.folder} has left no weights: no step of it is saved")
        return model(self.weights, base_url=base_url)


def run_plan(
    plan: Plan,
    run_dir: str | os.PathLike[str] | None = None,
    base_url: str | None = None,
    observer: Observer | None = None,
) -> TrainedSummary:
    """Run a plan that the rules have found nothing wrong with; see :func:`rlc.api.run`."""
    return _asked(lambda: start_plan(plan, run_dir, base_url, observer))


def resume(
    run_dir: str | os.PathLike[str], base_url: str | None = None, observer: Observer | None = None
) -> TrainedSummary:
    return _asked(lambda: resume_run(run_dir, base_url, observer))


resume.__doc__ = resume_run.__doc__


def _asked(run: Callable[[], Summary]) -> TrainedSummary:
    try:
        return _trained(run())
    except ExpectationError as error:
        error.summary = _trained(error.summary)
        raise


def _trained(summary: Summary) -> TrainedSummary:
    return TrainedSummary(*(getattr(summary, each.name) for each in fields(Summary)))
