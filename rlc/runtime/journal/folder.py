"""Folders of runs and of sweeps: named, made and locked; the files of a run, and their resume."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from attrs import asdict, define, evolve, field

from rlc.catalog import located_files, paths_in, plan_from_file, plan_to_file
from rlc.plan import (
    JOURNAL_FILE,
    PLAN_FILE,
    RUNS_FOLDER,
    AnyData,
    Plan,
    PlanFormatError,
    PlayersPlan,
    StagePlan,
    difference_lines,
    is_there,
    is_training,
    located,
    plan_hash,
)
from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.episodes import ALL, USUAL, keep_blocks
from rlc.runtime.journal.metrics import (
    COMPARISONS_FILE,
    METRICS_FILE,
    ROLLOUTS_FILE,
    TIMELINE_FILE,
    parse_line,
)
from rlc.runtime.records import FAILURES_FILE, Failure, RunError, read_failures
from rlc.version import __version__

_FILE = ".lock"
_TRIES, _PAUSE = 10, 0.01  # :func:`is_locked` has the lock for a moment


def command(verb: str, run: Path) -> str:
    """Return a command about a run as a shell takes it, whatever its folder is called."""
    name = str(run)
    return f"rlc {verb} {shlex.quote(f'./{name}' if name.startswith('-') else name)}"


def part_of(stage: StagePlan, data: AnyData) -> str:
    """Return the end of the names of files and streams for a stage's data."""
    return "-heldout" if data is stage.heldout else ""


def examples_file(stage: StagePlan, data: AnyData) -> str:
    """Return the name of the file in the run folder with the records of a stage's data."""
    return f"examples-{stage.name}{part_of(stage, data)}.jsonl"


def episodes_file(whose: str) -> str:
    """Return the name of the file in the run folder with the episodes that are played for data of a
    stage, by the stage's name and what :func:`part_of` returns."""
    return f"episodes-{whose}.jsonl"


def new_folder(root: Path, recipe: str) -> Path:
    """Make an empty folder ``NAME-TIME``, with a number if it exists."""
    plain = re.sub(r"[^\w.-]+", "-", recipe).strip("-.") or "recipe"
    path = first = root / f"{plain}-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 1
    while True:
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1
            path = first.with_name(f"{first.name}-{number}")


@contextmanager
def made_and_locked(
    path: Path | None, name: str, kind: str, resume: str
) -> Iterator[tuple[Path, ExitStack]]:
    """Make a folder, by default ``runs/NAME-TIME``, and lock it until the returned stack is closed:
    at the end of the block, unless that takes its callbacks over.

    Raise RunError, which names the ``kind`` of folder, if it has content, with the command
    ``resume``, or cannot be written; a new one is then deleted.
    """
    is_new = path is None or not path.exists()
    try:
        if path is None:
            path = new_folder(Path(RUNS_FOLDER), name)
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise RunError(
                f"the {kind} {path} already exists",
                f"go on with it (`{command(resume, path)}`) or choose another --run-dir",
            )
        with ExitStack() as opened:
            opened.callback(os.close, lock(path))
            yield path, opened
    except OSError as error:
        if is_new and path is not None:
            shutil.rmtree(path, ignore_errors=True)
        raise RunError(
            f"cannot write the {kind} {path or 'runs'}: {error.strerror or error}",
            "choose another place with --run-dir",
        ) from error


@contextmanager
def locked(path: Path, kind: str) -> Iterator[ExitStack]:
    """Lock a folder that exists, as :func:`made_and_locked` does."""
    try:
        with ExitStack() as opened:
            opened.callback(os.close, lock(path))
            yield opened
    except OSError as error:
        raise RunError(
            f"cannot write the {kind} {path}: {error.strerror or error}",
            "see to its permissions and to the room on its disk, then go on",
        ) from error


