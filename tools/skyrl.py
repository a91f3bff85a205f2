"""A server of SkyRL on this machine, with the tiny model, on the CPU.

    python -m tools.skyrl FOLDER                       its address; until Ctrl-C
    python -m tools.skyrl FOLDER --version 0.3.0 --dtype bfloat16

The package is installed into an environment of Python 3.12 in the folder, once for a version: 7 GB,
which takes minutes. The server is that of the package with its engine for JAX, but for the command
that starts the engine (`tools/skyrl_launcher.py`). It listens at 127.0.0.1 alone; its database,
checkpoints and log are in the folder, too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from attrs import frozen

from rlc.service import tiny
from rlc.service.sockets import LOOPBACK, bind

VERSION = "0.4.0"
DTYPES = ("float32", "bfloat16")
_PYTHON = "3.12"
_EXTRA = ("aiohttp",)  # which 0.4.0 imports and does not ask for
_LAUNCHER = Path(__file__).with_name("skyrl_launcher.py")
_ENGINE = {
    "max_lora_adapters": 12,
    "max_lora_rank": 32,
    "sample_max_num_sequences": 16,
    "train_micro_batch_size": 16,
}
_START_SECONDS = 120.0
_END_SECONDS = 30.0


class LackingError(Exception):
    """What is missing here, and how to get it."""


@frozen
class SkyRL:
    """A server that runs: its address, and the folder of its checkpoints."""

    url: str
    checkpoints: Path


def environment(folder: Path, version: str = VERSION) -> Path:
    """Return the Python of an environment with a version of the package, which is made if it is not
    there. Raise LackingError without Python 3.12."""
    home = folder / f"skyrl-{version}"
    python, done = home / "bin" / "python", home / "installed"
    if not done.exists():
        subprocess.run([_python(), "-m", "venv", "--clear", home], check=True)
        packages = (f"skyrl[tinker,jax]=={version}", *_EXTRA)
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
        done.touch()
    return python


def _python() -> str:
    """Return a Python that the package runs on, from pyenv or the path: a shim of pyenv may be on
    the path without a Python behind it."""
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found = sorted(map(str, versions.glob(f"{_PYTHON}.*/bin/python")))
    for python in (*found, shutil.which(f"python{_PYTHON}")):
        if python and not subprocess.run([python, "-c", ""], capture_output=True).returncode:
            return python
    raise LackingError(
        f"SkyRL needs Python {_PYTHON}, and there is none in {versions} or on the path: "
        f"`pyenv install {_PYTHON}` gets one"
    )


@contextmanager
def running(
    folder: Path, version: str = VERSION, dtype: str = "float32", **engine: int
) -> Iterator[SkyRL]:
    """Run a server with the tiny model until the block ends; ``engine`` changes the options of its
    backend. Raise LackingError if it does not start."""
    python = environment(folder, version)
    home = folder / f"server-{version}-{dtype}-{os.getpid()}"
    model = _model(home, dtype)
    listening = bind(LOOPBACK, 0)
    url = "http://{}:{}".format(*listening.getsockname())
    options = {
        "base-model": str(model),
        "backend": "jax",
        "backend-config": json.dumps({**_ENGINE, **engine}),
        "checkpoints-base": str(home / "checkpoints"),
        "database-url": f"sqlite:///{home}/database.db",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = [str(python), "-P", str(_LAUNCHER), str(listening.fileno()), *words]
    with (
        (home / "log.txt").open("wb") as log,
        listening,
        subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env=os.environ | _jax(python.parent.parent / "compiled"),
            pass_fds=[listening.fileno()],
            cwd=home,
            start_new_session=True,
        ) as process,
    ):
        try:
            _wait(url, process, home / "log.txt")
            yield SkyRL(url, home / "checkpoints")
        finally:
            _end(process)
            shutil.rmtree(home / "checkpoints", ignore_errors=True)


def _jax(cache: Path) -> dict[str, str]:
    """Return settings of JAX: what it compiles, seconds for each shape, is kept for the next
    server."""
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONPATH": "",
    }


def _model(home: Path, dtype: str) -> Path:
    """Write the tiny model under its name, with a dtype that the server takes from its settings."""
    model = home / "tiny"
    shutil.copytree(tiny.path(), model, dirs_exist_ok=True)
    settings = model / "config.json"
    said: Mapping[str, object] = json.loads(settings.read_text(encoding="utf-8"))
    kept = {key: value for key, value in said.items() if key != "torch_dtype"}
    settings.write_text(json.dumps({**kept, "dtype": dtype}), encoding="utf-8")
    return model


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(URLError, OSError), urlopen(f"{url}/api/v1/healthz", timeout=5):
            return
        time.sleep(0.2)
    said = log.read_text(encoding="utf-8", errors="replace")[-2_000:]
    raise LackingError(f"the server of SkyRL does not start; the end of {log}:\n{said}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server and its engine, a process of the same group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
            break


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.skyrl", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the environment and of what a server writes")
    parser.add_argument("--version", default=VERSION, help=f"of the package (default {VERSION})")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of the model")
    args = parser.parse_args()
    try:
        with running(args.folder.resolve(), args.version, args.dtype) as server:
            print(f"SkyRL {args.version}: {server.url}\nCtrl-C stops it.", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except LackingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
