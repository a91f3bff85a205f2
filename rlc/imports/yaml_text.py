"""YAML to plain values: duplicates, oversize and mistakes become one clear sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rlc.imports.errors import InputError, shown

MOST_VALUES = 20_000
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_MISSING = "???"


def read_yaml(text: str) -> dict[str, Any]:
    """Return the mapping that a YAML document holds. Raise InputError if it holds none."""
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise InputError("reading YAML needs PyYAML", "pip install pyyaml") from None
    try:
        value = yaml.load(text, Loader=_loader(yaml))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" on line {mark.line + 1}" if mark else ""
        raise InputError(f"this is not YAML{where}: {shown(error.problem)}", "correct it") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        reason = shown(error).partition("  in ")[0]
        raise InputError(f"this is not YAML: {reason}", "correct it") from None
    if not isinstance(value, dict):
        raise InputError("this YAML holds no options", "options are written `name: value`")
    _check_size(value)
    return {str(name): part for name, part in value.items()}


def flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return nested options by dotted names."""
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            found += flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found


def resolved(pairs: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return options with their references (``${data.x}``) filled in.

    What is marked as missing (``???``), or refers to something that is not there, is left out.
    """
    known = dict(pairs)
    filled = [(name, _resolve(value, known)) for name, value in pairs]
    return [(name, value) for name, value in filled if value != _MISSING]


def _resolve(value: Any, known: dict[str, Any], depth: int = 10) -> Any:
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    target = match[1]
    names = (target, f"rllm.{target}", target.removeprefix("rllm."))
    there = next((name for name in names if name in known), None)
    if there is None or depth == 0:
        return _MISSING
    return _resolve(known[there], known, depth - 1)


def _loader(yaml: Any) -> Any:
    """Return a safe loader that refuses a key given twice."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        pass

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen and isinstance(key.value, str):
                problem = f"`{shown(key.value)}` is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value if isinstance(key.value, str) else None)
        loader.flatten_mapping(node)
        made: dict[Any, Any] = loader.construct_mapping(node, deep=True)
        return made

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    return Loader


def _check_size(value: Any) -> None:
    """Anchors can make a small text huge."""
    count, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        count += 1
        if count > MOST_VALUES:
            raise InputError(f"this YAML has over {MOST_VALUES:,} values", "is it a configuration?")
        if isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
