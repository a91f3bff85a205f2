"""What can be added to a server without changing it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tinker import types

Handlers = Mapping[str, Mapping[str, Callable[..., Any]]]  # by method and path, as those of `app`


class Extension:
    """An addition to a server, which calls these methods as it works; here they do nothing."""

    def handlers(self) -> Handlers:
        """Return handlers of more paths."""
        return {}

    def used(self, owner: str, base_model: str, counts: Mapping[str, int]) -> None:
        """Hear what was computed for ``owner``, a model or a sampler: tokens of ``training``,
        ``prefill``, ``cached_prefill`` and ``sample``, or ``checkpoints``."""

    def happened(self, event: str, details: Mapping[str, object]) -> None:
        """Hear what was done, named ``<resource>_<action>``."""

    def sampled(
        self, sampler_id: str, request: types.SampleRequest, response: types.SampleResponse
    ) -> None:
        """Hear of an answered request."""

    def check_sampled(self, session_id: str, data: Sequence[types.Datum]) -> None:
        """Check datums of a loss that takes sampled tokens alone. Raise Refused if a session cannot
        use them."""
