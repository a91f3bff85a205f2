"""Jobs that start a server of SkyRL beside themselves, and jobs that name one.

SkyPilot goes with few other packages: ``RLC_SKYPILOT_PYTHON`` names a Python that has it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from paths import RECIPES

from rlc.api import Recipe
from rlc.emit.job.folder import WrittenJob, emit_job
from rlc.emit.job.servers import ENGINES, JobServer, JobServerError

pytestmark = pytest.mark.slow

SKYPILOT = os.environ.get("RLC_SKYPILOT_PYTHON")
SCHEMA = """
import sys, yaml
from sky.utils import common_utils, schemas

task = yaml.safe_load(open(sys.argv[1]))
common_utils.validate_schema(task, schemas.get_task_schema(), "task: ")
common_utils.validate_schema(task["resources"], schemas.get_resources_schema(), "resources: ")
"""


STAGE = """
model policy_{1} {{ base = "Qwen/{0}"  lora_rank = 8 }}
env words_{1} = problems("words.jsonl", grader = exact)
train main_{1} {{
  model = policy_{1}  env = words_{1}  batch = groups(4, group_size = 4)  advantage = grpo()
  sampling = sample(max_tokens = 8)  loss = importance_sampling()
  optimizer = adam(1e-3)  steps = 2
}}
"""


def written(
    folder: Path, engine: str | None, recipe: str = "sudoku", service: str | None = "skyrl"
) -> WrittenJob:
    asked = Recipe(str(RECIPES / f"{recipe}.rl"), service=service)
    compiled = asked.compile()
    return emit_job(compiled, folder, asked.options(), engine=engine)


def task_of(folder: Path) -> dict[str, Any]:
    task: dict[str, Any] = yaml.safe_load((folder / "sky.yaml").read_text())
    return task


@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_starts_the_server_of_its_model(engine: str, tmp_path: Path) -> None:
    job = written(tmp_path / "job", engine)
    task = task_of(tmp_path / "job")
    assert task["envs"] == {"SKYRL_MODEL": "Qwen/Qwen3.5-9B-Base", "SKYRL_ENGINE": engine}
    assert task["resources"] == ENGINES[engine]
    assert (task["setup"].splitlines()[-1], task["run"].strip()) == (
        "bash skyrl.sh prepare",
        "bash skyrl.sh run",
    )
    assert not job.needs  # not the address, which is its own
    subprocess.run(["bash", "-n", str(tmp_path / "job" / "skyrl.sh")], check=True)
    assert "/server\n" in (tmp_path / "job" / ".gitignore").read_text()
    page = (tmp_path / "job" / "README.md").read_text()
    assert "never been\nlaunched on GPUs" in page
    assert f"export SKYRL_MODEL=Qwen/Qwen3.5-9B-Base SKYRL_ENGINE={engine}\n" in page


def test_a_job_without_a_server_is_told_its_address(tmp_path: Path) -> None:
    job = written(tmp_path / "job", None)
    assert job.needs == ("SKYRL_BASE_URL",)
    assert task_of(tmp_path / "job")["envs"] == {"SKYRL_BASE_URL": None}
    page = (tmp_path / "job" / "README.md").read_text()
    assert "- `SKYRL_BASE_URL` in the environment: the address of a server\n" in page
    assert "docker run -e SKYRL_BASE_URL " in page
    assert "sky launch -c sudoku --env SKYRL_BASE_URL sky.yaml" in page
    assert "skyrl.sh" not in job.files


@pytest.mark.skipif(SKYPILOT is None, reason="RLC_SKYPILOT_PYTHON names no Python")
@pytest.mark.parametrize("engine", [None, *ENGINES])
def test_the_task_is_one_of_skypilot(engine: str | None, tmp_path: Path) -> None:
    assert SKYPILOT is not None
    written(tmp_path / "job", engine)
    check = [SKYPILOT, "-c", SCHEMA, str(tmp_path / "job" / "sky.yaml")]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_server_is_for_plans_of_its_service(tmp_path: Path) -> None:
    with pytest.raises(JobServerError, match="this trains on `tinker`"):
        written(tmp_path / "job", "megatron", "quickstart", "tinker")
    assert not (tmp_path / "job").exists()


def test_one_server_has_one_base_model(tmp_path: Path) -> None:
    (tmp_path / "words.jsonl").write_text('{"question": "Say one.", "answer": "one"}\n' * 4)
    path = tmp_path / "two.rl"
    path.write_text("".join(map(STAGE.format, ("Qwen3-8B", "Qwen3.5-4B"), "ab")))
    asked = Recipe(str(path), service="skyrl")
    with pytest.raises(JobServerError, match=r"asks Qwen/Qwen3-8B, Qwen/Qwen3.5-4B"):
        emit_job(asked.compile(), tmp_path / "job", asked.options(), engine="megatron")


# Stand-ins for `ray`, and for `uv`, which starts the server: each listens where it is told to.
RAY = """
import signal, socket, sys
given = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
if "--head" in sys.argv:
    listening = socket.create_server(("127.0.0.1", int(given["--port"])))
