"""The bodies of requests, read within bounds."""

from __future__ import annotations

from starlette.requests import Request

from rlc.service.http.refusals import Refused

JSON = "application/json"
LARGEST_BODY = 64 * 2**20  # the SDK cuts forward_backward at 5 MB unless one datum is larger


async def read_content(request: Request, content_type: str) -> bytes:
    """Read a body. Raise Refused if it is of another type (415) or too large (413)."""
    given = request.headers.get("content-type", "nothing")
    if given.split(";")[0].strip().lower() != content_type:
        raise Refused(415, f"This path takes {content_type}, not {given}.")
    if encoding := request.headers.get("content-encoding"):
        raise Refused(415, f"This server takes no compressed bodies ({encoding}).")
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > LARGEST_BODY:
            raise Refused(413, f"The body is larger than {LARGEST_BODY // 2**20} MiB.")
        pieces.append(piece)
    return b"".join(pieces)
