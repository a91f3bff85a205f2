"""A real MCP server over standard input and output, or at a port: ``mcp_server.py [PORT]``."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

try:
    from mcp.server.mcpserver import MCPServer as Made  # mcp 2
except ImportError:
    from mcp.server.fastmcp import FastMCP as Made

server: Any = Made("sums")
_kept = 0


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def keep(number: int) -> str:
    """Add to what was kept before, and say what is kept now."""
    global _kept
    _kept += number
    return f"{_kept}"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("out of order")


@server.tool()
async def hang() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return ""


@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)


@server.tool()
def secret() -> str:
    """Say what this server was given."""
    return os.environ.get("MCP_TEST_SECRET", "nothing")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        import uvicorn

        app = server.streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
    else:
        server.run()
