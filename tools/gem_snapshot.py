"""Writes what the catalogue knows of GEM's environments from the installed library.

    python -m tools.gem_snapshot

Signatures are read from the classes' source, not from the classes: some modules need packages
that only their own environments use. The mean and the longest of the texts that an environment
shows are measured by playing it, in characters and in tokens of the included model, where that
needs no download.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import importlib.util
import io
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlc.catalog.facts import TINY
from rlc.pricing.shapes import tokenizer_at_hand

PATH = Path(__file__).parents[1] / "rlc" / "catalog" / "data" / "gem.json"

# What an environment class needs beyond the library itself.
_NEEDS = {
    "CodeEnv": ["hub"],
    "MathEnv": ["hub"],
    "MathVisualEnv": ["hub"],
    "QaEnv": ["hub"],
    "HangmanEnv": ["nltk"],
    "WordSearchEnv": ["nltk"],
    "WordleEnv": ["nltk"],
    "CrosswordsEnv": [],
}
_NOT_FROM_A_RECIPE = {"self", "name", "dataset"}
_TYPES = {bool: "bool", int: "int", float: "float", str: "string", tuple: "list", list: "list"}
# Of a set of questions, and of games with so many random moves at most.
_QUESTIONS, _GAMES, _MOVES = 200, 20, 30
_LEAST_GAMES, _SECONDS = 3, 20  # where games begin slowly


def main() -> None:
    PATH.write_text(render(snapshot()), encoding="utf-8")
    print(f"wrote {PATH}")


def snapshot() -> dict[str, Any]:
    """Take the whole snapshot, prompt lengths included."""
    facts = registry()
    for env_id, record in facts["environments"].items():
        needs = facts["classes"][record["class"]]["needs"]
        shown = None if needs else probe(env_id)
        for name, length in (("chars", len), (TINY, tiny_tokens)):
            record[name] = shown and lengths(shown, length)
    return facts


def registry() -> dict[str, Any]:
    """Read ids, registered arguments and signatures."""
    import gem.envs  # noqa: F401  (fills the registry)
    from gem.envs.registration import ENV_REGISTRY

    environments: dict[str, Any] = {}
    nullable: set[tuple[str, str]] = set()
    for env_id, spec in sorted(ENV_REGISTRY.items()):
        entry = str(spec.entry_point)
        kwargs = {k: v for k, v in spec.kwargs.items() if k not in _NOT_FROM_A_RECIPE}
        nullable |= {(entry, name) for name, value in kwargs.items() if value is None}
        environments[env_id] = {"class": entry, "args": kwargs}
    classes: dict[str, dict[str, Any]] = {}
    for entry in sorted({record["class"] for record in environments.values()}):
        module, name = entry.split(":")
        params = _parameters(module, name)
        for param, fact in params.items():
            if (entry, param) in nullable:
                fact["optional"] = True
        needs = _NEEDS.get(name, [])
        classes[entry] = {"params": params, "multi_turn": "max_turns" in params, "needs": needs}
    for record in environments.values():
        accepted = classes[record["class"]]["params"]
        record["args"] = {k: v for k, v in record["args"].items() if k in accepted}
    version = importlib.metadata.version("gem-llm")
    facts: dict[str, Any] = {"library": "gem-llm", "version": version}
    facts |= {"classes": classes, "environments": environments}
    return dict(json.loads(json.dumps(facts)))


def probe(env_id: str) -> dict[str, list[str]] | None:
    """First observations and, in a game, those after a random move; None if it cannot be made."""
    import gem

    first, later = list[str](), list[str]()
    with contextlib.redirect_stdout(io.StringIO()):
        random.seed(0)
        try:
            env = gem.make(env_id)
        except Exception:
            return None  # an environment that cannot be made has no measured prompt
        if not env_id.startswith("game:"):
            return {"prompt": [_shown(*env.reset()) for _ in range(_QUESTIONS)]}
        until = time.monotonic() + _SECONDS
        for seed in range(_GAMES):
            if seed < _LEAST_GAMES or time.monotonic() < until:
                first.append(_shown(*env.reset(seed=seed)))
                later += _played(env)
    return {"prompt": first} | ({"observation": later} if later else {})


def _played(env: Any) -> Iterator[str]:
    """What a game shows after random moves, while it goes on."""
    with contextlib.suppress(NotImplementedError, AttributeError):
        for _ in range(_MOVES):
            text, _, ended, cut, info = env.step(env.sample_random_action())
            yield _shown(text, info)
            if ended or cut:
                return


def lengths(
    shown: Mapping[str, Sequence[str]], length: Callable[[str], int]
) -> dict[str, list[int]]:
    """The mean length of each kind of text, rounded down, and that of the longest."""
    measured = {kind: list(map(length, texts)) for kind, texts in shown.items()}
    return {kind: [sum(each) // len(each), max(each)] for kind, each in measured.items()}


def tiny_tokens(text: str) -> int:
    """Tokens of a text for the included model."""
    return len(tokenizer_at_hand(TINY).encode(text, add_special_tokens=False).ids)


def _shown(text: str, info: dict[str, Any]) -> str:
    return f"{info.get('prefix', '')}{text}{info.get('suffix', '')}"


def _parameters(module: str, name: str) -> dict[str, dict[str, Any]]:
    """Keyword parameters of a class's ``__init__``, read from its source."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(module)
    init = _find_init(ast.parse(Path(spec.origin).read_text(encoding="utf-8")), name)
    if init is None:  # re-exported: the class is in a module beside it
        folder = Path(spec.origin).parent
        trees = (
            ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.py"))
        )
        init = next(found for tree in trees if (found := _find_init(tree, name)))
    arguments = init.args.args
    defaults = [None] * (len(arguments) - len(init.args.defaults)) + list(init.args.defaults)
    params: dict[str, dict[str, Any]] = {}
    for argument, default in zip(arguments, defaults, strict=True):
        if argument.arg in _NOT_FROM_A_RECIPE:
            continue
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        value = ast.literal_eval(default) if default is not None else None
        kind = _TYPES.get(type(value)) or {"Optional[str]": "string"}[annotation]
        params[argument.arg] = {"type": kind, "default": value}
        if value is None or annotation.startswith("Optional"):
            params[argument.arg]["optional"] = True
    return params


def _find_init(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    return item
    return None


def render(facts: dict[str, Any]) -> str:
    """JSON with one line for each class and environment, so that a change is easy to review."""

    def line(key: str, value: Any) -> str:
        return f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}"

    def table(name: str) -> str:
        rows = ",\n".join(f"  {line(key, value)}" for key, value in sorted(facts[name].items()))
        return f"{json.dumps(name)}: {{\n{rows}\n }}"

    parts = [line(key, facts[key]) for key in ("library", "version")]
    parts += [table(key) for key in ("classes", "environments")]
    return "{\n " + ",\n ".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
