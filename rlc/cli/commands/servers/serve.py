"""``rlc serve``: the embedded engine behind Tinker's HTTP protocol, on this machine."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlc.catalog.packages import CUSTOM_LOSSES, described, lacking, name_of
from rlc.cli.options import KEY_VARIABLE, add_address, add_base_url, is_local, key_of
from rlc.cli.output import UsageError
from rlc.errors import Error

if TYPE_CHECKING:
    from rlc.service import Observer

PACKAGES = ("torch", "transformers", CUSTOM_LOSSES, "starlette", "uvicorn")

HELP = "serve the embedded engine to Tinker's SDK, or models to OpenAI's clients"
DESCRIPTION = (
    "Serve the embedded engine behind Tinker's HTTP protocol, so that any script "
    "written for the official SDK runs against this machine. Programs that talk to models by "
    "OpenAI's or Anthropic's API talk to base models and checkpoints at the same address. With "
    "--openai only they are served, to models by any reference, over the service of each."
)
EPILOG = """\
examples:
  rlc serve                                            the tiny model, to Tinker's SDK
  rlc serve --openai runs/x tiny --record asked.jsonl  what was trained, and what it came from
  rlc serve --openai shopper=runs/x@main:20            under a name of your choice
  rlc serve --openai tinker://RUN/weights/NAME         a model on Tinker

exit status: 0 stopped by Ctrl-C; 2 the server cannot start
"""
_ENGINE = """\
rlc serve: Tinker's protocol on the embedded engine ({device})
{models}
  checkpoints in {checkpoints}

  export TINKER_BASE_URL={address}
  export TINKER_API_KEY={key}

  chats: {address}/v1 (OpenAI), {address} (Anthropic)

Ctrl-C stops it."""
_REFERENCES = """\
rlc serve: OpenAI's and Anthropic's APIs
{models}

  export OPENAI_BASE_URL={address}/v1
  export OPENAI_API_KEY={key}

  Anthropic's clients take {address}

Ctrl-C stops it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_address(parser, port=8000)
    folder = Path("checkpoints")
    text = "where runs and checkpoints are kept (default ./checkpoints)"
    parser.add_argument("--checkpoints", type=Path, default=folder, metavar="DIR", help=text)
    parser.add_argument(
        "--model",
        dest="models",
        action="append",
        default=[],
        metavar="[NAME=]FOLDER",
        help="serve a Hugging Face model folder, or `tiny`, under a name of your choice "
        "(--model Qwen/Qwen3-8B=tiny); may be repeated (default tiny)",
    )
    group = parser.add_argument_group("models by reference")
    group.add_argument(
        "--openai",
        dest="references",
        nargs="+",
        default=[],
        metavar="[NAME=]MODEL",
        help="serve these models to clients of OpenAI's and Anthropic's APIs: a run (runs/x, "
        "runs/x@main:20), the folder of an adapter or a model, a tinker:// path, a base model",
    )
    group.add_argument("--base", help="their base model, where the name does not say it")
    group.add_argument("--renderer", help="how chats become tokens, where that is not known")
    add_base_url(group)
    text = "add a line (JSON) for each answered request, with its exact tokens and logprobs"
    parser.add_argument("--record", type=Path, metavar="FILE", help=text)
    parser.add_argument("--device", metavar="NAME", help="cpu or cuda (default: what is there)")
    usual = "RLC_DTYPE, or on CUDA what a model was saved in, else float32"
    parser.add_argument("--dtype", metavar="NAME", help=f"float32 or bfloat16 (default: {usual})")
    group = parser.add_argument_group("for tests of clients")
    text = "compute no custom losses, so that clients compute theirs themselves"
    group.add_argument("--no-custom-losses", dest="custom_losses", action="store_false", help=text)
    for kind in ("sample", "train"):
        text = f"seconds added to the answer of each {kind} request: "
        text += "0.5, lognormal:MEDIAN,SIGMA or pareto:SCALE,ALPHA"
        group.add_argument(f"--{kind}-latency", default="0", metavar="DELAY", help=text)
    text = "too_many (429), errors (500), drops, restarts, slow, lost, stuck, paused; "
    text += "for example errors=5%%,drops=5%%"
    group.add_argument("--faults", default="", metavar="KIND=RATE,…", help=text)
    group.add_argument("--fault-seed", type=int, default=0, metavar="N", help="(default 0)")
    parser.set_defaults(error_status=2)


