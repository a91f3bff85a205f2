"""Where metrics go: the run folder, always, and the trackers of the stage."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field
from tinker_cookbook.utils import ml_log

from rlc.plan.tree import TrackPlan
from rlc.run.records import RunError


@define(eq=False)
class MetricsLog:
    """``metrics.jsonl`` and the open trackers."""

    folder: Path
    _file: ml_log.Logger = field(init=False)
    _trackers: list[ml_log.Logger] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._file = ml_log.JsonLogger(self.folder)

    def open(self, stage: str, trackers: Sequence[TrackPlan]) -> None:
        """Open the trackers of a stage. Raises RunError for one that does not start."""
        for plan in trackers:
            try:
                self._trackers.append(_OPEN[plan.name](self.folder, stage, plan.args))
            except Exception as error:  # whatever a tracker's library raises
                cause = str(error).splitlines()[0]
                raise RunError(f"`{plan.name}()` does not start: {cause}") from error

    def write(self, metrics: Mapping[str, Any]) -> None:
        """One step: everything to the file, the numbers to the trackers."""
        self._file.log_metrics(dict(metrics))
        numbers = {key: v for key, v in metrics.items() if isinstance(v, int | float)}
        step = numbers.pop("step")
        for tracker in self._trackers:
            tracker.log_metrics(numbers, step=step)

    def close(self) -> None:
        """Finish the trackers of a stage."""
        while self._trackers:
            self._trackers.pop().close()


def _name(folder: Path, stage: str, args: Mapping[str, Any]) -> str:
    return args["run"] or re.sub(r"\W+", "-", f"{folder.name}-{stage}")


def _wandb(folder: Path, stage: str, args: Mapping[str, Any]) -> ml_log.Logger:
    name = _name(folder, stage, args)
    return ml_log.WandbLogger(project=args["project"], log_dir=folder, wandb_name=name)


def _trackio(folder: Path, stage: str, args: Mapping[str, Any]) -> ml_log.Logger:
    name = _name(folder, stage, args)
    return ml_log.TrackioLogger(project=args["project"], log_dir=folder, trackio_name=name)


class _EventFiles(ml_log.Logger):  # type: ignore[misc]  # tinker-cookbook has none of its own
    def __init__(self, folder: Path, stage: str, args: Mapping[str, Any]) -> None:  # noqa: ARG002
        writer = importlib.import_module("tensorboardX").SummaryWriter
        self._writer = writer(str(folder / "tensorboard" / stage))

    def log_hparams(self, config: Any) -> None:
        self._writer.add_text("config", str(config))

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


_OPEN: dict[str, Callable[[Path, str, Mapping[str, Any]], ml_log.Logger]] = {
    "wandb": _wandb,
    "trackio": _trackio,
    "tensorboard": _EventFiles,
}
