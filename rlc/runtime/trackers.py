"""Places that metrics and rollouts are sent to while a run goes on."""

from __future__ import annotations

import importlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from attrs import define, field
from tinker_cookbook.utils import ml_log

from rlc.catalog import tracker_traits
from rlc.envs import sdk
from rlc.plan import EnvPlan, TrackPlan, Training
from rlc.runtime.records import RunError

_log = logging.getLogger(__name__)

MOST_WAITING = 10_000  # episodes waiting for their upload; more are left out
_THREADS = 8  # the SDK blocks when an upload begins, up to 15 seconds
_PATIENCE = 60.0  # seconds for what is left at the end of a stage

Record = Mapping[str, Any]


@define(eq=False)
class RolloutUploads:
    """Uploads the episodes of a stage's OpenReward environments, in its own threads."""

    plan: TrackPlan
    stage: Training
    failed: int = field(default=0, init=False)
    _client: Any = field(init=False)
    _lost: _CountingLog = field(init=False)
    _pool: ThreadPoolExecutor = field(init=False)
    _waiting: set[Future[None]] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        from rlc.version import __version__

        info = sdk().RunInfo(
            model_name=self.stage.model.base,
            run_type="train",
            training_stage="sft" if self.stage.rollouts is None else "rl",
            peft_type="lora",
            peft_rank=self.stage.model.lora_rank,
            lr=self.stage.optimizer.learning_rate,
            optimizer="adam",
            framework="rlc",
            framework_version=__version__,
        )
        self._client = sdk().OpenReward(run_info=info)
        self._client.rollout  # noqa: B018  made at first use, which must not be in two threads
        self._lost = _CountingLog(sdk().api.rollouts.background.log)
        sdk().api.rollouts.background.log = self._lost
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="uploads")

    def log_rollouts(self, records: Sequence[Record]) -> None:
        """Start to upload a step's episodes, records of ``rollouts.jsonl``, of this source only."""
        source = tracker_traits(self.plan.name).source
        envs = {env.name: env for env in self.stage.environments if env.source == source}
        self._settle()
        for record in records:
            if record["env"] not in envs or not record["turns"]:
                continue
            if len(self._waiting) >= MOST_WAITING:
                self.failed += 1
            else:
                env = envs[record["env"]]
                self._waiting.add(self._pool.submit(self._upload, env, record))

    def log_metrics(self, metrics: Mapping[str, Any], step: Any = None) -> None:
        """Do nothing: only episodes are uploaded."""

    def close(self) -> None:
        """Finish the pending uploads, or give them up if they take too long."""
        until = time.monotonic() + _PATIENCE
        wait(self._waiting, timeout=_PATIENCE)
        self._settle()
        self.failed += sum(future.cancel() or not future.done() for future in self._waiting)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.rollout.shutdown_timeout = max(1.0, until - time.monotonic())
        self._client.rollout.close()
        self._client.close()
        sdk().api.rollouts.background.log = self._lost.log
        for count, what in ((self.failed, "episodes"), (self._lost.count, "batches of messages")):
            if count:
                name = self.stage.name
                _log.warning("openreward_rollouts: %d %s of `%s` not uploaded", count, what, name)

    def _settle(self) -> None:
        """Count the uploads that have failed."""
        done = {future for future in self._waiting if future.done()}
        self._waiting -= done
        for future in done:
            if (error := future.exception()) is not None:
                self.failed += 1
                _log.debug("an upload failed: %s", error)

    def _upload(self, env: EnvPlan, record: Record) -> None:
        upload = self._client.rollout.create(
            run_name=self.plan.args["run"],
            rollout_name=f"{env.name} {record['task']}/{record['member']} step {record['step']}",
            environment=env.id,
            variant=env.args["variant"],
            split=env.args["split"],
            metadata={key: record[key] for key in _LABELS},
        )
        if upload._rollouts_disabled:  # how the SDK says that the upload could not begin
            raise ConnectionError("OpenReward did not take the rollout")
        for message, settings in _messages(record):
            upload.log(message, **settings)


@define(eq=False)
class _CountingLog:
    """Replaces the log of the SDK's uploader, the only report of failed batches."""

    log: Any
    count: int = 0

    def error(self, event: str, **details: Any) -> None:
        self.count += 1
        self.log.error(event, **details)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)


_LABELS = ("stage", "step", "env", "task", "member", "reward", "ended", "error", "advantages")


def _messages(record: Record) -> list[tuple[Any, dict[str, Any]]]:
    """Return the messages of an episode, with the settings of each: its reward, whether it ends."""
    package, turns = sdk(), record["turns"]
    messages: list[tuple[Any, dict[str, Any]]] = []
    messages.append((package.UserMessage(content=turns[0]["observation"]), {}))
    for number, turn in enumerate(turns):
        last = number == len(turns) - 1
        outcome = {"reward": turn["reward"], "is_finished": last and record["ended"] == "done"}
        calls = turn.get("calls", ())
        reply = package.AssistantMessage(content=turn["action"])
        messages.append((reply, {} if calls else outcome))
        for call_id, name, arguments in calls:
            call = package.ToolCall(name=name, content=arguments, call_id=f"{number}-{call_id}")
            messages.append((call, {}))
        seen = "" if last else turns[number + 1]["observation"]
        if calls:
            result = package.ToolResult(content=seen, call_id=f"{number}-{calls[0][0]}")
            messages.append((result, outcome))
        elif not last:
            messages.append((package.UserMessage(content=seen), {}))
    return messages


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
