"""The tables of a run's journal, for the runtime, which writes it, and for readers of runs."""

from __future__ import annotations

import sqlite3
from typing import Literal

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS steps (
    stage TEXT, step INTEGER, started REAL NOT NULL, finished REAL,
    cursor TEXT, metrics TEXT, PRIMARY KEY (stage, step));
CREATE TABLE IF NOT EXISTS checkpoints (
    stage TEXT, step INTEGER, path TEXT NOT NULL, created REAL NOT NULL,
    PRIMARY KEY (stage, step));
CREATE TABLE IF NOT EXISTS snapshots (
    stage TEXT, step INTEGER, path TEXT NOT NULL, created REAL NOT NULL,
    PRIMARY KEY (stage, step));
CREATE TABLE IF NOT EXISTS sources (
    stage TEXT, step INTEGER, source INTEGER NOT NULL, PRIMARY KEY (stage, step));
CREATE TABLE IF NOT EXISTS spend (
    stage TEXT, step INTEGER, prefill INTEGER, cached INTEGER, sampled INTEGER, trained INTEGER,
    usd REAL);
CREATE TABLE IF NOT EXISTS answers (
    question TEXT PRIMARY KEY, text TEXT NOT NULL, stop_reason TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS spend_of_step ON spend (stage, step);
"""


def meta(db: sqlite3.Connection, key: str) -> str | None:
    """Return a value that is written once a run, or None."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return row[0] if row else None


def best_key(stage: str) -> str:
    return f"best:{stage}"


def saved(
    db: sqlite3.Connection, table: Literal["checkpoints", "snapshots"], stage: str
) -> dict[int, tuple[str, float]]:
    """Return the path of what is saved after each step of a stage, and its time, oldest first."""
    query = f"SELECT step, path, created FROM {table} WHERE stage = ? ORDER BY step"
    return {step: (path, created) for step, path, created in db.execute(query, (stage,))}
