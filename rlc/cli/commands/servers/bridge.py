"""``rlc bridge``: a server of SkyRL behind Tinker's protocol, for any program of the SDK."""

from __future__ import annotations

import argparse
from contextlib import suppress

from rlc.cli.commands.servers.serve import require
from rlc.cli.options import KEY_VARIABLE, add_address, key_of

PACKAGES = ("tinker", "numpy", "httptools", "starlette", "uvicorn")

HELP = "make a server of SkyRL answer to Tinker's SDK"
DESCRIPTION = (
    "Answer Tinker's SDK on behalf of a SkyRL server (0.3 and 0.4), so that programs written for "
    "Tinker train on a cluster of your own. Passes, failures, polls, states and paths are "
    "translated, and gradients that its engine for JAX averages are summed, as Tinker's are. "
    "`rlc run --service skyrl --base-url URL` needs no bridge: it has one in its process."
)
EPILOG = """\
example:
  rlc bridge http://head:8000 --port 8001      then TINKER_BASE_URL=http://127.0.0.1:8001

exit status: 0 stopped by Ctrl-C; 2 it cannot start, or there is no server of SkyRL at the address
"""
_SHOWN = """\
rlc bridge: Tinker's protocol on {url}

  export TINKER_BASE_URL={address}
  export TINKER_API_KEY={key}

Ctrl-C stops it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="address of the SkyRL server")
    add_address(parser, port=8001)
    parser.set_defaults(error_status=2)


def run(args: argparse.Namespace) -> int:
    require("a bridge", PACKAGES, "tinker,serve")
    from rlc.service import Server, bind, build_bridge, find_endpoint, require_reachable

    key = key_of(args)
    endpoint = find_endpoint(args.url, service="skyrl")
    require_reachable(endpoint)
    listening = bind(args.host, args.port)
    address = "http://{}:{}".format(*listening.getsockname()[:2])
    shown_key = f"${KEY_VARIABLE}" if key else "tml-local"
    print(_SHOWN.format(url=endpoint.name, address=address, key=shown_key), flush=True)
    with suppress(KeyboardInterrupt):
        Server(*build_bridge(str(endpoint.base_url), key)).serve_on(listening)
    print("\nstopped")
    return 0
