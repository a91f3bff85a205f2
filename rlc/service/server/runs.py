"""Training runs as they outlive the server: one small file each, beside its checkpoints.

A checkpoint's path reads ``tinker://<run>/<weights|sampler_weights|external_weights>/<name>`` for
the SDK and ``local://…`` for the engine; the folder is the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import cattrs
from attrs import define, evolve, frozen
from tinker import types

from rlc.service.engine.checkpoints import (
    SCHEME,
    CheckpointInfo,
    CheckpointStore,
    Kind,
    is_folder_name,
)
from rlc.service.engine.lora import LoraSpec
from rlc.service.http import RefusedRequest

_T = TypeVar("_T")

TINKER = "tinker://"
PROJECT = "local"  # of sessions that name none
_FILE = "run.json"
_TYPES: dict[Kind, types.CheckpointType] = {
    "weights": "training",
    "sampler_weights": "sampler",
    "external_weights": "external",
}
_OWNER = "local"


@frozen
class Run:
    id: str
    base_model: str  # the name it is served under
    lora: LoraSpec
    created_at: float
    user_metadata: dict[str, str] | None = None
    project_id: str = PROJECT


def engine_path(path: str) -> str:
    """Return the engine's path of a checkpoint. Raise RefusedRequest if it is not Tinker's."""
    if not path.startswith(TINKER):
        raise RefusedRequest(400, f"{path!r} is no checkpoint: such a path starts with {TINKER}.")
    return SCHEME + path.removeprefix(TINKER)


def path_of(run_id: str, kind: str, name: str) -> str:
    return f"{TINKER}{run_id}/{kind}/{name}"


def tinker_path(path: str) -> str:
    return TINKER + path.removeprefix(SCHEME)


@define(eq=False)
class Runs:
    store: CheckpointStore

    def add(
        self,
        run_id: str,
        base_model: str,
        lora: LoraSpec,
        user_metadata: dict[str, Any] | None,
        project_id: str,
    ) -> None:
        """Write the file of a run that starts now."""
        metadata = None if user_metadata is None else {k: str(v) for k, v in user_metadata.items()}
        self._write(Run(run_id, base_model, lora, time.time(), metadata, project_id))

    def exists(self, run_id: str) -> bool:
        return self._file(run_id).exists()

    def move(self, run_id: str, project_id: str) -> None:
        """Move a run to a project. Raise RefusedRequest as `find` does."""
        self._write(evolve(self.find(run_id), project_id=project_id))

    def _write(self, run: Run) -> None:
        file = self._file(run.id)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(cattrs.unstructure(run), indent=2) + "\n", encoding="utf-8")

    def find(self, run_id: str) -> Run:
        """Return a run, or a folder of checkpoints without a file. Raise RefusedRequest (404)."""
        with suppress(OSError, ValueError):
            return cattrs.structure(json.loads(self._file(run_id).read_bytes()), Run)
        listed = self.store.list(run_id)
        if not listed:
            raise RefusedRequest(404, f"There is no training run {run_id} here.")
        newest = listed[0].description
        return Run(run_id, newest.base_model, newest.lora, listed[-1].saved_at)

    def run_of(self, path: str) -> Run:
        """Return the run of a checkpoint at a path of Tinker's. Raise as `find` does."""
        return self.find(path.removeprefix(TINKER).split("/")[0])

    def latest(self, project_id: str | None = None) -> list[types.TrainingRun]:
        """Return the runs of a project or of all, the latest first."""
        runs = []
        for folder in filter(Path.is_dir, self.store.root.glob("*")):
            with suppress(RefusedRequest):  # a folder that is not a run
                if project_id in (None, self.find(folder.name).project_id):
                    runs.append(self.describe(folder.name))
        return sorted(runs, key=lambda run: run.last_request_time, reverse=True)

    def describe(self, run_id: str) -> types.TrainingRun:
        """Describe a run for the API. Raise RefusedRequest (404) if there is none."""
        run = self.find(run_id)
        listed = self.store.list(run_id)
        # Newest first: of each kind the newest is kept.
        newest = {item.kind: _checkpoint(item) for item in reversed(listed)}
        last = max([run.created_at, *(item.saved_at for item in listed)])
        return types.TrainingRun(
            training_run_id=run.id,
            base_model=run.base_model,
            model_owner=_OWNER,
            is_lora=True,
            lora_rank=run.lora.rank,
            last_request_time=as_time(last),
            last_checkpoint=newest.get("weights"),
            last_sampler_checkpoint=newest.get("sampler_weights"),
            user_metadata=run.user_metadata,
        )

    def checkpoints(self, run_id: str | None = None) -> list[types.Checkpoint]:
        """Return the checkpoints of a run or of all, newest first. Raise as `find` does."""
        if run_id is not None:
            self.find(run_id)
        return [_checkpoint(item) for item in self.store.list(run_id)]

    def weights_info(self, path: str) -> types.WeightsInfoResponse:
        """Describe a checkpoint to a client that loads it. Raise ServiceError if it is missing."""
        listed = self.store.find(engine_path(path))
        lora = listed.description.lora
        return types.WeightsInfoResponse(
            base_model=self.run_of(path).base_model,
            is_lora=True,
            lora_rank=lora.rank,
            train_unembed=lora.train_unembed,
            train_mlp=lora.train_mlp,
            train_attn=lora.train_attn,
        )

    def _file(self, run_id: str) -> Path:
        if not is_folder_name(run_id):
            raise RefusedRequest(404, f"There is no training run {run_id[:100]} here.")
        return self.store.root / run_id / _FILE


def _checkpoint(item: CheckpointInfo) -> types.Checkpoint:
    expires_at = item.description.expires_at
    return types.Checkpoint(
        checkpoint_id=f"{item.kind}/{item.name}",
        checkpoint_type=_TYPES[item.kind],
        time=as_time(item.saved_at),
        tinker_path=tinker_path(item.path),
        size_bytes=item.size_bytes,
        public=item.description.public,
        user_metadata=item.description.user_metadata,
        expires_at=None if expires_at is None else as_time(expires_at),
    )


def as_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)


def paged(
    items: Sequence[_T], query: Mapping[str, str], default: int
) -> tuple[list[_T], types.Cursor]:
    """Return the part of a list that a query's ``limit`` and ``offset`` name."""
    try:
        limit, offset = int(query.get("limit", default)), int(query.get("offset", 0))
    except ValueError as error:
        raise RefusedRequest(400, "limit and offset are whole numbers.") from error
    if limit < 0 or offset < 0:
        raise RefusedRequest(400, "limit and offset are not negative.")
    cursor = types.Cursor(offset=offset, limit=limit, total_count=len(items))
    return list(items[offset : offset + limit]), cursor
