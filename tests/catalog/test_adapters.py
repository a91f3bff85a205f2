"""Sizes of LoRA adapters: those of the installed tinker-cookbook."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

from rlc.catalog.facts import find_model, model_names, retired_models
from rlc.plan.parts import LOCAL

_TABLE = "_LORA_PARAMS_PER_RANK_BY_COMPONENT"


def installed() -> dict[str, dict[str, int]]:
    """The cookbook's own table, read from its source: importing it takes seconds."""
    spec = find_spec("tinker_cookbook")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).with_name("hyperparam_utils.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == _TABLE:
            assert node.value is not None
            table: dict[str, dict[str, int]] = ast.literal_eval(node.value)
            return table
    raise AssertionError(f"tinker-cookbook has no {_TABLE}")


# Of 0.6.1, which has what 0.5.8 has, and these.
NEWER = ("moonshotai/Kimi-K3.1-Pro", "thinkingmachines/Inkling-2-Small")


def test_every_hosted_model_has_the_adapter_sizes_of_the_cookbook() -> None:
    table = installed()
    for name in model_names():
        model, base = find_model(name), name.partition(":")[0]
        assert model is not None
        if model.service != LOCAL and (base in table or base not in NEWER):
            sizes = table[base]
            assert model.lora == (sizes["mlp"], sizes["attn"], sizes["unembed"]), name


def test_every_model_of_the_cookbook_is_known_or_retired() -> None:
    known = {name.partition(":")[0] for name in model_names()} | {*retired_models()}
    assert {*installed(), *NEWER} <= known
