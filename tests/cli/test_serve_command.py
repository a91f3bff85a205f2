"""``rlc serve``: what it says when it starts, refuses and stops."""

from __future__ import annotations

import os
import re
import signal
import sys
from http.client import HTTPConnection
from pathlib import Path

import processes
import pytest

from rlc.cli.commands.servers.serve import parse_models
from rlc.cli.main import main

RLC = [str(Path(sys.executable).with_name("rlc")), "serve", "--port", "0"]


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.kill
@pytest.mark.server
def test_it_tells_the_two_lines_a_user_needs_and_stops_quietly(tmp_path: Path) -> None:
    command = [*RLC, "--checkpoints", str(tmp_path), "--model", "Qwen/Qwen3-8B=tiny"]
    log = tmp_path / "log"
    log.touch()
    process = processes.fork(log, processes.script, command, str(tmp_path), {})
    try:
        while process.is_alive() and "Ctrl-C" not in log.read_text():
            process.join(0.01)
        told = log.read_text()
        lines = [line.strip() for line in told.splitlines()]
        assert "Qwen/Qwen3-8B  (tiny)" in lines
        assert "export TINKER_API_KEY=tml-local" in lines
        (address,) = re.findall(r"export TINKER_BASE_URL=http://(\S+)", told)
        connection = HTTPConnection(address)
        connection.request("GET", "/api/v1/healthz")
        assert connection.getresponse().read() == b'{"status":"ok"}'
        connection.close()
        os.kill(process.pid, signal.SIGINT)
        process.join(30)
    finally:
        process.kill()
    assert process.exitcode == 0
    assert re.fullmatch(r"\nstopped.*\n", log.read_text().removeprefix(told))


@pytest.mark.engine
@pytest.mark.server
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "add --allow-remote to mean it"),
        (["--host", "0.0.0.0", "--allow-remote"], "needs a key for the clients in RLC_SERVE_KEY"),
        (["--model", "nowhere"], "has no model"),
        (["--faults", "erors=5%"], "there is no fault `erors`"),
        (["--sample-latency", "slow"], "`slow` is not a delay"),
        (["--port", "70000"], "cannot listen on 127.0.0.1:70000"),
    ],
)
def test_what_it_refuses(
    options: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RLC_SERVE_KEY", raising=False)
    assert main(["serve", "--port", "0", "--checkpoints", str(tmp_path), *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.engine
@pytest.mark.server
def test_a_place_that_takes_no_checkpoints_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert main(["serve", "--port", "0", "--checkpoints", str(file)]) == 2
    said = capsys.readouterr()
    assert "Cannot write checkpoints in" in said.err
    assert "TINKER_BASE_URL" not in said.out


def test_models_are_served_under_any_name(tmp_path: Path) -> None:
    assert parse_models([]) == {"tiny": "tiny"}
    assert parse_models(["Qwen/Qwen3-8B=tiny", f"mine={tmp_path}", str(tmp_path)]) == {
        "Qwen/Qwen3-8B": "tiny",
        "mine": str(tmp_path),
        str(tmp_path): str(tmp_path),
    }
