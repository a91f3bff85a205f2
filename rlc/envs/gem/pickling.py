"""Pickling of values without the large parts that they share with others."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any


def dump_without(value: Any, parts: Mapping[str, Any]) -> bytes:
    """Pickle a value with each of the parts replaced by its name."""
    names, file = {id(part): name for name, part in parts.items()}, io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, part: Any) -> str | None:
            return names.get(id(part))

    Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def load_with(data: bytes, parts: Mapping[str, Any]) -> Any:
    """Unpickle a value that :func:`dump_without` pickled, with these parts in it."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, name: Any) -> Any:
            return parts[name]

    return Unpickler(io.BytesIO(data)).load()
