"""The server that a job starts beside itself, on the machines that run it: SkyRL's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from attrs import frozen

from rlc.catalog import provider
from rlc.errors import Error
from rlc.plan import ModelPlan, Plan
from rlc.plan.leaves import models_of

# Named by the documentation of SkyRL: CUDA, Ray and what its engines on GPUs are built with.
_IMAGE = "docker:novaskyai/skyrl-train-ray-2.57.0-py3.12-cu13.0"
_ON_GPUS = {"accelerators": "H100:8", "image_id": _IMAGE}
# What a machine has to be for each engine, as SkyPilot calls it.
ENGINES: Mapping[str, Mapping[str, str]] = {
    "fsdp": _ON_GPUS,
    "megatron": _ON_GPUS,
    "jax": {"accelerators": "H100:1"},
}
_BRIDGE = "skyrl"


class JobServerError(Error, ValueError):
    """A server that cannot be started for a plan."""

    exit_status = 2


@frozen
class JobServer:
    """The server beside a job: its ``engine``, and the ``model`` that it has, by its own name."""

    engine: str
    model: str

    @property
    def script(self) -> Path:
        """Return the program that starts it, runs the job and stops it."""
        return Path(__file__).with_name("skyrl.sh")

    @property
    def settings(self) -> Mapping[str, str]:
        """Return the variables of the program."""
        return {"SKYRL_MODEL": self.model, "SKYRL_ENGINE": self.engine}

    @property
    def resources(self) -> Mapping[str, str]:
        return ENGINES[self.engine]


def find_server(plans: Iterable[Plan], engine: str) -> JobServer:
    """Return the server that plans need. Raise JobServerError if it would not do for them."""
    if engine not in ENGINES:
        raise JobServerError(f"SkyRL has no engine `{engine}`", f"it has {', '.join(ENGINES)}")
    models = [model for plan in plans for model in _models(plan) if model.hosted]
    others = sorted({one.service for one in models if provider(one.service).bridge != _BRIDGE})
    if others or not models:
        where = f"on `{others[0]}`" if others else "on the embedded engine"
        what = f"--server starts a server of SkyRL, and this trains {where}"
        raise JobServerError(what, "add --service skyrl, or leave --server out")
    names = sorted({_served_name(one) for one in models})
    if len(names) > 1:
        what = f"a server of SkyRL has one base model, and this asks {', '.join(names)}"
        raise JobServerError(what, "emit a job for each, or start the servers yourself")
    return JobServer(engine, names[0])


def _models(plan: Plan) -> list[ModelPlan]:
    return [model for stage in plan.stages for _, model in models_of(stage)]


def _served_name(model: ModelPlan) -> str:
    offered = provider(model.service).offered(model.base)
    return model.base if offered is None else offered.name
