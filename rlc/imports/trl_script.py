"""What a Python script of TRL says of its training: read from its text, never executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rlc.imports.settings import InputError

_MODEL, _DATA, _SPLIT = "model_name_or_path", "dataset_name", "dataset_train_split"
# Arguments of a trainer that are read elsewhere, or change nothing of what is learnt.
_ASIDE = (
    *("args", "train_dataset", "eval_dataset", "processing_class", "peft_config", "callbacks"),
    *("model_init_kwargs", "quantization_config"),
)
METHODS = ("grpo", "dpo", "sft")
_IMPORT = re.compile(r"(?m)^\s*(from|import) (trl|datasets|peft|transformers)\b")
_CLASS = re.compile(r"(GRPO|DPO|SFT)(Config|Trainer)")
# Calls that decide about the training, with the options that some of their arguments are.
_CALLS = {
    **{f"{method.upper()}Config": {} for method in METHODS},
    "LoraConfig": {"r": "lora_r", "target_modules": "lora_target_modules"},
    "load_dataset": {"path": _DATA, "name": "dataset_config", "split": _SPLIT},
    "DPOTrainer": {"model": _MODEL},
    "SFTTrainer": {"model": _MODEL},
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
            value = ast.literal_eval(node)
            if name == _DATA and options.get(name, value) != value:
                unread.append(f"{name} = {value!r}, beside the first one")
            options.setdefault(name, value)
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
    calls = [one for one in nodes if isinstance(one, ast.Call) and _name(one.func) in _CALLS]
    configs = {_name(key.value) for call in calls for key in call.keywords if key.arg == "args"}
    for node in (node for node in nodes if isinstance(node, ast.Assign)):
        to = node.targets[0]
        known = isinstance(to, ast.Attribute) and _name(to.value) in configs - {""}
        if known and _name(to) not in _ASIDE:
            yield _name(to), values.get(_name(node.value), node.value)
    for call in calls:
        renamed = _CALLS[name := _name(call.func)]
        if name == "LoraConfig":
            yield "use_peft", ast.Constant(True)
        given = dict(zip(renamed, call.args, strict=False))
        given |= {key.arg: key.value for key in call.keywords if key.arg}
        if files := given.pop("data_files", None):  # `path` is their format
            given["path"] = files
        for key, value in given.items():
            trainer = name.endswith("Trainer") and key not in _ASIDE
            if key in renamed or name.endswith("Config") or trainer:
                option = renamed.get(key, key)
                yield option, _resolved(option, values.get(_name(value), value), values, origins)


def _resolved(
    option: str, value: ast.expr, values: dict[str, ast.expr], origins: dict[str, str]
) -> ast.expr:
    """Return the value that an option has in a command."""
    if option == _MODEL and isinstance(value, ast.Call) and value.args:
        return values.get(_name(value.args[0]), value.args[0])  # …from_pretrained("a/b")
    if option == _SPLIT and isinstance(value, ast.List):
        return value.elts[0]  # of several, the first one trains
    if option != "reward_funcs":
        return value
    several = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    names = [ast.unparse(item) for item in several]
    return ast.List([ast.Constant(f"{origins.get(name, 'script')}.{name}") for name in names])


def _name(node: ast.AST) -> str:
    """Return the last name of an expression; empty if it is none."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
