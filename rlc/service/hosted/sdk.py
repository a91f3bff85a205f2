"""What rlc asks of Tinker's SDK where its versions differ: from 0.34 on, as if they were 0.38."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import tinker
from tinker import types
from tinker.lib.client_connection_pool_type import ClientConnectionPoolType

from rlc.service.hosted.endpoint import Endpoint

_T = TypeVar("_T")


def open_rest(endpoint: Endpoint) -> tinker.RestClient:
    """Return a client of requests about an account. It has a session before 0.36, and none later.
    Blocks while it fetches the configuration."""
    at: Any = {"base_url": endpoint.client_url, "api_key": endpoint.api_key}
    if not hasattr(tinker, "RestClient"):
        return tinker.ServiceClient(**at).create_rest_client()
    return tinker.RestClient(**at)


def capabilities(
    rest: tinker.RestClient, once: bool = False
) -> tinker.APIFuture[types.GetServerCapabilitiesResponse]:
    """Ask what a server has, without repetition if only ``once``: the SDK's own method, of 0.38,
    repeats an HTTP 402 for an hour."""
    if not once and hasattr(rest, "get_server_capabilities"):
        return rest.get_server_capabilities()

    async def request() -> types.GetServerCapabilitiesResponse:
        with rest.holder.aclient(ClientConnectionPoolType.TRAIN) as client:
            return await client.service.get_server_capabilities()

    return rest.holder.run_coroutine_threadsafe(request())


def snapshot(training: tinker.TrainingClient, record_stability_info: bool) -> Any:
    """Ask for a sampling client of the present weights, in its place among the other requests.
    Before 0.38 the SDK's method waits for it."""
    if hasattr(tinker, "BackcompatSamplingClientFuture"):
        return training.save_weights_and_get_sampling_client(
            record_stability_info=record_stability_info
        )
    saved: Any = training._save_weights_for_sampler_impl(None, None, None)  # type: ignore[call-arg]
    recorded: Any = {"record_stability_info": record_stability_info}

    def opened() -> Any:
        make: Any = tinker.SamplingClient.create
        return make(training.holder, sampling_session_id=saved.result(), **recorded).result()

    return start_thread(opened)


async def result_of(asked: Any) -> Any:
    """Return what a future of the SDK comes to. Before 0.38 some are Python's own, and methods that
    make a client return it."""
    if hasattr(asked, "result_async"):
        return await asked.result_async()
    if isinstance(asked, concurrent.futures.Future):
        return await asyncio.wrap_future(asked)
    return asked


def start_thread(work: Callable[[], _T]) -> concurrent.futures.Future[_T]:
    """Run blocking work in a daemon thread, which does not keep the program from ending."""
    future: concurrent.futures.Future[_T] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()  # it has begun, so it cannot be cancelled

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="rlc-tinker", daemon=True).start()
    return future
