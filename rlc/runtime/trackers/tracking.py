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

from rlc.plan.parts import TrackPlan
from rlc.plan.stages import Training
from rlc.runtime.records import RunError
from rlc.runtime.trackers.uploads import RolloutUploads


@define(eq=False)
class MetricsLog:
    """``metrics.jsonl`` and the open trackers."""

    folder: Path
    _file: ml_log.Logger = field(init=False)
    _trackers: list[ml_log.Logger | RolloutUploads] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._file = ml_log.JsonLogger(self.folder)

    def open(self, stage: Training) -> None:
        """Open the trackers of a stage. Raise RunError if one does not start."""
        for plan in stage.track:
            try:
                self._trackers.append(OPENERS[plan.name](self.folder, stage, plan))
            except Exception as error:  # the tracker's library may raise anything
                cause = str(error).splitlines()[0]
                if isinstance(error, ModuleNotFoundError):
                    cause = f"{error.name} is not installed"
                raise RunError(f"`{plan.name}()` does not start: {cause}") from error

    def write(self, metrics: Mapping[str, Any], rollouts: Sequence[Any] = ()) -> None:
        """Write a step: all metrics to the file, the numbers and the rollouts to the trackers."""
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
        while self._trackers:
            self._trackers.pop().close()


def _name(folder: Path, stage: Training, plan: TrackPlan) -> str:
    return plan.args["run"] or re.sub(r"\W+", "-", f"{folder.name}-{stage.name}")


def _wandb(folder: Path, stage: Training, plan: TrackPlan) -> ml_log.Logger:
    """Open W&B's run of a stage; a resumed stage continues it, under the id in the run folder."""
    name, id_file = _name(folder, stage, plan), folder / f"wandb-{stage.name}.id"
    if not id_file.exists():
        id_file.write_text(uuid4().hex, encoding="utf-8")
    run_id = id_file.read_text(encoding="utf-8")
    with _environment(WANDB_RUN_ID=run_id, WANDB_RESUME="allow"):
        return ml_log.WandbLogger(project=plan.args["project"], log_dir=folder, wandb_name=name)


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set environment variables, for a library that takes these settings in no other way."""
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


class _Trackio(ml_log.TrackioLogger):  # type: ignore[misc]  # tinker-cookbook cannot resume a run
    def __init__(self, folder: Path, stage: Training, plan: TrackPlan) -> None:
        name = _name(folder, stage, plan)
        init = importlib.import_module("trackio").init
        self.run = init(project=plan.args["project"], name=name, resume="allow")


class _EventFiles(ml_log.Logger):  # type: ignore[misc]  # tinker-cookbook has none of its own
    def __init__(self, folder: Path, stage: Training, _: TrackPlan) -> None:
        writer = importlib.import_module("tensorboardX").SummaryWriter
        own = folder / "tensorboard" / stage.name
        begun = len(list(own.glob("*")))  # a resumed stage adds a file, maybe in the same second
        self._writer = writer(str(own), filename_suffix=f".{begun}")

    def log_hparams(self, config: Any) -> None:
        self._writer.add_text("config", str(config))

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


OPENERS: dict[str, Callable[[Path, Training, TrackPlan], ml_log.Logger | RolloutUploads]] = {
    "wandb": _wandb,
    "trackio": _Trackio,
    "tensorboard": _EventFiles,
    "openreward_rollouts": lambda _, stage, plan: RolloutUploads(plan, stage),
}