def lock(path: Path) -> int:
    """Lock a folder until the descriptor is closed; raise RunError if it is locked already."""
    handle = os.open(path / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for attempt in range(_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if attempt == _TRIES - 1:
                holder = os.read(handle, 64).decode(errors="replace").strip()
                os.close(handle)
                whose = f" ({holder})" if holder else ""
                raise RunError(
                    f"another process{whose} is running {path}", "wait for it to end"
                ) from error
            time.sleep(_PAUSE)
    os.truncate(handle, 0)
    os.write(handle, f"process {os.getpid()} on {os.uname().nodename}\n".encode())
    return handle


def is_locked(path: Path) -> bool:
    """Return whether a process has locked the folder."""
    try:
        with (path / _FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@define(eq=False)
class RunFolder:
    """An open, locked run folder, made by :meth:`create` or :meth:`resume`. ``recorded`` is the
    plan as it was compiled, ``plan`` the same with all files where this process finds them."""

    path: Path
    recorded: Plan
    journal: Journal
    _opened: ExitStack  # closes the journal, and releases the lock
    _new: bool = False
    players: PlayersPlan | None = None  # who plays, whatever the plan says
    plan: Plan = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.plan = located_files(self.recorded)

    @classmethod
    def create(cls, path: Path | None, plan: Plan) -> RunFolder:
        """Make a new folder. Raise RunError if it has content or cannot be written."""
        name = Path(plan.recipe).stem
        with made_and_locked(path, name, "run folder", "run --resume") as (where, opened):
            journal = opened.enter_context(closing(Journal(where / JOURNAL_FILE)))
            _write_plan(where, plan)
            folder = cls(where, plan, journal, opened.pop_all(), new=True)
        folder.journal.set_meta(
            id=secrets.token_hex(8),
            plan_hash=plan_hash(plan),
            plan=json.dumps(plan_to_file(plan, folder.path), ensure_ascii=False),
            recipe=os.path.abspath(plan.recipe),
            started=repr(time.time()),
            version=__version__,
        )
        folder.set_state("running")
        return folder

    @classmethod
    def resume(cls, path: Path) -> RunFolder:
        """Open the folder of an earlier run, with the plan in its journal. Raise RunError if there
        is no run in it, it is in use or not writable, or its ``plan.json`` differs."""
        if not (path / JOURNAL_FILE).is_file():
            raise no_run(path)
        with locked(path, "run folder") as opened:
            journal = opened.enter_context(closing(Journal(path / JOURNAL_FILE)))
            plan = _journalled_plan(path, journal)
            _compare_plan(path, plan)
            return cls(path, plan, journal, opened.pop_all())

    def set_state(self, state: str, cause: str = "") -> None:
        self.journal.set_meta(state=state, cause=cause, updated=repr(time.time()))

    def add_tags(self, tags: Sequence[str]) -> None:
        """Add names by which the run is found."""
        if tags:
            known = (self.journal.meta("tags") or "").split()
            self.journal.set_meta(tags=" ".join(dict.fromkeys([*known, *tags])))

    @property
    def kept_tokens(self) -> int | None:
        """The number of episodes of a step whose tokens are kept; None for all."""
        most = self.journal.meta("tokens") or str(USUAL)
        return None if most == ALL else int(most)

    def keep_tokens(self, most: int | None) -> None:
        """Set the number of episodes of a step whose tokens are kept; None for all."""
        self.journal.set_meta(tokens=ALL if most is None else str(most))

    def close_failed(self) -> bool:
        """Close the folder of a failed run; delete it if nothing has begun, or return True."""
        keep = not self._new or self.journal.has_begun()
        self.close()
        if not keep:
            shutil.rmtree(self.path, ignore_errors=True)
        return keep

    def close(self) -> None:
        """Close the journal and release the lock; safe to call twice."""
        self._opened.close()

    def rewind(self) -> None:
        """Return to the newest checkpoint of each stage, and make the files consistent with it."""
        last = dict[str, int]()
        for stage in self.plan.stages:
            last[stage.name] = max(self.journal.checkpoints(stage.name), default=0)
            if not stage.trains:  # its steps are those of the stage that it evaluates
                last[stage.name] = last.get(stage.after or "", 0)
            self.journal.rewind(stage.name, last[stage.name])
        done = {
            (s.name, step.step) for s in self.plan.stages for step in self.journal.steps(s.name)
        }
        for name in (ROLLOUTS_FILE, COMPARISONS_FILE, TIMELINE_FILE):
            if (self.path / name).exists():
                records = self.read(name)
                kept = [r for r in records if (r.get("stage"), r.get("step")) in done]
                self.rewrite(name, kept)
        keep_blocks(self.path, done)
        self.rewrite(METRICS_FILE, self.journal.metrics())

    def keep_failures(
        self, failures: Sequence[Failure], stage: str = "", step: int | None = None
    ) -> None:
        """Write the causes of failure that are new in this run, each with its traceback."""
        if not failures:
            return
        known, new = {failure.key for failure in read_failures(self.path)}, []
        for failure in failures:
            if failure.key not in known:
                known.add(failure.key)
                new.append(asdict(evolve(failure, stage=stage, step=step)))
        self.append(FAILURES_FILE, new)

    def append(self, name: str, records: Iterable[dict[str, Any]]) -> None:
        """Append JSON lines to a file of the folder."""
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def read(self, name: str) -> list[dict[str, Any]]:
        """Return the records of a file of JSON lines, empty ones for damaged lines."""
        with (self.path / name).open(encoding="utf-8", errors="replace") as file:
            return [parse_line(line) or {} for line in file]

    def rewrite(self, name: str, records: Iterable[dict[str, Any]]) -> None:
        """Replace a file of JSON lines; the old one stays until the new one is complete."""
        fresh = f"{name}.tmp"
        (self.path / fresh).unlink(missing_ok=True)
        self.append(fresh, records)
        (self.path / fresh).replace(self.path / name)


def _write_plan(path: Path, plan: Plan) -> None:
    """Write ``plan.json`` as a saved plan, whose hash shows whether it was edited."""
    text = json.dumps(plan_to_file(plan, path), indent=2, ensure_ascii=False) + "\n"
    fresh = path / "plan.json.tmp"
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path / PLAN_FILE)


def _compare_plan(path: Path, plan: Plan) -> None:
    """Raise RunError if ``plan.json`` was edited, with the differences; write a missing one."""
    file = path / PLAN_FILE
    if not file.exists():
        return _write_plan(path, plan)
    try:
        edited, _ = plan_from_file(json.loads(file.read_text(encoding="utf-8")), path)
    except ValueError as error:
        raise RunError(
            f"{file} is not a plan any more: {error}",
            f"delete it: the journal knows the plan, and `{command('run --resume', path)}` writes "
            "it anew",
        ) from error
    if plan_hash(edited) != plan_hash(plan):
        lines = "\n".join(difference_lines(plan, edited))
        raise RunError(
            f"{file} was changed after the run began\n{lines}",
            "delete it to go on with the plan that was begun, or start a new run with the changed "
            "recipe",
        )
    return None


def no_run(path: Path) -> RunError:
    """Return the error for a folder without a run."""
    return RunError(
        f"{path} is not a run folder: it has no {PLAN_FILE} and {JOURNAL_FILE}",
        "give the folder that an earlier `rlc run` named",
    )


def _journalled_plan(path: Path, journal: Journal) -> Plan:
    """Return the plan that a run was begun with. Raise RunError if it cannot be read."""
    text = journal.meta("plan")
    try:
        if text is None and journal.meta("plan_hash") is not None:  # of an older version
            text = (path / PLAN_FILE).read_text(encoding="utf-8")
        if text is not None:
            plan, _ = plan_from_file(json.loads(text), path)
            return evolve(plan, recipe=_found_recipe(path, plan, journal))
    except PlanFormatError as error:
        raise RunError(
            f"{path} was begun by another version of rlc, whose plans this one does not read: "
            f"{error}",
            "go on with that version, or start a new run",
        ) from error
    raise RunError(
        f"{path / JOURNAL_FILE} is empty or damaged: it does not know its plan",
        "restore it from a backup, or start a new run",
    )


def _found_recipe(path: Path, plan: Plan, journal: Journal) -> str:
    """Return the path of the recipe of a run: as seen from the run folder, if the project was
    moved, or where it was when the run began. Raise RunError if a file that the rest of the run
    reads is at neither place."""
    places = list(dict.fromkeys([plan.recipe, journal.meta("recipe") or plan.recipe]))
    known = [place for place in places if os.path.isfile(place)]
    # A stage with data that has begun has its examples in the run folder, and its own weights.
    begun = [s.name for s in plan.stages if s.data and journal.steps(s.name)]
    ahead = [
        evolve(stage, model=evolve(stage.model, weights=None))
        if journal.checkpoints(stage.name)
        else stage
        for stage in plan.stages
        if stage.name not in begun
        if not is_training(stage) or len(journal.steps(stage.name)) < stage.steps
    ]
    needed = paths_in(evolve(plan, stages=tuple(ahead)))
    lost = list[str]()  # the first at each place
    for recipe in known or places:
        missing = [f for file in needed if not is_there(f := located(file, recipe))]
        if not missing:
            return recipe
        lost += missing[:1]
    raise RunError(
        f"{path} cannot go on: there is no file {', and none at '.join(lost)}",
        "put it back: paths start at the folder of the recipe, which is looked for as it is seen "
        "from the run folder, and where it was when the run began",
    )
