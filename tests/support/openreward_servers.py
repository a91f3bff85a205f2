"""A real OpenReward server on loopback: one process serves all tests of a run.

Its environments are those of ``openreward_environments``.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from functools import cache

from paths import ROOT, SUPPORT

KEY = "a-key-for-the-tests"
REFUSALS = 7  # of each call to `busy`, and of each new session of it


@cache
def base_url() -> str:
    """The address of the running server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    paths = [str(ROOT / "examples"), str(SUPPORT)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENREWARD_LOG_LEVEL": "CRITICAL"}
    process = subprocess.Popen(
        [sys.executable, "-m", "openreward_environments", str(port)],
        env={**env, "OPENREWARD_DISABLE_UPDATE_CHECK": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(process.kill)
    url = f"http://127.0.0.1:{port}"
    _await_health(url, process)
    return url


def _await_health(url: str, process: subprocess.Popen[bytes]) -> None:
    """Connections queue at the port only once it is bound, so until then there is polling."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while process.poll() is None:
        try:
            opener.open(f"{url}/health", timeout=60).close()
        except urllib.error.URLError:
            _pause()
        else:
            return
    raise RuntimeError(f"the OpenReward server ended with {process.returncode}")


def _pause() -> None:
    """Let the process that is waited for have the core."""
    subprocess.run(["sleep", "0.1"], check=True)
