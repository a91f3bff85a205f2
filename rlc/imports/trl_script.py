"""What a Python script of TRL says of its training: read from its text, never executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rlc.imports.settings import InputError

METHODS = ("grpo", "dpo", "sft")
_IMPORT = re.compile(r"(?m)^\s*(from|import) (trl|datasets|peft|transformers)\b")
_CLASS = re.compile(r"(GRPO|DPO|SFT)(Config|Trainer)")


def is_script(text: str) -> bool:
    """Return whether a text is a Python script that trains with TRL."""
    return _IMPORT.search(text) is not None and _CLASS.search(text) is not None


def read_script(text: str) -> tuple[str, list[tuple[str, Any]], list[str], str]:
    """Return the method of a script (``grpo``), its options, those that only running it would
    tell, and its docstring, which may hold its command. Raise InputError for any other text."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" on line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise InputError(f"this is not Python{line}", "correct it") from None
    nodes = list(ast.walk(tree))
    classes = (_CLASS.fullmatch(_name(node)) for node in nodes)
    methods = {match[1].lower() for match in classes if match}
    if len(methods) != 1:
        found = ", ".join(sorted(methods)) or "none"
        message = f"a script with one of TRL's trainers is read, and this has {found}"
        raise InputError(message, "give its options as a command: `trl grpo --name value …`")
    options, unread = [], []
    for name, node in _options(nodes):
        try:
            options.append((name, ast.literal_eval(node)))
        except (ValueError, TypeError, MemoryError, RecursionError):
            unread.append(f"{name} = {ast.unparse(node)}")
    return methods.pop(), options, unread, ast.get_docstring(tree) or ""


def _options(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the arguments that decide about the training, names of the script filled in."""
    values: dict[str, ast.expr] = {}
    origins: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, node.value)
        elif isinstance(node, ast.ImportFrom):
            origins |= {alias.asname or alias.name: node.module or "" for alias in node.names}
    loaded = False
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        name, given = _name(call.func), {key.arg: key.value for key in call.keywords if key.arg}
        given = {key: values.get(_name(value), value) for key, value in given.items()}
        if name == "LoraConfig":
            yield "use_peft", ast.Constant(True)
            yield from (
                (f"lora_{key.removeprefix('lora_')}", value) for key, value in given.items()
            )
        elif name == "load_dataset" and not loaded and call.args:
            loaded, keys = True, ("dataset_name", "dataset_config")
            yield from (
                (key, values.get(_name(arg), arg))
                for key, arg in zip(keys, call.args, strict=False)
            )
            keep = {"name": "dataset_config", "split": "dataset_train_split"}
            for key in given.keys() & keep:
                value = given[key]  # of several splits the first one trains
                yield keep[key], value.elts[0] if isinstance(value, ast.List) else value
        elif match := _CLASS.fullmatch(name):
            if match[2] == "Config":
                yield from given.items()
                continue
            names = ("model", "reward_funcs") if match[1] == "GRPO" else ("model",)
            first = [values.get(_name(arg), arg) for arg in call.args]
            given |= dict(zip(names, first, strict=False))
            model = given.get("model")
            if isinstance(model, ast.Call) and model.args:  # …from_pretrained("owner/name")
                model = values.get(_name(model.args[0]), model.args[0])
            if isinstance(model, ast.Constant):
                yield "model_name_or_path", model
            if (rewards := given.get("reward_funcs")) is not None:
                several = rewards.elts if isinstance(rewards, ast.List | ast.Tuple) else [rewards]
                paths = [_path(item, origins) for item in several]
                yield "reward_funcs", ast.List([ast.Constant(path) for path in paths])


def _path(node: ast.expr, origins: dict[str, str]) -> str:
    """Return the dotted path of a reward function; one of the script begins with a dot."""
    name = str(node.value) if isinstance(node, ast.Constant) else _name(node) or ast.unparse(node)
    return f"{origins.get(name, '')}.{name}"


def _name(node: ast.AST) -> str:
    """Return the last name of an expression; empty if it is none."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
