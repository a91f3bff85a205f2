"""``rlc serve``: the embedded engine behind Tinker's HTTP protocol, on this machine."""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlc.cli.output import print_error
from rlc.errors import Error

if TYPE_CHECKING:
    from rlc.service.http.backend import Backend

LOOPBACK = "127.0.0.1"
KEY_VARIABLE = "RLC_SERVE_KEY"
PACKAGES = ("torch", "transformers", "tinker", "starlette", "uvicorn")

HELP = "serve the embedded engine to Tinker's SDK"
DESCRIPTION = (
    "Serve the embedded engine behind Tinker's HTTP protocol, so that any script "
    "written for the official SDK runs against this machine. Programs that talk to models by "
    "OpenAI's or Anthropic's API talk to base models and checkpoints at the same address."
)
EPILOG = "exit status: 0 stopped by Ctrl-C; 2 the server cannot start"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=8000, help="port (default 8000; 0: a free one)")
    parser.add_argument("--host", default=LOOPBACK, help=f"address (default {LOOPBACK})")
    parser.add_argument(
        "--allow-remote",
        action="store_true",
        help=f"let --host be other than loopback; the key in {KEY_VARIABLE} is then required",
    )
    parser.add_argument(
        "--checkpoints",
        type=Path,
        default=Path("checkpoints"),
        metavar="DIR",
        help="where runs and checkpoints are kept (default ./checkpoints)",
    )
    parser.add_argument(
        "--model",
        dest="models",
        action="append",
        default=[],
        metavar="[NAME=]FOLDER",
        help="serve a Hugging Face model folder, or `tiny`, under a name of your choice "
        "(--model Qwen/Qwen3-8B=tiny); may be repeated (default tiny)",
    )
    parser.add_argument("--device", metavar="NAME", help="cpu or cuda (default: what is there)")
    group = parser.add_argument_group("for tests of clients")
    group.add_argument(
        "--no-custom-losses",
        dest="custom_losses",
        action="store_false",
        help="compute no custom losses, so that clients compute theirs themselves",
    )
    for kind in ("sample", "train"):
        group.add_argument(
            f"--{kind}-latency",
            default="0",
            metavar="DELAY",
            help=f"seconds added to the answer of each {kind} request: "
            "0.5, lognormal:MEDIAN,SIGMA or pareto:SCALE,ALPHA",
        )
    group.add_argument(
        "--faults",
        default="",
        metavar="KIND=RATE,…",
        help="too_many (429), errors (500), drops, restarts, slow, lost, stuck, paused; "
        "for example errors=5%%,drops=5%%",
    )
    group.add_argument("--fault-seed", type=int, default=0, metavar="N", help="(default 0)")
    parser.set_defaults(error_status=2)


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        return print_error(f"serving needs {', '.join(missing)}", 2, "pip install 'rlc[serve]'")
    try:
        _serve(args, _key(args))
    except KeyboardInterrupt:
        print("\nstopped; checkpoints stay in " + str(args.checkpoints))
    return 0


def _serve(args: argparse.Namespace, key: str | None) -> None:
    import asyncio

    from rlc.service import local
    from rlc.service.http.app import build_app
    from rlc.service.http.backend import Backend, load_models
    from rlc.service.http.faults import parse_faults
    from rlc.service.http.latency import Latency, parse_delay
    from rlc.service.http.server import Server, bind

    seed = args.fault_seed
    latency = Latency(parse_delay(args.sample_latency), parse_delay(args.train_latency), seed)
    faults = parse_faults(args.faults, seed)
    listening = bind(args.host, args.port)
    with listening:
        engine = local.connect(args.checkpoints, device=args.device, continuous=True)
        try:
            engine.store.require_writable()
            served = asyncio.run(load_models(engine, parse_models(args.models)))
            backend = Backend(engine, served, latency, faults, args.custom_losses)
            print(_banner(backend, listening.getsockname()[:2], args, key), flush=True)
            Server(build_app(backend, key), backend.futures.close).serve_on(listening)
        finally:
            engine.close()


def parse_models(given: Sequence[str]) -> dict[str, str]:
    """Read models by name: ``NAME=FOLDER``, or a folder under its own full path."""
    models = {}
    for text in given or ["tiny"]:
        name, equals, source = text.rpartition("=")
        if source != "tiny":
            source = str(Path(source).expanduser().resolve())
        models[name if equals else source] = source
    return models


def _key(args: argparse.Namespace) -> str | None:
    """Return the key that clients must send; None on loopback without one."""
    key = os.environ.get(KEY_VARIABLE) or None
    if args.host in (LOOPBACK, "localhost"):
        return key
    if not args.allow_remote:
        raise Error(
            f"--host {args.host} would let other machines in; add --allow-remote to mean it"
        )
    if key is None:
        raise Error(f"--allow-remote needs a key for the clients in {KEY_VARIABLE}")
    if not key.startswith("tml-"):
        raise Error(f"{KEY_VARIABLE} must start with tml-: the SDK takes no other keys")
    return key


def _banner(
    backend: Backend, address: tuple[str, int], args: argparse.Namespace, key: str | None
) -> str:
    """Return what a user needs: the models, the address, and the lines for another terminal."""
    models = "\n".join(
        f"  {served.name}" + ("" if served.name == served.source else f"  ({served.source})")
        for served in backend.served.values()
    )
    return f"""\
rlc serve: Tinker's protocol on the embedded engine ({backend.engine.device.type})
{models}
  checkpoints in {args.checkpoints}

  export TINKER_BASE_URL=http://{address[0]}:{address[1]}
  export TINKER_API_KEY={"$" + KEY_VARIABLE if key else "tml-local"}

  chats: http://{address[0]}:{address[1]}/v1 (OpenAI), http://{address[0]}:{address[1]} (Anthropic)

Ctrl-C stops it."""
