"""Harbor's task folders (schema 1.4, harbor 0.25): read, never run.

instruction.md      what is asked
task.toml           limits
environment/        Dockerfile, and what it copies
tests/test.sh       writes the reward to /logs/verifier/reward.txt or reward.json
solution/solve.sh   optional: an oracle
"""

from __future__ import annotations

import glob
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlc.data.errors import DataError
from rlc.records import frozen

# What a task may ask for and rlc does not do, with how a message calls it.
_REFUSED = {"tpu": "a TPU", "mcp_servers": "MCP servers", "healthcheck": "a health check"}


@frozen
class HarborTask:
    """A task. Seconds: ``agent`` bounds its commands together (None: no bound), ``verifier`` its
    tests. ``image``: a ready one; None: that of its Dockerfile."""

    folder: Path
    instruction: str
    agent: float | None
    verifier: float
    build: float
    image: str | None
    cpus: float | None
    memory_mb: int | None
    network: bool
    workdir: str | None
    env: Mapping[str, str]
    verifier_env: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.folder.name


def harbor_tasks(pattern: str) -> list[HarborTask]:
    """Return tasks by a pattern of folders. Raise DataError if one cannot be played."""
    folders = [Path(path) for path in sorted(glob.glob(pattern)) if Path(path).is_dir()]
    if not folders:
        raise DataError(f"there is no folder `{pattern}`")
    return [read_task(folder) for folder in folders]


def read_task(folder: Path) -> HarborTask:
    """Raise DataError for a folder that is no task, or asks for what rlc does not do."""
    for part in ("instruction.md", "task.toml", "tests/test.sh"):
        if not (folder / part).is_file():
            raise DataError(f"`{folder}` is no task of Harbor: it has no {part}")
    try:
        config = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{folder / 'task.toml'} cannot be read: {error}") from error
    agent, verifier, box = (_table(config, key) for key in ("agent", "verifier", "environment"))
    network = box.get("network_mode", "public")
    asks = {what: box.get(key) for key, what in _REFUSED.items()} | {
        "several steps": config.get("steps"),
        "a verifier in a container of its own": verifier.get("environment_mode") == "separate"
        or verifier.get("environment"),
        "GPUs": box.get("gpus"),
        "Windows": box.get("os", "linux") != "linux",
        "a list of allowed hosts": network == "allowlist",
        "docker compose": (folder / "environment" / "docker-compose.yaml").is_file(),
    }
    if refused := [what for what, asked in asks.items() if asked]:
        raise DataError(f"`{folder}` asks for {' and '.join(refused)}, which rlc does not offer")
    if box.get("docker_image") is None and not (folder / "environment" / "Dockerfile").is_file():
        raise DataError(f"`{folder}` has neither environment/Dockerfile nor a `docker_image`")
    limit = agent.get("timeout_sec")
    return HarborTask(
        folder=folder,
        instruction=(folder / "instruction.md").read_text(encoding="utf-8"),
        agent=None if limit is None else float(limit),
        verifier=float(verifier.get("timeout_sec", 600)),
        build=float(box.get("build_timeout_sec", 600)),
        image=box.get("docker_image"),
        cpus=box.get("cpus"),
        memory_mb=box.get("memory_mb"),
        network=network != "no-network" and box.get("allow_internet") is not False,
        workdir=box.get("workdir"),
        env={str(key): str(value) for key, value in _table(box, "env").items()},
        verifier_env={str(key): str(value) for key, value in _table(verifier, "env").items()},
    )


def _table(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = config.get(key, {})
    if not isinstance(found, dict):
        raise DataError(f"`{key}` in a task.toml is a table, and this is {found!r}")
    return found
