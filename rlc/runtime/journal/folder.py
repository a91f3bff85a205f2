"""The folder of a run: its files, its lock, and what happens to them when it is resumed."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rlc.plan.codec import PlanFormatError, plan_from_dict, plan_hash, plan_to_dict
from rlc.plan.differences import difference_lines
from rlc.plan.records import EvalPlan, Plan
from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.locks import lock
from rlc.runtime.journal.metrics import METRICS_FILE, ROLLOUTS_FILE
from rlc.runtime.journal.timeline import TIMELINE_FILE
from rlc.runtime.records import RunError


class RunFolder:
    """An open, locked run folder. Make one with :meth:`create` or :meth:`resume`."""

    def __init__(self, path: Path, plan: Plan, held: int, journal: Journal | None = None) -> None:
        self.path = path
        self.plan = plan
        self.journal = journal or Journal(path / "journal.sqlite")
        self._lock = held
        self._new = False

    @classmethod
    def create(cls, path: Path, plan: Plan) -> RunFolder:
        """A new folder. Raises RunError if it exists with content or cannot be written."""
        made = not path.exists()
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise RunError(
                    f"the run folder {path} already exists",
                    f"go on with it (`rlc run --resume {path}`) or choose another --run-dir",
                )
            folder = cls(path, plan, lock(path))
            folder._write_plan()
            folder._new = True
        except OSError as error:
            if made:
                shutil.rmtree(path, ignore_errors=True)
            raise RunError(
                f"cannot write the run folder {path}: {error.strerror or error}",
                "choose another place with --run-dir",
            ) from error
        text = json.dumps(plan_to_dict(plan), ensure_ascii=False)
        folder.journal.set_meta(plan_hash=plan_hash(plan), plan=text, started=repr(time.time()))
        folder.set_state("running")
        return folder

    @classmethod
    def resume(cls, path: Path) -> RunFolder:
        """An existing folder, whose plan is what its journal says. Raises RunError if it is no
        run's, is in use, cannot be written, or has a ``plan.json`` that says something else."""
        if not (path / "journal.sqlite").is_file():
            raise RunError(
                f"{path} is not a run folder: it has no plan.json and journal.sqlite",
                "give the folder that an earlier `rlc run` named",
            )
        try:
            held = lock(path)
        except OSError as error:
            raise RunError(*_not_writable(path, error)) from error
        try:
            return cls._resumed(path, held)
        except BaseException:
            os.close(held)
            raise

    @classmethod
    def _resumed(cls, path: Path, held: int) -> RunFolder:
        journal = Journal(path / "journal.sqlite")
        try:
            folder = cls(path, _journalled_plan(path, journal), held, journal)
            folder._compare_plan()
        except OSError as error:
            raise RunError(*_not_writable(path, error)) from error
        except BaseException:
            journal.close()
            raise
        return folder

    def _write_plan(self) -> None:
        """``plan.json`` as a saved plan: its hash shows whether it was edited."""
        data = {"plan_hash": plan_hash(self.plan), **plan_to_dict(self.plan)}
        fresh = self.path / "plan.json.tmp"
        fresh.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(self.path / "plan.json")

    def _compare_plan(self) -> None:
        """Refuse an edited ``plan.json``, with what differs; one that is gone is written anew."""
        file = self.path / "plan.json"
        if not file.exists():
            return self._write_plan()
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            data.pop("plan_hash", None)
            edited = plan_from_dict(data)
        except (ValueError, AttributeError, PlanFormatError) as error:
            raise RunError(
                f"{file} is not a plan any more: {error}",
                f"delete it: the journal knows the plan, and `rlc run --resume {self.path}` "
                "writes it anew",
            ) from error
        if plan_hash(edited) != plan_hash(self.plan):
            lines = "\n".join(difference_lines(self.plan, edited))
            raise RunError(
                f"{file} was changed after the run began\n{lines}",
                "delete it to go on with the plan that was begun, or start a new run with the "
                "changed recipe",
            )
        return None

    def set_state(self, state: str, cause: str = "") -> None:
        """Write down how the run stands now, and why."""
        self.journal.set_meta(state=state, cause=cause, updated=repr(time.time()))

    def close_failed(self) -> bool:
        """Close the folder of a run that failed; a new one in which no step was begun is deleted.
        Says whether it is still there."""
        keep = not self._new or self.journal.has_begun()
        self.close()
        if not keep:
            shutil.rmtree(self.path, ignore_errors=True)
        return keep

    def close(self) -> None:
        """Close the journal and let the lock go; safe to call twice."""
        self.journal.close()
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

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
        for name in (ROLLOUTS_FILE, TIMELINE_FILE):
            self.keep_lines(name, lambda r: (r.get("stage"), r.get("step")) in done)
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


def _journalled_plan(path: Path, journal: Journal) -> Plan:
    """The plan that a run was begun with. Raises RunError."""
    text = journal.meta("plan")
    try:
        if text is None and journal.meta("plan_hash") is not None:  # of an older version
            text = (path / "plan.json").read_text(encoding="utf-8")
        if text is not None:
            return plan_from_dict(json.loads(text))
    except PlanFormatError as error:
        raise RunError(
            f"{path} was begun by another version of rlc, whose plans this one does not read: "
            f"{error}",
            "go on with that version, or start a new run",
        ) from error
    raise RunError(
        f"{path / 'journal.sqlite'} is empty or damaged: it does not know its plan",
        "restore it from a backup, or start a new run",
    )


def _not_writable(path: Path, error: OSError) -> tuple[str, str]:
    return (
        f"cannot write the run folder {path}: {error.strerror or error}",
        "see to its permissions and to the room on its disk, then go on",
    )
