"""Samplers that are opened in other processes, in the way that the SDK has for it: they belong to
the session of the process that made them, which keeps their weights."""

from __future__ import annotations

import pickle

from attrs import define, field, frozen

from rlc.service.hosted.clients import HostedSamplingClient, Patience
from rlc.service.hosted.service import HostedService, health
from rlc.service.interface import SamplingClient, ServiceClient, ServiceError


@frozen
class SharedSampler:
    """What another process opens a sampler by. The SDK's part holds the key of the service, so it
    goes to processes of the user's alone."""

    separate: bool
    sdk: bytes = field(repr=False)


def shares_samplers(service: ServiceClient) -> bool:
    """Return whether other processes can open the samplers of a service: not those of a bridge in
    this process, nor of a provider's own package."""
    return isinstance(service, HostedService) and service.endpoint.provider.bridge is None


def share_sampler(client: SamplingClient) -> SharedSampler | None:
    """Return what opens this sampler elsewhere; None if only this process can ask it."""
    if not isinstance(client, HostedSamplingClient):
        return None
    return SharedSampler(client.separate(), pickle.dumps(client.sdk))


@define(eq=False)
class SharedSamplers:
    """Opens the samplers of a service at ``server``."""

    server: str
    patience: Patience

    def open(self, shared: SharedSampler) -> HostedSamplingClient:
        """Return a sampler with connections of this process; blocks. Raise ServiceError if the SDK
        does not open it."""
        try:
            sdk = pickle.loads(shared.sdk)
        except Exception as error:  # whatever the SDK raises
            raise ServiceError(f"a player cannot sample from {self.server}: {error}") from error
        holder = sdk.holder
        self.patience.pause = lambda: getattr(holder, "_sample_backoff_until", None)
        return HostedSamplingClient(sdk, self.patience, lambda: shared.separate)

    async def ping(self) -> None:
        """See :meth:`rlc.service.interface.RemoteService.ping`."""
        await health(self.server, self.patience.where)
