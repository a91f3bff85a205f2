"""A plan on each service: what it costs there, or why it cannot run there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlc.catalog import ProviderError, price_source, provider, provider_names
from rlc.compile import ServiceMismatchError, on_service
from rlc.errors import Error
from rlc.explanation.layout import WIDTH, dollars, wrap
from rlc.explanation.sizes import FREE
from rlc.lang.render import Paint
from rlc.plan import Plan
from rlc.pricing import LEVELS, StageCost, plan_cost, total_cost

_NAME, _USD = 12, 14  # columns


def _offers(plan: Plan) -> Iterator[tuple[str, Sequence[StageCost] | Error, str]]:
    """Yield the services, the plan's own first, each with its costs there, or why it cannot run,
    and where the prices are from."""
    own = plan.stages[0].model.service
    for name in sorted(provider_names(), key=lambda name: name != own):
        try:
            there = on_service(plan, name)
        except (ProviderError, ServiceMismatchError) as error:
            yield name, error, ""
            continue
        sources = dict.fromkeys(price_source(stage.model)[0] for stage in there.stages)
        yield name, plan_cost(there), "; ".join(filter(None, sources)) or provider(name).priced


def offers_text(plan: Plan, color: bool = False) -> str:
    """Return the offers as a table, and a line for each service that cannot run the plan."""
    able, others = [f"{'service':{_NAME}}{''.join(f'{level:>{_USD}}' for level in LEVELS)}"], []
    for name, costs, prices in _offers(plan):
        if isinstance(costs, Error):
            advice = f"; {costs.hint}" if costs.hint else ""
            others += wrap(f"no: {costs}{advice}", WIDTH, f"{name:{_NAME}}", " " * _NAME)
            continue
        able.append(f"{name:{_NAME}}{_amounts(costs)}")
        if not all(cost.free for cost in costs):
            able += wrap(f"prices: {prices}", WIDTH, "  ", "  ")
            of_stages = costs if len(costs) > 1 else ()
            able += [f"  {cost.stage:{_NAME - 2}}{_amounts([cost])}" for cost in of_stages]
    title = Paint(color).title(f"USD of {plan.recipe} on each service")
    return "\n".join([title, *able, *others, ""])


def _amounts(costs: Sequence[StageCost]) -> str:
    if all(cost.free for cost in costs):
        return f"  {FREE}"
    return "".join(f"{dollars(total_cost(costs, level), sign=''):>{_USD}}" for level in LEVELS)


def offers_dict(plan: Plan) -> dict[str, Any]:
    """Return the offers as data. A null ``total`` is unknown, and ``at_least`` its lower bound."""
    found = [{"service": offer[0], **_as_data(*offer)} for offer in _offers(plan)]
    return {"recipe": plan.recipe, "currency": "USD", "services": found}


def _as_data(name: str, costs: Sequence[StageCost] | Error, prices: str) -> dict[str, Any]:
    if isinstance(costs, Error):
        return {"runs": False, "why": costs.message, "instead": costs.hint}
    stages = [{"stage": cost.stage, **_totals([cost])} for cost in costs]
    known = {"runs": True, "prices": prices, "tried": provider(name).tried}
    return {**known, **_totals(costs), "stages": stages}


def _totals(costs: Sequence[StageCost]) -> dict[str, Any]:
    sums = {level: total_cost(costs, level) for level in LEVELS}
    return {
        "free": all(cost.free for cost in costs),
        "total": {level: money.total for level, money in sums.items()},
        "at_least": {level: money.at_least for level, money in sums.items()},
    }
