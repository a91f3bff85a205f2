"""The tracker ``openreward_rollouts()``: episodes uploaded to OpenReward, run by run.

It is not part of the training: what cannot be uploaded is counted and logged, and never stops a
run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from attrs import define, field

from rlc.catalog.index import tracker_traits
from rlc.envs.openreward.client import sdk
from rlc.plan.environments import EnvPlan
from rlc.plan.parts import TrackPlan
from rlc.plan.stages import Training

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
        """Start to upload a step's episodes, given as records of ``rollouts.jsonl``.

        Those of other sources are skipped.
        """
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
    """Replaces the log of the SDK's uploader, which alone reports batches that were given up."""

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
    said: list[tuple[Any, dict[str, Any]]] = [
        (package.UserMessage(content=turns[0]["observation"]), {})
    ]
    for number, turn in enumerate(turns):
        last = number == len(turns) - 1
        outcome = {"reward": turn["reward"], "is_finished": last and record["ended"] == "done"}
        calls = turn.get("calls", ())
        said.append((package.AssistantMessage(content=turn["action"]), {} if calls else outcome))
        for call_id, name, arguments in calls:
            call = package.ToolCall(name=name, content=arguments, call_id=f"{number}-{call_id}")
            said.append((call, {}))
        seen = "" if last else turns[number + 1]["observation"]
        if calls:
            result = package.ToolResult(content=seen, call_id=f"{number}-{calls[0][0]}")
            said.append((result, outcome))
        elif not last:
            said.append((package.UserMessage(content=seen), {}))
    return said
