"""A plan on each provider: what it costs there, or why it cannot run there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlc.catalog import Provider, ProviderError, provider, provider_names
from rlc.compile import ServiceMismatchError, on_service
from rlc.explanation.layout import WIDTH, dollars, wrap
from rlc.explanation.sizes import FREE
from rlc.lang.render import Paint
from rlc.plan import Plan, located
from rlc.pricing import LEVELS, StageCost, plan_cost, total_cost
from rlc.records import frozen

_NAME, _USD = 12, 14  # columns


@frozen
class ServiceQuote:
    """A provider, and what a plan costs there, or ``why`` it cannot run there."""

    service: str
    there: Provider | None
    costs: tuple[StageCost, ...] = ()
    why: str = ""
    instead: str | None = None


def offers(plan: Plan) -> Iterator[ServiceQuote]:
    """Yield what each provider makes of a plan, its own service first."""
    own = plan.stages[0].model.service
    for name in sorted(provider_names(), key=lambda name: name != own):
        there = None
        try:
            there = provider(name)
            yield ServiceQuote(name, there, plan_cost(on_service(plan, name)))
        except (ProviderError, ServiceMismatchError) as error:
            yield ServiceQuote(name, there, (), error.message, error.hint)


def offers_text(plan: Plan, color: bool = False) -> str:
    """Return the offers as a table, and a line for each provider that cannot run the plan."""
    paint, found = Paint(color), list(offers(plan))
    able = [offer for offer in found if not offer.why]
    lines = [f"{'service':{_NAME}}{''.join(f'{level:>{_USD}}' for level in LEVELS)}"]
    for offer in able:
        lines.append(f"{offer.service:{_NAME}}{_amounts(offer.costs)}")
        if not all(cost.free for cost in offer.costs) and offer.there is not None:
            lines += wrap(f"prices: {offer.there.priced}", WIDTH, "  ", "  ")
        if len(offer.costs) > 1 and not all(cost.free for cost in offer.costs):
            lines += [f"  {cost.stage:{_NAME - 2}}{_amounts([cost])}" for cost in offer.costs]
    for offer in found:
        if offer.why:
            advice = f"; {offer.instead}" if offer.instead else ""
            first = f"{offer.service:{_NAME}}"
            lines += wrap(f"no: {offer.why}{advice}", WIDTH, first, " " * _NAME)
    title = f"USD of {located(plan.recipe, '') or 'the plan'} on each service"
    return "\n".join([paint.title(title), *lines, ""])


def _amounts(costs: Sequence[StageCost]) -> str:
    if all(cost.free for cost in costs):
        return f"  {FREE}"
    return "".join(f"{dollars(total_cost(costs, level), sign=''):>{_USD}}" for level in LEVELS)


def offers_dict(plan: Plan) -> dict[str, Any]:
    """Return the offers as data. A null ``total`` is unknown, and ``at_least`` its lower bound."""
    return {"recipe": plan.recipe, "currency": "USD", "services": list(map(_as_data, offers(plan)))}


def _as_data(offer: ServiceQuote) -> dict[str, Any]:
    data: dict[str, Any] = {"service": offer.service, "runs": not offer.why}
    if offer.why:
        return data | {"why": offer.why, "instead": offer.instead}
    assert offer.there is not None
    known = {"prices": offer.there.priced, "tried": offer.there.tried}
    stages = [{"stage": cost.stage, **_totals([cost])} for cost in offer.costs]
    return data | known | _totals(offer.costs) | {"stages": stages}


def _totals(costs: Sequence[StageCost]) -> dict[str, Any]:
    sums = {level: total_cost(costs, level) for level in LEVELS}
    return {
        "free": all(cost.free for cost in costs),
        "total": {level: money.total for level, money in sums.items()},
        "at_least": {level: money.at_least for level, money in sums.items()},
    }
