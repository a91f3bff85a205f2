"""Pickling a value without the large parts that it has in common with others."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any


def dump_without(value: Any, parts: Mapping[str, Any]) -> bytes:
    """The pickled value, in which the parts are only named."""
    names, file = {id(part): name for name, part in parts.items()}, io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, part: Any) -> str | None:
            return names.get(id(part))

    Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()


def load_with(data: bytes, parts: Mapping[str, Any]) -> Any:
    """The value, with these parts in the places of those that are named."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, name: Any) -> Any:
            return parts[name]

    return Unpickler(io.BytesIO(data)).load()
