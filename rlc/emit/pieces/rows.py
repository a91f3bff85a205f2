"""Rows of data"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from datasets import load_dataset

from rlc.data import cut_at, position

Row = Mapping[str, Any]


def read_rows(path: Path, split: str | None = None) -> list[Row]:
    """The rows of a file of JSON lines that are in a split."""
    with open(path, encoding="utf-8-sig") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    return [row for row in rows if split in (None, row.get("split") or "train")]


def published(dataset: str, split: str, revision: str | None = None) -> list[Row]:
    """The rows of a data set of the Hugging Face hub: OWNER/NAME, or OWNER/NAME/CONFIG."""
    owner, name, *config = dataset.split("/")
    return list(load_dataset(f"{owner}/{name}", *config, revision=revision)[split])


def part(rows: Sequence[Row], low: Fraction, high: Fraction) -> Sequence[Row]:
    """The rows from one share of them to another, in their order."""
    return rows[cut_at(len(rows), low) : cut_at(len(rows), high)]


def part_by_hash(rows: Sequence[Row], low: Fraction, high: Fraction, by: str) -> Sequence[Row]:
    """The rows whose field has a hash between two shares."""
    return [row for row in rows if low <= position(row.get(by, row)) < high]
