"""The folder of a sweep: its journal, its lock, and the run folders of its trials inside it."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from attrs import asdict, define

from rlc.catalog import plan_to_file
from rlc.compile import Sweep
from rlc.plan import Plan, Trial, plan_hash
from rlc.runtime import RunError, locked, made_and_locked
from rlc.sweeps.journal import SWEEP_FILE, SweepJournal
from rlc.sweeps.read import BASE_FILE, SHARED, TRIALS, require_sweep, trial_folder


@define(eq=False)
class SweepFolder:
    """An open, locked folder. Make one with :meth:`create` or :meth:`resume`."""

    path: Path
    journal: SweepJournal
    _opened: ExitStack

    @classmethod
    def create(
        cls, path: Path | None, sweep: Sweep, base: Plan, made_from: dict[str, Any]
    ) -> SweepFolder:
        """Make a new folder, by default ``runs/RECIPE-SWEEP-TIME``. ``made_from`` are the options
        that the recipe was compiled with. Raise RunError if it has content or cannot be written.
        """
        name = f"{Path(base.recipe).stem}-{sweep.plan.name}"
        with made_and_locked(path, name, "folder", "sweep --resume") as (where, opened):
            journal = opened.enter_context(closing(SweepJournal(where / SWEEP_FILE)))
            (where / TRIALS).mkdir()
            text = json.dumps(plan_to_file(base, where), indent=2, ensure_ascii=False) + "\n"
            (where / BASE_FILE).write_text(text, encoding="utf-8")
            folder = cls(where, journal, opened.pop_all())
        journal.set_meta(
            sweep=json.dumps(asdict(sweep.plan)),
            plan_hash=plan_hash(base),
            recipe=os.path.abspath(base.recipe),
            made_from=json.dumps(made_from),
            started=repr(time.time()),
            state="running",
        )
        return folder

    @classmethod
    def resume(cls, path: Path) -> SweepFolder:
        """Open the folder of an earlier sweep. Raise RunError if there is none, or it is in use."""
        require_sweep(path)
        with locked(path, "folder") as opened:
            journal = opened.enter_context(closing(SweepJournal(path / SWEEP_FILE)))
            return cls(path, journal, opened.pop_all())

    def require_same(self, sweep: Sweep, base: Plan) -> None:
        """Raise RunError if the recipe says something else than what the sweep was begun with. Its
        budget may differ."""
        begun = json.loads(self.journal.meta("sweep") or "{}")
        now = json.loads(json.dumps(asdict(sweep.plan)))
        changed = [key for key in now if key != "budget" and begun.get(key) != now[key]]
        if plan_hash(base) != self.journal.meta("plan_hash"):
            changed.append("the job itself")
        if changed:
            raise RunError(
                f"{base.recipe} says something else than what {self.path} was begun with: "
                f"{', '.join(changed)}",
                "put it back to go on, or begin a new sweep; its trials so far stay",
            )
        self.journal.set_meta(sweep=json.dumps(now))  # with the budget of now

    def of_trial(self, trial: Trial) -> Path:
        """The run folder of a trial."""
        return trial_folder(self.path, trial)

    def of_shared(self, plan: Plan) -> Path:
        """The run folder of stages that trials have in common."""
        return self.path / SHARED / plan_hash(plan)[:12]

    def set_state(self, state: str, cause: str = "") -> None:
        self.journal.set_meta(state=state, cause=cause, updated=repr(time.time()))

    def close(self) -> None:
        """Close the journal and release the lock; safe to call twice."""
        self._opened.close()