def require(what: str, packages: Sequence[str], extra: str) -> None:
    """Raise UsageError if one of these packages is not installed, or too old."""
    missing, too_old = list[str](), list[str]()
    for package in packages:
        if (wrong := lacking(package)) is None:
            continue
        missing.append(described(package, wrong))
        if missing[-1] != name_of(package):
            too_old.append(f" '{package}'")
    if missing:
        advice = f"pip install 'rlc[{extra}]'{''.join(too_old)}"
        raise UsageError(f"{what} needs {', '.join(missing)}", advice)


def run(args: argparse.Namespace) -> int:
    require("serving", PACKAGES, "serve")
    _check_usage(args)
    recorder = None
    try:
        key = key_of(args)
        if key and not (is_local(args.host) or args.references or key.startswith("tml-")):
            raise Error(f"{KEY_VARIABLE} must start with tml-: the SDK takes no other keys")
        if args.record is not None:
            from rlc.service import Recorder

            recorder = Recorder(args.record)
        serve = _serve_references if args.references else _serve
        with suppress(KeyboardInterrupt):  # which a server that is busy may have taken for an end
            serve(args, key, recorder)
        kept = "" if args.references else f"; checkpoints stay in {args.checkpoints}"
        print(f"\nstopped{kept}")
    finally:
        if recorder is not None:
            recorder.close()
    return 0


def _check_usage(args: argparse.Namespace) -> None:
    """Raise UsageError if an option would have no effect."""
    others: dict[str, Any] = {"base": None, "renderer": None, "base_url": None}
    if args.references:
        others = {"models": [], "device": None, "dtype": None, "custom_losses": True, "faults": ""}
        others |= {"sample_latency": "0", "train_latency": "0", "fault_seed": 0}
        others |= {"checkpoints": Path("checkpoints")}
    odd_names = {"models": "--model", "custom_losses": "--no-custom-losses"}
    for name, usual in others.items():
        if getattr(args, name) != usual:
            option = odd_names.get(name, f"--{name.replace('_', '-')}")
            does = "has no effect with" if args.references else "is for models named by"
            raise UsageError(f"{option} {does} --openai")


def _serve_references(args: argparse.Namespace, key: str | None, answered: Observer | None) -> None:
    import rlc.service.engine  # noqa: F401, I001 (before anything imports torch)
    import asyncio

    from rlc.models import named_model, serving_models

    plans = {}
    for given in args.references:
        # A folder that is there is one, whatever its name holds.
        name, _, reference = ("", "", given) if os.path.exists(given) else given.rpartition("=")
        plan = named_model(reference, args.base, args.renderer, args.base_url)
        plans[name or reference] = plan

    width = max(map(len, plans))
    named = ((name, plan.weights or plan.base, plan.service) for name, plan in plans.items())
    models = "\n".join(f"  {name:<{width}}   {of}, on {service}" for name, of, service in named)

    async def serve() -> None:
        serving = serving_models(plans, args.host, args.port, key, answered, args.base_url)
        async with serving as address:
            shown_key = f"${KEY_VARIABLE}" if key else "none"
            print(_REFERENCES.format(models=models, address=address, key=shown_key), flush=True)
            await asyncio.Event().wait()

    asyncio.run(serve())


def _serve(args: argparse.Namespace, key: str | None, answered: Observer | None) -> None:
    import asyncio

    from rlc.service import (
        Backend,
        Disturbances,
        Latency,
        Server,
        bind,
        build_app,
        load_models,
        parse_delay,
        parse_faults,
    )
    from rlc.service.engine import open_engine

    latency = Latency(parse_delay(args.sample_latency), parse_delay(args.train_latency))
    disturbances = Disturbances(parse_faults(args.faults, args.fault_seed), latency)
    listening = bind(args.host, args.port)
    with listening:
        settings = {"device": args.device, "dtype": args.dtype}
        engine = open_engine(args.checkpoints, continuous=True, **settings)
        try:
            engine.store.require_writable()
            served = asyncio.run(load_models(engine, parse_models(args.models)))
            backend = Backend(engine, served, disturbances, args.custom_losses)
            lines = [
                f"  {one.name}" + ("" if one.name == one.source else f"  ({one.source})")
                for one in served.values()
            ]
            host, port = listening.getsockname()[:2]
            values = {"models": "\n".join(lines), "address": f"http://{host}:{port}"}
            values |= {"device": engine.device.type, "checkpoints": args.checkpoints}
            values["key"] = f"${KEY_VARIABLE}" if key else "tml-local"
            print(_ENGINE.format(**values), flush=True)
            Server(build_app(backend, key, answered), backend.futures.close).serve_on(listening)
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
