"""What is stored and nobody needs any more: files of runs, and checkpoints on services.

Nothing is touched that the journal of a run names, that a run which is going on may be about to
name, or that a recipe or a plan starts from. What only a longer run could have taken is said, and
kept unless it is asked for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attrs import evolve, frozen

from rlc.catalog import find_provider
from rlc.errors import Error
from rlc.plan import CHECKPOINTS_FOLDER, JOURNAL_FILE, PLAN_FILE, is_hosted
from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.folder import is_locked, locked
from rlc.runtime.records import RunError
from rlc.runtime.reuse.index import BELOW, INDEX_FILE, RUNS, local_file

if TYPE_CHECKING:
    from rlc.service import StoredCheckpoint

_GIGABYTE = 1e9
_PATHS = re.compile(r"tinker://[^\s\"'<>]+")
_NAMED_IN = (".rl", ".toml", ".py", ".json", ".yaml", ".yml", ".md", ".sh")
_OVER = ("finished", "budget", "nothing learnt")  # states of a run that does not go on
Kind = Literal["state", "folder", "file", "checkpoint"]


@frozen
class StoredItem:
    """Something that is stored and not needed.

    Attributes:
        kind: a ``state`` of the embedded engine, a ``folder`` or a ``file`` of runs, or a
            ``checkpoint`` on a service.
        path: where it is.
        size: bytes that its deletion frees; None if the service does not say.
        why: why nothing needs it.
        run: the run that it is of, by its folder or, of another machine, its name; empty if none.
        usd: dollars a month; None if the price or the size is unknown.
        expires: when the service deletes it by itself, in seconds since the epoch; None: never.
        loses_reuse: whether a longer run could have taken it.
        elsewhere: whether a folder that was not looked at may name it: of a run that is not here,
            or of a copy of one that is not over.
        service: that of a checkpoint.
    """

    kind: Kind
    path: str
    size: int | None
    why: str
    run: str = ""
    usd: float | None = 0.0
    expires: float | None = None
    loses_reuse: bool = False
    elsewhere: bool = False
    service: str = ""


@frozen
class Storage:
    """What is stored below a folder of runs and on their services, and not needed.

    Attributes:
        items: what there is, each with its size and the reason.
        notes: what could not be looked at.
        base_url: the server that was asked in place of the hosted service, or None.
    """

    items: tuple[StoredItem, ...]
    notes: tuple[str, ...] = ()
    base_url: str | None = None

    def chosen(self, lose_reuse: bool = False, of: Collection[str] = ()) -> list[StoredItem]:
        """Return what is deleted: with ``lose_reuse`` also what a longer run could take, and what
        is ``of`` runs that are not here, or not over, by their names."""
        return [
            one
            for one in self.items
            if (lose_reuse or not one.loses_reuse) and (not one.elsewhere or one.run in of)
        ]

    def delete(self, items: Sequence[StoredItem]) -> list[str]:
        """Delete items, each after another look at whether it is needed by now; return what was not
        deleted, with the reason."""
        kept = list[str]()
        for one in items:
            try:
                if (why := _delete(one, self.base_url)) is not None:
                    kept.append(f"{one.path} is kept: {why}")
            except (Error, OSError) as error:
                kept.append(f"{one.path} is not deleted: {error}")
        return kept


@frozen(eq=False)
class _Run:
    """A run as it is now; ``names`` are the paths of all weights in its journal."""

    path: Path
    id: str
    is_open: bool  # it is going on, or nobody can say how it stands
    over: bool
    names: frozenset[str]
    snapshots: frozenset[str]
    expired: frozenset[str]
    services: frozenset[str]


def stored(
    root: str | os.PathLike[str] = RUNS,
    services: Iterable[str] | None = None,
    base_url: str | None = None,
) -> Storage:
    """Return what is stored of the runs in a folder and not needed by any of them.

    Args:
        root: the folder of runs, ``runs`` by default.
        services: the services whose checkpoints are looked at; by default those that the runs have
            trained on. Those without a key, or that cannot be reached, are named in the notes.
        base_url: a server in place of the hosted service.

    Raises:
        rlc.Error: there is no such folder.

    Example::

        found = rlc.stored("runs")
        print(sum(one.size or 0 for one in found.chosen()))
    """
    folder = Path(root)
    if not folder.is_dir():
        raise Error(f"there is no folder {folder}", "name the one that the runs are in")
    runs, notes = list[_Run](), list[str]()
    for path in sorted(set(_run_folders(folder))):
        runs.append(run := _read(path))
        if run.is_open:
            why = "is going on" if is_locked(path) else "cannot be read"
            notes.append(f"{path} {why}: nothing of it is touched")
    items = [*_of_folder(folder)]
    for run in runs:
        if not run.is_open:
            items += _of_run(run)
    used = sorted({s for run in runs for s in run.services}) if services is None else services
    for service in used:
        from rlc.service import stored_checkpoints  # of a package that a base install has not

        try:
            there = stored_checkpoints(service, base_url)
        except Error as error:
            notes.append(f"the checkpoints on {service} are not looked at: {error.message}")
        else:
            items += _on_service(service, there, runs, base_url is not None)
    return Storage(tuple(items), tuple(notes), base_url)


def _delete(one: StoredItem, base_url: str | None) -> str | None:
    """Delete an item, or return why not."""
    if one.kind == "checkpoint":
        from rlc.service import delete_stored

        delete_stored(one.path, one.service, base_url)
        return None
    path = Path(one.path)
    if one.kind == "state":
        with locked(Path(one.run), "run folder"):
            now = {item.path for item in _of_run(evolve(_read(Path(one.run)), is_open=False))}
            if one.path not in now:
                return "its run names it by now"
            path.unlink(missing_ok=True)
    elif one.kind == "folder":
        if is_locked(path):
            return "a process is using it"
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return None


def _run_folders(root: Path) -> Iterator[Path]:
    for pattern in BELOW:
        for name in (JOURNAL_FILE, PLAN_FILE):
            yield from (file.parent for file in root.glob(f"{pattern}/{name}"))
    if (root / JOURNAL_FILE).is_file():
        yield root


def _read(path: Path) -> _Run:
    try:
        with closing(Journal(path / JOURNAL_FILE, read_only=True)) as journal:
            plan = json.loads(journal.meta("plan") or "")
            stages: list[dict[str, Any]] = plan["stages"]
            return _Run(
                path,
                journal.meta("id") or "",
                is_locked(path),
                journal.meta("state") in _OVER,
                frozenset(journal.saved_paths()) | _named_in(json.dumps(plan)),
                frozenset(p for s in stages for p in journal.snapshots(s["name"]).values()),
                frozenset(p for stage in stages for p in _expired(journal, stage)),
                frozenset(
                    s["model"]["service"] for s in stages if is_hosted(s["model"]["service"])
                ),
            )
    except (sqlite3.Error, RunError, ValueError, KeyError, TypeError):
        nothing = frozenset[str]()
        return _Run(path, "", True, False, nothing, nothing, nothing, nothing)


def _named_in(text: str) -> frozenset[str]:
    return frozenset(_PATHS.findall(text))


def _expired(journal: Journal, stage: dict[str, Any]) -> Iterator[str]:
    """Yield the paths of states whose time is over: nothing loads them any more."""
    ttl = (stage.get("save") or {}).get("ttl_seconds")
    if ttl is not None:
        for path, created in journal.weights("checkpoints", stage["name"]).values():
            if created + ttl < time.time():
                yield path


def _of_folder(root: Path) -> Iterator[StoredItem]:
    """Yield what a process that was killed has left beside the runs."""
    for path in sorted(root.glob("*/*/.*.new")):
        if path.is_dir() and not is_locked(path):
            size = sum(_size(file) for file in path.rglob("*") if file.is_file())
            yield StoredItem("folder", str(path), size, "a trial that was never begun")
    for path in sorted(root.glob(f"{INDEX_FILE}.*.damaged")):
        yield StoredItem("file", str(path), _size(path), "an index that was damaged")


def _of_run(run: _Run) -> Iterator[StoredItem]:
    """Yield the states of the embedded engine that a run does not need."""
    home = run.path / CHECKPOINTS_FOLDER
    paths = {local_file(run.path, path): path for path in run.names}
    for file in sorted((*home.glob("*/*/*.safetensors"), *home.glob("*/*/.*"))):
        path = paths.get(file)
        if path is None:
            why = "its run does not name it: a process that was killed has left it"
        elif path in run.expired:
            why = "its time is over"
        elif path in run.snapshots and run.over:
            why = "its run is over, and only a longer one would sample from it"
        else:
            continue
        loses = path is not None and path not in run.expired
        yield StoredItem("state", str(file), _size(file), why, str(run.path), loses_reuse=loses)


def _on_service(
    service: str, there: Iterable[StoredCheckpoint], runs: Sequence[_Run], own: bool
) -> Iterator[StoredItem]:
    """Yield the checkpoints on a service, or on a server of one's ``own``, where they cost nothing,
    that were made by rlc and are named by nobody here."""
    named = frozenset[str]().union(*(run.names for run in runs)) | _named_by_files(Path.cwd())
    by_id = {run.id: run for run in runs if run.id}
    unsure = {run.path.resolve().name for run in runs if run.is_open}
    provider = find_provider(service)
    price = 0.0 if own else None if provider is None else provider.storage
    snapshots = {path: run for run in runs if run.over for path in run.snapshots}
    for one in there:
        name, run = one.metadata.get("rlc_run", ""), by_id.get(one.metadata.get("rlc_id", ""))
        if not name or name in unsure or (run is not None and run.is_open):
            continue
        usd = None if price is None or one.size is None else one.size / _GIGABYTE * price
        item = StoredItem("checkpoint", one.path, one.size, "", name, usd, one.expires)
        item = evolve(item, service=service)
        if one.path in snapshots and not _named_elsewhere(one.path, snapshots[one.path], runs):
            why = "its run is over, and only a longer one would sample from it"
            yield evolve(item, why=why, run=str(snapshots[one.path].path), loses_reuse=True)
        elif one.path in named:
            continue
        elif run is not None and run.over:
            yield evolve(item, why="its run does not name it any more", run=str(run.path))
        else:
            why = "its run is not here: it was deleted, or is on another machine"
            if run is not None:  # one that is stopped may go on in a copy of its folder
                why = "its run is not over, and a copy of its folder elsewhere may name it"
            yield evolve(item, why=why, elsewhere=True)


def _named_elsewhere(path: str, owner: _Run, runs: Iterable[_Run]) -> bool:
    return any(path in run.names for run in runs if run is not owner)


def _named_by_files(root: Path) -> frozenset[str]:
    """Return the paths of states that the files of a project name: recipes, scripts, plans."""
    found = set[str]()
    for folder, inside, names in os.walk(root):
        inside[:] = [n for n in inside if not n.startswith((".", "_")) and n != RUNS.name]
        for name in names:
            file = Path(folder, name)
            with suppress(OSError):  # a file that cannot be read names nothing that rlc could use
                if file.suffix in _NAMED_IN and file.stat().st_size < 2**22:
                    found |= _named_in(file.read_text(encoding="utf-8", errors="replace"))
    return frozenset(found)


def _size(file: Path) -> int:
    """Return the bytes that the deletion of a file frees: none if it has another name, too."""
    try:
        known = file.stat()
    except OSError:
        return 0
    return known.st_size if known.st_nlink == 1 else 0
