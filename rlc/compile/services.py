"""A plan moved to another training service: ``--service tinker``."""

from __future__ import annotations

from rlc.catalog.facts.models import find_model
from rlc.errors import Error
from rlc.plan.auxiliary import asked_models, with_asked_models
from rlc.plan.graph import build_graph
from rlc.plan.models import LOCAL, ModelState
from rlc.plan.records import Plan
from rlc.records import evolve

ORIGIN = "--service"


class ServiceMismatchError(Error, ValueError):
    """A model that is not on the service that was asked for; the message says what to do."""

    exit_status = 2


def on_service(plan: Plan, service: str) -> Plan:
    """Return the same plan with every model on ``service``.

    Any server that speaks Tinker's protocol may serve any model, so `tinker` takes them all; the
    embedded engine has only those of this machine.

    Raises:
        ServiceMismatchError: the embedded engine does not have a model.
    """
    provenance = dict(plan.provenance)

    def moved(state: ModelState) -> ModelState:
        return evolve(state, model=evolve(state.model, service=service))

    for stage in plan.stages:
        own = ("model", ModelState(stage.model, stage.after))
        asked = ((f"{path}.model", state) for path, state in asked_models(stage))
        for path, state in (own, *asked):
            model = find_model(state.model.base)
            if service == LOCAL and model is not None and model.service != LOCAL:
                raise ServiceMismatchError(
                    f'"{state.model.base}" is not on this machine; give the folder that holds its '
                    "weights as `base`, or rehearse the job with `--rehearse`"
                )
            provenance[f"stages.{stage.name}.{path}.service"] = ORIGIN
    stages = tuple(
        with_asked_models(evolve(stage, model=evolve(stage.model, service=service)), moved)
        for stage in plan.stages
    )
    return evolve(plan, stages=stages, graph=build_graph(stages), provenance=provenance)
