"""Write a plan as a script that needs nothing of rlc.

A target is a jinja2 template; it sees the plan's records and writes out what they decide. What a
target cannot express is refused, all of it at once: nothing of a plan is left out silently.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rlc.emit.refusals import TARGETS, refusals
from rlc.errors import Error
from rlc.explanation.formulas.schemes import scheme_formulas
from rlc.explanation.formulas.stages import loss_formula
from rlc.plan.codec import plan_hash
from rlc.plan.records import LossPlan, Plan, TrainPlan
from rlc.version import __version__

if TYPE_CHECKING:
    from rlc.algo.expressions.python import TorchFunction


class EmitError(Error, ValueError):
    """A plan that a target cannot express. ``reasons`` has a sentence for each obstacle."""

    def __init__(self, target: str, reasons: list[str]) -> None:
        lines = [f"this plan cannot be written as a `{target}` script", *reasons]
        super().__init__("\n  - ".join(lines))
        self.reasons = reasons


def emit(plan: Plan, target: str = "tinker", name: str = "train.py") -> str:
    """Return the script of a plan, as it would be saved under ``name``.

    Raises:
        EmitError: the target cannot express the plan.
        KeyError: there is no such target.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    if target not in TARGETS:
        raise KeyError(target)
    if reasons := refusals(plan, target):
        raise EmitError(target, reasons)
    (stage,) = plan.stages
    assert isinstance(stage, TrainPlan)
    environment = Environment(
        loader=PackageLoader("rlc.emit"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["py"] = literal
    environment.filters["origin"] = lambda plan, path: plan.provenance.get(path, "")
    text: str = environment.get_template(f"{target}.py.j2").render(
        plan=plan,
        stage=stage,
        version=__version__,
        hash=plan_hash(plan)[:12],
        script=name,
        formulas=scheme_formulas(stage.advantage),
        **_facts(stage),
    )
    return text.rstrip("\n") + "\n"


def _facts(stage: TrainPlan) -> dict[str, Any]:
    """Return what the templates need to know of a stage."""
    from rlc.catalog.builtins.wrappers import TEMPLATES
    from rlc.catalog.facts.prices import price_of
    from rlc.catalog.index import loss_traits, wrapper_traits
    from rlc.envs.templates import load_template

    wrappers = [
        {wrapper_traits(wrapper.name).role: wrapper.args for wrapper in env.wrappers}
        for env in stage.envs
    ]
    return {
        "wrappers": wrappers,
        "templates": {name: load_template(name)("{observation}") for name in TEMPLATES},
        "any_chat": any("chat" in roles for roles in wrappers),
        "any_text": any("template" in roles for roles in wrappers),
        "any_concat": any("history" in roles for roles in wrappers),
        "by_tokens": any(getattr(step, "weight", "") == "tokens" for step in stage.advantage.steps),
        "by_turn": stage.advantage.returns.unit == "turn",
        "traits": loss_traits(stage.loss),
        "own_loss": _own_loss(stage.loss),
        "loss_formula": loss_formula(stage.loss),
        "price": price_of(stage.model.base, stage.model.service),
    }


def _own_loss(loss: LossPlan) -> TorchFunction | None:
    """Return a recipe's own loss as the script has it."""
    from rlc.algo.expressions.python import torch_function
    from rlc.catalog.index import loss_traits

    if loss.program is None:
        return None
    return torch_function(loss.program, loss.name, loss_traits(loss).weighted)


def literal(value: Any, indent: int = 0) -> str:
    """Write a plain value as Python: one item a line, in the layout of formatters."""
    inner, outer = " " * (indent + 4), " " * indent
    if isinstance(value, dict) and value:
        items = [f"{inner}{literal(k)}: {literal(v, indent + 4)},\n" for k, v in value.items()]
        return "{\n" + "".join(items) + outer + "}"
    if isinstance(value, list | tuple) and value:
        items = [f"{inner}{literal(item, indent + 4)},\n" for item in value]
        return "[\n" + "".join(items) + outer + "]"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        single = '"' in value and "'" not in value  # the quotes that need fewer escapes
        return "'" + text[1:-1].replace('\\"', '"') + "'" if single else text
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 100_000:
        return f"{value:_}"
    return repr(value) if not isinstance(value, list | tuple) else "[]"
