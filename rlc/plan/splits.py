"""Splits as a plan has them: a name, ``"test"``, or a part of a named one, a record such as
``{"part": "first", "share": 0.9, "by": "hash", "of": "train"}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Split = str | Mapping[str, Any]
FIELD = "split"  # of a row: which split it belongs to


def base_split(split: Split) -> str:
    """The name of the split that is meant, or that a part is taken of."""
    return split if isinstance(split, str) else str(split["of"])
