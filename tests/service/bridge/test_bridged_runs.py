"""Whole runs on a server of SkyRL: as on the embedded engine, resumed, killed, in a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bridge_support import (
    Start,
    Watcher,
    assert_same_numbers,
    numbers,
    run_on,
    small_job,
    there,
)
from killing import Victim
from run_support import TINY, block, compiled
from skyrl_server import SkyRLServer

from rlc.cli.main import main
from rlc.runtime.journal.folder import RunFolder
from rlc.service.bridge import app

pytestmark = [pytest.mark.plain, pytest.mark.server, pytest.mark.slow]

SKYRL = TINY.replace('"tiny"', '"tiny"  service = skyrl')
SUPERVISED = {
    "model": "policy",
    "data": "demonstrations(spell, n = 8)",
    "batch": "4",
    "steps": "3",
    "optimizer": "adam(3e-3)",
}
OWN = "loss mine(high = 3) { token = -min(ratio, high) * adv }\n"


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    """What three steps of the small job come to on the double."""
    return in_process(tmp_path_factory.mktemp("here") / "run", small_job(steps="3"))


def in_process(path: Path, text: str) -> list[dict[str, float]]:
    """What a job comes to without a server."""
    assert run_on(RunFolder.create(path, compiled(text))).state == "finished"
    return numbers(path)


@pytest.fixture
def expected(of_three: list[dict[str, float]]) -> list[dict[str, float]]:
    """What the small job comes to."""
    return of_three[:2]


@pytest.mark.engine
def test_a_run_is_that_of_the_embedded_engine(tmp_path: Path, server: SkyRLServer) -> None:
    of_three = in_process(tmp_path / "here", small_job(steps="3"))
    watcher, job = Watcher(), there(small_job(steps="3"))
    summary = run_on(RunFolder.create(tmp_path / "run", job), server, watcher)
    assert summary.state == "finished"
    assert_same_numbers(tmp_path / "run", of_three)
    assert server.process.slots == {}, "the models are unloaded at the end"
    states = [name for _, kind, name in server.database.checkpoints if kind == "weights"]
    wanted = ["main-000001", "main-000002", "main-000003"]
    assert states == (wanted[1:] if server.in_protobuf else wanted), watcher.notes


@pytest.mark.engine
@pytest.mark.parametrize("kind", ["sft", "preference", "own loss", "two updates"])
def test_other_stages_have_the_same_gradients(tmp_path: Path, start: Start, kind: str) -> None:
    """Likelihoods whose weights are negative, a loss that the SDK computes in the client, and
    several passes of a step."""
    pairs = [{"prompt": f"{n}?", "chosen": f"{n}", "rejected": f"no {n}"} for n in range(4)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    by_name = {"model": "policy", "data": f'pairs("{tmp_path}/pairs.jsonl")', "loss": "cpo()"}
    text = {
        "sft": TINY + block("sft", "main", SUPERVISED),
        "preference": TINY + block("preference", "main", SUPERVISED | by_name | {"batch": "2"}),
        "own loss": OWN + small_job(loss="mine()"),
        "two updates": small_job(batch="groups(2, group_size = 2, updates = 2)", loss="ppo()"),
    }[kind]
    run_on(RunFolder.create(tmp_path / "here", compiled(text)))
    run_on(RunFolder.create(tmp_path / "there", there(text)), start())
    wanted = numbers(tmp_path / "here")
    assert all(step["optim/grad_norm"] > 0 for step in wanted)
    assert_same_numbers(tmp_path / "there", wanted)


@pytest.mark.engine  # which takes its time
@pytest.mark.usefixtures("polls")
def test_a_slow_server_is_waited_for(tmp_path: Path, server: SkyRLServer) -> None:
    """It holds polls for a moment, as does the bridge: both answer 408, which means patience."""
    expected = in_process(tmp_path / "here", small_job())
    server.poll_seconds = 0.05
    run_on(RunFolder.create(tmp_path / "run", there(small_job())), server)
    assert_same_numbers(tmp_path / "run", expected)
    assert server.statuses[408] > 3


def test_a_stopped_run_goes_on_to_the_same_end(
    tmp_path: Path, server: SkyRLServer, expected: list[dict[str, float]]
) -> None:
    """With another bridge, which knows nothing of the first."""
    watcher = Watcher(lambda _: watcher.job.stop())  # type: ignore[union-attr]
    folder = RunFolder.create(tmp_path / "run", there(small_job()))
    assert run_on(folder, server, watcher).state == "interrupted"
    app.close_bridges()
    assert run_on(RunFolder.resume(tmp_path / "run"), server).state == "finished"
    assert_same_numbers(tmp_path / "run", expected)


@pytest.mark.kill
def test_a_killed_run_goes_on_to_the_same_end(
    tmp_path: Path,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    expected: list[dict[str, float]],
) -> None:
    """Its bridge dies with it; the models of its session stay in the server."""
    server = start()
    monkeypatch.setenv("SKYRL_BASE_URL", server.url)
    recipe = tmp_path / "small.rl"
    recipe.write_text(SKYRL + small_job()[len(TINY) :])
    victim = Victim(recipe, tmp_path / "run", tmp_path / "log.txt", seed=1)
    assert victim.kill_at("training", 2) is not None
    assert len(server.process.slots) == 1
    victim.finish()
    assert len(server.process.slots) == 1
    assert_same_numbers(tmp_path / "run", expected)


def test_a_sweep_trains_four_models_side_by_side(
    tmp_path: Path, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each in a session of its own."""
    server = start()
    tried = "of = main  over = { rate = [1e-3, 3e-3] }  seeds = 2  metric = main.reward"
    job = "param rate: float = 1e-3\n" + small_job(optimizer="adam(rate)")
    recipe = tmp_path / "small.rl"
    recipe.write_text(f"{SKYRL}{job.replace(TINY, '')}sweep rates {{ {tried} }}\n")
    words = ["sweep", str(recipe), "--base-url", server.url, "--run-dir", str(tmp_path / "out")]
    assert main(words) == 0, capsys.readouterr()
    assert "finished: 4 finished" in capsys.readouterr().out
    assert len(server.asked("create_session")) >= 4
    assert server.process.slots == {}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"overlap": "asynchronous(max_staleness = 2)", "loss": "ppo()"}, "newest weights"),
        ({"loss": "dro(beta = 0.1)"}, "`skyrl` has no loss `dro`"),
        ({"optimizer": "adam(1e-3, grad_clip_norm = 1)"}, "takes no `grad_clip_norm = 1`"),
        ({"teacher": "forward_kl(policy, top_k = 4)"}, "most likely tokens of a teacher"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fields: dict[str, str], said: str
) -> None:
    recipe = tmp_path / "small.rl"
    text = SKYRL + small_job(**fields)[len(TINY) :]
    recipe.write_text(text.replace("advantage = grpo()\n", "") if "teacher" in fields else text)
    assert main(["check", str(recipe)]) == 1
    assert said in capsys.readouterr().out
    recipe.write_text(text.replace("  service = skyrl", ""))
    assert main(["explain", str(recipe), "--service", "skyrl"]) != 0
    assert said in "".join(capsys.readouterr())
