"""What a Tinker service says of a saved state."""

from __future__ import annotations

from concurrent.futures import TimeoutError as OutOfTime

import tinker

from rlc.plan.units import elapsed
from rlc.service.errors import ServiceLostError
from rlc.service.hosted.endpoint import find_endpoint
from rlc.service.hosted.refusals import translate
from rlc.service.hosted.replies import start_thread
from rlc.service.hosted.service import open_rest

_ANSWER_SECONDS = 60.0
_RENDERER = "renderer_name"  # where the cookbook and rlc note it in the metadata of a run


def find_base(path: str, base_url: str | None = None) -> tuple[str, str | None]:
    """Return the base model of a state, and the renderer that its run notes, if it notes one.
    Blocks. Raise ServiceError if the service does not know the state, or cannot be asked."""
    endpoint = find_endpoint(base_url)

    def ask() -> tuple[str, str | None]:
        rest: tinker.RestClient = open_rest(endpoint)
        base = rest.get_weights_info_by_tinker_path(path).result().base_model
        run = rest.get_training_run_by_tinker_path(path).result()
        return base, (run.user_metadata or {}).get(_RENDERER)

    try:
        return start_thread(ask).result(_ANSWER_SECONDS)
    except OutOfTime as error:
        raise ServiceLostError(
            f"{endpoint.name} has not answered within {elapsed(_ANSWER_SECONDS)}"
        ) from error
    except Exception as error:
        raise translate(error, endpoint.name) from error