print("ray", *sys.argv[1:], flush=True)
signal.pause()
"""
SERVER = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/api/v1/healthz" else 404)
        self.end_headers()

print(os.getcwd(), os.environ.get("RAY_ADDRESS"), *sys.argv[1:], flush=True)
if "broken" in sys.argv:
    sys.exit("no such model")
port = int(sys.argv[sys.argv.index("--port") + 1])
HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
JOB = """
import sys, urllib.request
url = sys.argv[sys.argv.index("--base-url") + 1]
print("ran", urllib.request.urlopen(url + "/api/v1/healthz").status, *sys.argv[4:], flush=True)
sys.exit(3)
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


class Machine:
    """A folder with the script of a job, whose programs are stand-ins."""

    def __init__(self, folder: Path, rank: int, ports: tuple[int, int], model: str = "a/b") -> None:
        self.folder = folder
        programs = {"server/env/bin/ray": RAY, "bin/uv": SERVER, "bin/python3": "", "run.py": JOB}
        for name, text in programs.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!{sys.executable}\n{text}")
            path.chmod(0o755)
        (folder / "server" / "SkyRL").mkdir()
        for name in ("bin/python3", "server/env/bin/python"):
            (folder / name).unlink(missing_ok=True)
        os.symlink(sys.executable, folder / "bin" / "python3")
        joined = folder / "server" / "env" / "bin" / "python"
        joined.write_text("#!/bin/sh\ncat > joined.py\necho $* > asked\n")
        joined.chmod(0o755)
        script = JobServer("megatron", model).script
        (folder / script.name).write_text(script.read_text())
        self.given = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOME": str(folder),
            "SKYRL_MODEL": model,
            "SKYRL_ENGINE": "megatron",
            "SKYRL_RAY_PORT": str(ports[0]),
            "SKYRL_PORT": str(ports[1]),
            "SKYRL_PATIENCE": "30",
            "SKYRL_PAUSE": "0.1",
            "SKYPILOT_NUM_NODES": "2",
            "SKYPILOT_NUM_GPUS_PER_NODE": "8",
            "SKYPILOT_NODE_RANK": str(rank),
            "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2",
        }

    def run(self) -> subprocess.CompletedProcess[str]:
        command = ["bash", "skyrl.sh", "run", "--folder", "/volume/run"]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def log(self, name: str) -> str:
        return (self.folder / "server" / name).read_text()


@pytest.mark.server
def test_the_script_starts_ray_and_the_server_and_leaves_nothing(tmp_path: Path) -> None:
    """Two machines: the first has the server and the job, the second helps until that is over."""
    ports = free_port(), free_port()
    head, worker = (Machine(tmp_path / str(rank), rank, ports) for rank in range(2))
    with ThreadPoolExecutor() as threads:
        helping = threads.submit(worker.run)
        done = head.run()
        assert (done.returncode, done.stdout) == (3, "ran 200 --folder /volume/run\n"), done.stderr
        assert helping.result().returncode == 0
    assert f"--head --node-ip-address=127.0.0.1 --port={ports[0]} --num-gpus=8" in head.log(
        "ray.log"
    )
    assert f"--address=127.0.0.1:{ports[0]} --num-gpus=8" in worker.log("ray.log")
    assert (head.folder / "asked").read_text() == f"- 127.0.0.1:{ports[0]} 2\n"
    served = head.log("server.log")
    assert served.startswith(f"{head.folder}/server/SkyRL 127.0.0.1:{ports[0]} run --isolated")
    assert "--extra tinker --extra megatron -m skyrl.tinker.api --host 127.0.0.1" in served
    assert '"generator.inference_engine.num_engines": 8,' in served  # half of the GPUs
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


@pytest.mark.server
def test_a_job_ends_with_its_own_status_or_with_why_its_server_did(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    good = Machine(tmp_path / "good", 0, ports)
    good.given["SKYRL_ENGINE"] = "jax"  # which needs no Ray
    assert good.run().returncode == 3
    assert not (good.folder / "server" / "ray.log").exists()
    bad = Machine(tmp_path / "bad", 0, ports, model="broken")
    done = bad.run()
    assert (done.returncode, done.stdout) == (1, "")
    why = "no such model\nerror: the server of SkyRL ended: its log is server/server.log"
    assert why in done.stderr
