"""TLS contexts that clients share: each reads the certificates of all authorities, which takes
20 ms, and no test has a server that needs one."""

from __future__ import annotations

import ssl
from functools import cache


def share_tls_contexts() -> None:
    """Have this process make one default context for each set of arguments."""
    ssl.create_default_context = cache(ssl.create_default_context)  # type: ignore[assignment]
