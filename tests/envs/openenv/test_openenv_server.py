"""Servers of OpenEnv that are started for a run, and end with it. What they serve stands in for an
environment: a schema, over the library's own layout of a package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlc.chat.turns import EnvError
from rlc.envs.openenv import schema_of, served

pytestmark = pytest.mark.server

APP = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"action": {"properties": {"move": {}}}}).encode())

port = int(sys.argv[sys.argv.index("--port") + 1])
HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def package(folder: Path, name: str) -> Path:
    """A package as OpenEnv lays them out."""
    app = folder / name / "server" / "app.py"
    app.parent.mkdir(parents=True)
    for init in (app.parent, app.parent.parent):
        (init / "__init__.py").touch()
    app.write_text(APP, encoding="utf-8")
    return app


@pytest.mark.parametrize("by", ["package", "command"])
def test_a_server_is_started_and_ends(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"guessing_{by}_env"
    command = f"{sys.executable} {package(tmp_path, name)} --port {{port}}"
    with served(name if by == "package" else command) as url:
        assert schema_of(url) == {"properties": {"move": {}}}
    with pytest.raises(EnvError, match="gives no schema of its actions"):
        schema_of(url)


def test_an_address_is_that_of_a_server_that_runs() -> None:
    with served("http://127.0.0.1:9") as url:
        assert url == "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("no_such_env", "there is no package `no_such_env` here, nor beside the recipe"),
        ("no-such-command --port {port}", "there is no `no-such-command` here"),
        ('python "{port}', "No closing quotation"),
        (f"{sys.executable} -c 'raise SystemExit(\"no board\")' {{port}}", "ended: no board"),
    ],
)
def test_a_server_that_cannot_be_started(server: str, said: str) -> None:
    with pytest.raises(EnvError, match=said), served(server):
        pass
