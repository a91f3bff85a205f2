"""Rules on providers: what the service of a stage cannot do, before anything is paid for."""

from __future__ import annotations

from rlc.catalog import ProviderError, limits_of, provider
from rlc.check.rules.view import StageView, rule


@rule("model")
def _service_can_do_it(view: StageView) -> None:
    try:
        service = provider(view.model.service)
    except ProviderError:
        return  # reported with the model
    if (refusal := service.refusal) is not None:
        view.error("RL0341", "model.service", refusal, "`rlc catalog --kind service` has others")
    for limit in limits_of(view.parts, service):
        view.report("RL0341", limit.path, limit.what, limit.instead)
    if not service.seeds:
        message = f"`{service.name}` takes no seeds: a run of it cannot be repeated"
        view.warning("RL0341", "model.service", message)
