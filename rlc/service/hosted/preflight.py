"""What a server says of itself and of a saved state, found out in seconds.

The SDK retries failures for minutes, since they may pass. Before a run begins, a wrong address or a
key that is not accepted is the likelier reason, and is reported at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import TimeoutError as OutOfTime

import httpx
import tinker
from tinker import types
from tinker.lib.client_connection_pool_type import ClientConnectionPoolType

from rlc.plan import Plan, elapsed
from rlc.service.hosted.capabilities import smaller_contexts
from rlc.service.hosted.clients import start_thread
from rlc.service.hosted.endpoint import Endpoint, find_endpoint
from rlc.service.hosted.refusals import translate
from rlc.service.hosted.service import default_url, open_rest
from rlc.service.interface import ServiceLostError

_REACH_SECONDS = 10.0
_ANSWER_SECONDS = 60.0


def check_server(plan: Plan, endpoint: Endpoint) -> None:
    """Refuse a server that cannot run ``plan``. Blocks, for a minute at most.

    Raises:
        ServiceError: it cannot be reached, does not accept the key, has paused the account,
            or cannot do what the plan asks.
    """
    smaller_contexts(plan, offered_models(endpoint), endpoint.name)


def offered_models(endpoint: Endpoint) -> Sequence[types.SupportedModel]:
    """The models of a server. Blocks, for a minute at most. Raise ServiceError if it cannot be
    reached, does not accept the key, or has paused the account."""
    url = f"{endpoint.base_url or default_url()}/api/v1/healthz"
    try:
        httpx.get(url, timeout=_REACH_SECONDS)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise ServiceLostError(
            f"cannot reach {endpoint.name}: {str(error) or 'no answer'}",
            "is it up, and is the address right (--base-url, TINKER_BASE_URL)?",
        ) from error
    except httpx.HTTPError:
        pass  # a broken answer is one, too: something listens there
    try:
        answer = start_thread(lambda: _capabilities(endpoint)).result(_ANSWER_SECONDS)
    except OutOfTime as error:
        raise ServiceLostError(
            f"{endpoint.name} has not listed its models within {elapsed(_ANSWER_SECONDS)}",
            "try again later",
        ) from error
    except Exception as error:
        raise translate(error, endpoint.name) from error
    return answer.supported_models


def _capabilities(endpoint: Endpoint) -> types.GetServerCapabilitiesResponse:
    """Ask once: the SDK's own method retries an HTTP 402 for an hour."""
    holder = open_rest(endpoint).holder

    async def ask() -> types.GetServerCapabilitiesResponse:
        with holder.aclient(ClientConnectionPoolType.TRAIN) as client:
            return await client.service.get_server_capabilities()

    return holder.run_coroutine_threadsafe(ask()).result()


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
