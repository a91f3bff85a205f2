"""Where metrics go: the run folder, always, and the trackers of the stage."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from attrs import define, field
from tinker_cookbook.utils import ml_log

from rlc.plan.records import SftPlan, TrackPlan, TrainPlan
from rlc.runtime.records import RunError
from rlc.runtime.trackers.uploads import RolloutUploads

Trained = TrainPlan | SftPlan


@define(eq=False)
class MetricsLog:
    """``metrics.jsonl`` and the open trackers."""

    folder: Path
    _file: ml_log.Logger = field(init=False)
    _trackers: list[ml_log.Logger | RolloutUploads] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._file = ml_log.JsonLogger(self.folder)

    def open(self, stage: Trained) -> None:
        """Open the trackers of a stage. Raises RunError for one that does not start."""
        for plan in stage.track:
            try:
                self._trackers.append(OPENERS[plan.name](self.folder, stage, plan))
            except Exception as error:  # whatever a tracker's library raises
                cause = _cause(error)
                raise RunError(f"`{plan.name}()` does not start: {cause}") from error

    def write(self, metrics: Mapping[str, Any], rollouts: Sequence[Any] = ()) -> None:
        """One step: everything to the file, the numbers to the trackers, and the rollouts to
        those that take them."""
        for tracker in self._trackers:
            if isinstance(tracker, RolloutUploads):
                tracker.log_rollouts(rollouts)
                metrics = {**metrics, "uploads/failed": float(tracker.failed)}
        self._file.log_metrics(dict(metrics))
        numbers = {key: v for key, v in metrics.items() if isinstance(v, int | float)}
        step = numbers.pop("step")
        for tracker in self._trackers:
            tracker.log_metrics(numbers, step=step)

    def close(self) -> None:
        """Finish the trackers of a stage."""
        while self._trackers:
            self._trackers.pop().close()


def _cause(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed"
    return str(error).splitlines()[0]


def _name(folder: Path, stage: Trained, plan: TrackPlan) -> str:
    return plan.args["run"] or re.sub(r"\W+", "-", f"{folder.name}-{stage.name}")


def _wandb(folder: Path, stage: Trained, plan: TrackPlan) -> ml_log.Logger:
    """A stage that is gone on with goes on in its run: the run folder keeps the id."""
    name = _name(folder, stage, plan)
    with _environment(
        WANDB_RUN_ID=_kept_id(folder / f"wandb-{stage.name}.id"), WANDB_RESUME="allow"
    ):
        return ml_log.WandbLogger(project=plan.args["project"], log_dir=folder, wandb_name=name)


def _kept_id(path: Path) -> str:
    """The id in a file, which is made up where there is none: W&B wants one that is unique."""
    if not path.exists():
        path.write_text(uuid4().hex, encoding="utf-8")
    return path.read_text(encoding="utf-8")


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Variables of the environment, for a library that is told in no other way."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Trackio(ml_log.TrackioLogger):  # type: ignore[misc]  # whose run would be a new one each time
    def __init__(self, folder: Path, stage: Trained, plan: TrackPlan) -> None:
        name = _name(folder, stage, plan)
        init = importlib.import_module("trackio").init
        self.run = init(project=plan.args["project"], name=name, resume="allow")


class _EventFiles(ml_log.Logger):  # type: ignore[misc]  # tinker-cookbook has none of its own
    def __init__(self, folder: Path, stage: Trained, _: TrackPlan) -> None:
        writer = importlib.import_module("tensorboardX").SummaryWriter
        own = folder / "tensorboard" / stage.name
        begun = len(list(own.glob("*")))  # a resumed stage adds a file, in the same second too
        self._writer = writer(str(own), filename_suffix=f".{begun}")

    def log_hparams(self, config: Any) -> None:
        self._writer.add_text("config", str(config))

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


OPENERS: dict[str, Callable[[Path, Trained, TrackPlan], ml_log.Logger | RolloutUploads]] = {
    "wandb": _wandb,
    "trackio": _Trackio,
    "tensorboard": _EventFiles,
    "openreward_rollouts": lambda _, stage, plan: RolloutUploads(plan, stage),
}
