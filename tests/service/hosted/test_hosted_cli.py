"""``rlc run`` on a Tinker server, as a user meets it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import frozen
from engine_tinker import EngineTinker, engine_tinker
from hosted_support import RECIPE

from rlc.cli.main import main

KEY = "tml-a-key-for-tests"


@frozen
class Done:
    status: int
    out: str
    err: str


Rlc = Callable[..., Done]


@pytest.fixture
def rlc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Rlc:
    """Runs ``rlc run`` in an empty folder with a recipe."""
    (tmp_path / "hosted.rl").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        status = main(["run", *arguments])
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EngineTinker]:
    with engine_tinker(tmp_path / "server") as running:
        yield running


@pytest.mark.server
def test_the_key_comes_from_dotenv_and_the_server_from_the_option(
    rlc: Rlc, server: EngineTinker
) -> None:
    Path(".env").write_text(f'export TINKER_API_KEY="{KEY}"  # mine\nHF_TOKEN: other\n')
    options = ["--base-url", server.url, "--run-dir", "run", "--set", "main.steps=1"]
    done = rlc("hosted.rl", *options)
    assert done.status == 0, done.err
    assert "main: 1 of 1 steps" in done.out
    assert KEY not in done.out + done.err
    assert "line 2 of" in done.out + done.err
    assert "HF_TOKEN" not in done.out + done.err
    files = [path for path in Path("run").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


@pytest.mark.server
def test_a_refused_run_says_how_to_go_on_and_goes_back_to_its_server(
    rlc: Rlc, server: EngineTinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.setenv("TINKER_BASE_URL", server.url)
    server.broken["save_weights"] = (400, {"detail": "the disk is full"})
    failed = rlc("hosted.rl", "--run-dir", "run", "--set", "main.steps=1")
    assert failed.status == 1
    assert f"error: {server.url} refused a request: the disk is full" in failed.err
    assert "go on with: rlc run --resume run" in failed.err
    assert "Traceback" not in failed.err
    server.broken.clear()
    monkeypatch.delenv("TINKER_BASE_URL")  # the run knows where it was begun
    resumed = rlc("--resume", "run")
    assert resumed.status == 0, resumed.err
    assert len(server.checkpoints()) == 1


@pytest.mark.parametrize(
    ("key", "said"), [("", "needs TINKER_API_KEY"), ("sk-other", "is not a Tinker key")]
)
def test_without_a_usable_key_nothing_is_made(
    rlc: Rlc, monkeypatch: pytest.MonkeyPatch, key: str, said: str
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", key)
    done = rlc("hosted.rl", "--run-dir", "run")
    assert done.status == 1
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert said in errors[0]
    assert not Path("run").exists()


def test_a_server_that_is_not_there_is_said_before_anything_is_made(rlc: Rlc) -> None:
    done = rlc("hosted.rl", "--base-url", "http://127.0.0.1:9", "--run-dir", "run")
    assert done.status == 1
    assert "error: cannot reach http://127.0.0.1:9" in done.err
    assert not Path("run").exists()
