"""Which runs have what: the keys in the journals below a folder, with an index that spares opening
those that have not changed. It can be deleted at any time: the folders are the truth."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from attrs import frozen

from rlc.plan import CHECKPOINTS_FOLDER, JOURNAL_FILE, RUNS_FOLDER
from rlc.runtime.journal.database import Journal
from rlc.runtime.records import RunError
from rlc.runtime.reuse.identity import Identity

RUNS = Path(RUNS_FOLDER)
INDEX_FILE = ".reuse.sqlite"
KEYS = "reuse_keys"  # in the meta of a journal
STEPS = "steps"
BELOW = ("*", "*/*/*")  # of runs, and of the trials and shared stages of a sweep
_SCHEMA = "CREATE TABLE IF NOT EXISTS runs (path TEXT PRIMARY KEY, version TEXT, keys TEXT)"
_PATIENCE = 2.0  # seconds for another process that writes the index

Keys = Mapping[str, Mapping[str, str]]  # by stage: that of its steps, those of its examples


def keys_of(found: Mapping[str, Identity]) -> dict[str, dict[str, str]]:
    """Return what is journalled of the stages of a plan, by their names."""
    return {
        name: ({STEPS: one.steps} if one.steps else {})
        | {f"examples{part}": key for part, key in one.examples.items()}
        for name, one in found.items()
    }


@frozen
class FinishedStage:
    """A stage of a run, whose ``kind`` (its steps, or its examples) has the key that was asked."""

    run: Path
    stage: str
    kind: str


def offers(root: Path) -> dict[str, list[FinishedStage]]:
    """Return what the runs below a folder have, by key, those that began last first."""
    if not root.is_dir():
        return {}
    found: dict[str, list[FinishedStage]] = {}
    for path, keys in sorted(_current(root).items(), reverse=True):
        for stage, by_kind in keys.items():
            for kind, key in by_kind.items():
                found.setdefault(key, []).append(FinishedStage(root / path, stage, kind))
    return found


def _current(root: Path) -> dict[str, Keys]:
    """Return the keys of each run, by its path from ``root``, and bring the index up to date."""
    known, is_damaged = _read_index(root / INDEX_FILE)
    versions = dict(_versions(root))
    new = {path: v for path, v in versions.items() if known.get(path, ("",))[0] != v}
    fresh = {path: (version, journalled_keys(root / path)) for path, version in new.items()}
    gone = known.keys() - versions.keys()
    if fresh or gone or is_damaged:
        _write_index(root / INDEX_FILE, fresh, sorted(gone), is_damaged)
    return {path: keys for path, (_, keys) in {**known, **fresh}.items() if path in versions}


def _versions(root: Path) -> Iterator[tuple[str, str]]:
    for pattern in BELOW:
        for file in root.glob(f"{pattern}/{JOURNAL_FILE}"):
            states = [file.stat()]
            with suppress(OSError):  # there is none while nobody writes
                states.append(os.stat(f"{file}-wal"))
            version = ":".join(f"{one.st_size}.{one.st_mtime_ns}" for one in states if one.st_size)
            yield str(file.parent.relative_to(root)), version


def journalled_keys(run: Path) -> Keys:
    """Return the keys of a run's stages; none of one that is damaged, or of an older version."""
    try:
        with closing(Journal(run / JOURNAL_FILE, read_only=True)) as journal:
            found = json.loads(journal.meta(KEYS) or "{}")
            return {name: dict(found[name]) for name in found}
    except (sqlite3.Error, RunError, ValueError, TypeError, AttributeError):
        return {}


def _read_index(file: Path) -> tuple[dict[str, tuple[str, Keys]], bool]:
    """Return what the index has, and whether it has to be made anew."""
    if not file.is_file():
        return {}, False
    try:
        with closing(sqlite3.connect(file, timeout=_PATIENCE)) as db:
            rows = db.execute("SELECT path, version, keys FROM runs")
            return {path: (version, dict(json.loads(keys))) for path, version, keys in rows}, False
    except (sqlite3.Error, ValueError, TypeError) as error:
        return {}, not (isinstance(error, sqlite3.OperationalError) and "locked" in str(error))


def _write_index(
    file: Path, fresh: Mapping[str, tuple[str, Keys]], gone: Sequence[str], anew: bool
) -> None:
    # Without the index the journals are read again the next time: that is all that is lost.
    with suppress(sqlite3.Error, OSError):
        if anew:
            file.replace(file.with_name(f"{INDEX_FILE}.{time.time_ns()}.damaged"))
        with closing(sqlite3.connect(file, timeout=_PATIENCE)) as db, db:
            db.execute(_SCHEMA)
            rows = [(path, version, json.dumps(keys)) for path, (version, keys) in fresh.items()]
            db.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", rows)
            db.executemany("DELETE FROM runs WHERE path = ?", [(path,) for path in gone])


def local_file(run: Path, path: str) -> Path | None:
    """Return the file of weights that the embedded engine has saved for a run; None for those of a
    service."""
    scheme, _, name = path.partition("://")
    if scheme != "local":
        return None
    return run / CHECKPOINTS_FOLDER / f"{name}.safetensors"
