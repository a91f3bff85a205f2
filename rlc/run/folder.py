"""The folder of a run: its files, its lock, and what happens to them when it is resumed."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rlc.plan.codec import PlanFormatError, plan_from_dict, plan_hash, plan_to_dict
from rlc.plan.tree import EvalPlan, Plan
from rlc.run.journal import Journal
from rlc.run.metrics import METRICS_FILE, ROLLOUTS_FILE
from rlc.run.records import RunError


class RunFolder:
    """An open, locked run folder. Make one with :meth:`create` or :meth:`resume`."""

    def __init__(self, path: Path, plan: Plan, lock: int) -> None:
        self.path = path
        self.plan = plan
        self.journal = Journal(path / "journal.sqlite")
        self._lock = lock

    @classmethod
    def create(cls, path: Path, plan: Plan) -> RunFolder:
        """A new folder. Raises RunError if it exists with content or cannot be written."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise RunError(
                    f"the run folder {path} already exists",
                    f"go on with it (`rlc run --resume {path}`) or choose another --run-dir",
                )
            lock = _lock(path)
            _write_json(path / "plan.json", plan_to_dict(plan))
            folder = cls(path, plan, lock)
        except OSError as error:
            raise RunError(
                f"cannot write the run folder {path}: {error.strerror or error}",
                "choose another place with --run-dir",
            ) from error
        folder.journal.set_meta(plan_hash=plan_hash(plan), state="running")
        return folder

    @classmethod
    def resume(cls, path: Path) -> RunFolder:
        """An existing folder. Raises RunError if it is none, is in use, or was edited."""
        if not (path / "plan.json").is_file() or not (path / "journal.sqlite").is_file():
            raise RunError(
                f"{path} is not a run folder: it has no plan.json and journal.sqlite",
                "give the folder that an earlier `rlc run` named",
            )
        try:
            lock = _lock(path)
            plan = plan_from_dict(json.loads((path / "plan.json").read_text(encoding="utf-8")))
        except OSError as error:
            raise RunError(f"cannot use the run folder {path}: {error.strerror}") from error
        except (ValueError, PlanFormatError) as error:
            raise RunError(f"{path / 'plan.json'} is not a plan: {error}") from error
        folder = cls(path, plan, lock)
        if folder.journal.meta("plan_hash") is None:
            raise RunError(
                f"{path / 'journal.sqlite'} is empty or damaged: it does not know its plan",
                "restore it from a backup, or start a new run",
            )
        if folder.journal.meta("plan_hash") != plan_hash(plan):
            raise RunError(
                f"{path / 'plan.json'} was changed after the run began",
                "put it back as it was, or start a new run with the changed plan",
            )
        return folder

    def close(self) -> None:
        """Close the journal and let the lock go."""
        self.journal.close()
        os.close(self._lock)

    def rewind(self) -> None:
        """Go back to the newest checkpoint of each stage: later steps are in no saved weights.

        The files beside the journal are brought in line with it, whatever a crash left of them.
        """
        last = dict[str, int]()
        for stage in self.plan.stages:
            checkpoints = self.journal.checkpoints(stage.name)
            last[stage.name] = checkpoints[-1].step if checkpoints else 0
            if isinstance(stage, EvalPlan):  # of the steps of the stage that it evaluates
                last[stage.name] = last.get(stage.after or "", 0)
            self.journal.rewind(stage.name, last[stage.name])
        done = {
            (s.name, step.step) for s in self.plan.stages for step in self.journal.steps(s.name)
        }
        self.keep_lines(ROLLOUTS_FILE, lambda r: (r.get("stage"), r.get("step")) in done)
        self.rewrite(METRICS_FILE, self.journal.metrics())

    def append(self, name: str, records: Iterable[dict[str, Any]]) -> None:
        """Append JSON lines to a file of the folder."""
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def read(self, name: str) -> list[dict[str, Any]]:
        """The records of a file of JSON lines; those that are damaged are empty."""
        with (self.path / name).open(encoding="utf-8", errors="replace") as file:
            return [_record(line) for line in file]

    def keep_lines(self, name: str, keep: Callable[[dict[str, Any]], bool]) -> None:
        """Rewrite a file of JSON lines without those that ``keep`` refuses or that are damaged."""
        if (self.path / name).exists():
            self.rewrite(name, [record for record in self.read(name) if keep(record)])

    def rewrite(self, name: str, records: Iterable[dict[str, Any]]) -> None:
        """Replace a file of JSON lines; the old one stays until the new one is whole."""
        fresh = f"{name}.tmp"
        (self.path / fresh).unlink(missing_ok=True)
        self.append(fresh, records)
        (self.path / fresh).replace(self.path / name)


def _record(line: str) -> dict[str, Any]:
    """The object on a line; an empty one where a crash or an editor damaged it."""
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _lock(path: Path) -> int:
    """Hold the folder against a second process; the lock ends with this one."""
    handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise RunError(f"another process is running {path}", "wait for it to end") from error
    return handle


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
