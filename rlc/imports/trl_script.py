"""What a Python script of TRL says of its training: read from its text, never executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rlc.imports.settings import InputError

_MODEL, _SPLIT = "model_name_or_path", "dataset_train_split"
METHODS = ("grpo", "dpo", "sft")
_IMPORT = re.compile(r"(?m)^\s*(from|import) (trl|datasets|peft|transformers)\b")
_CLASS = re.compile(r"(GRPO|DPO|SFT)(Config|Trainer)")
# Calls that decide about the training, with the options that their arguments are.
_CALLS = {
    "LoraConfig": {"r": "lora_r", "target_modules": "lora_target_modules"},
    "load_dataset": {"path": "dataset_name", "name": "dataset_config", "split": _SPLIT},
    "SFTTrainer": {"model": _MODEL},
    "DPOTrainer": {"model": _MODEL},
    "GRPOTrainer": {"model": _MODEL, "reward_funcs": "reward_funcs"},
}


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
    options, unread = dict[str, Any](), []
    for name, node in _options(nodes):
        try:
            options.setdefault(name, ast.literal_eval(node))
        except (ValueError, TypeError, MemoryError, RecursionError):
            if name != _MODEL:
                unread.append(f"{name} = {ast.unparse(node)}")
    return methods.pop(), list(options.items()), unread, ast.get_docstring(tree) or ""


def _options(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the arguments of those calls, names of the script filled in."""
    values: dict[str, ast.expr] = {}
    origins: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, node.value)
        elif isinstance(node, ast.ImportFrom):
            origins |= {alias.asname or alias.name: node.module or "" for alias in node.names}
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        name = _name(call.func)
        whole = _CLASS.fullmatch(name) and name.endswith("Config")
        renamed = {} if whole else _CALLS.get(name)
        if renamed is None:
            continue
        given = dict(zip(renamed, call.args, strict=False))
        given |= {key.arg: key.value for key in call.keywords if key.arg}
        if name == "LoraConfig":
            yield "use_peft", ast.Constant(True)
        for key, value in given.items():
            option, value = renamed.get(key, key), values.get(_name(value), value)
            if option == _MODEL and isinstance(value, ast.Call) and value.args:
                value = values.get(_name(value.args[0]), value.args[0])  # …from_pretrained("a/b")
            elif option == _SPLIT and isinstance(value, ast.List):
                value = value.elts[0]  # of several, the first one trains
            elif option == "reward_funcs":
                several = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
                value = ast.List([ast.Constant(_path(item, origins)) for item in several])
            if whole or key in renamed or name == "LoraConfig":
                yield option, value


def _path(node: ast.expr, origins: dict[str, str]) -> str:
    """Return the dotted path of a reward function; one of the script begins with a dot."""
    name = str(node.value) if isinstance(node, ast.Constant) else _name(node) or ast.unparse(node)
    return f"{origins.get(name, '')}.{name}"


def _name(node: ast.AST) -> str:
    """Return the last name of an expression; empty if it is none."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
