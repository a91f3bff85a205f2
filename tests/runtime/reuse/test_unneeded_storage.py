"""What is stored and not needed is found and deleted; what anything needs is kept."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

import pytest
from run_support import run, tiny, train

import rlc
from rlc.cli.main import main
from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.plan.records import Plan
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.reuse.store import find_reuse
from rlc.runtime.reuse.take import begin_with
from rlc.runtime.start import open_run
from rlc.service.hosted import stored as account
from rlc.service.hosted.stored import StoredCheckpoint
from rlc.service.interface import ServiceError

pytestmark = pytest.mark.plain
LAGGED = {"overlap": "asynchronous(max_staleness = 1)", "loss": "cispo()"}
HOSTED = """\
model policy { base = "Qwen/Qwen3-8B" }
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
train warmup {
  model = policy  env = guess  batch = groups(2, group_size = 2)  steps = 2
  sampling = sample(max_tokens = 8)  advantage = grpo()  loss = importance_sampling()
  optimizer = adam(1e-3)  save = every(1, keep = 2, ttl = 1d)
}
train main = warmup { model = warmup }
eval heldout { model = main  env = guess  tasks = 2 }
"""


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def hosted(text: str = HOSTED) -> Plan:
    plan = compile_source(Source("recipe.rl", text)).plan
    assert plan is not None
    return plan


def made_up(name: str, plan: Plan | None = None, finished: tuple[str, ...] = ("warmup",)) -> str:
    """A run on a service, of which some stages are finished; return its id."""
    plan = plan or hosted()
    with closing(RunFolder.create(Path("runs", name), plan)) as folder:
        begin_with(folder, find_reuse(plan))
        journal = folder.journal
        for stage in (one for one in plan.stages if one.name in finished):
            for step in (1, 2) if stage.trains else (2,):
                journal.start_step(stage.name, step)
                journal.finish_step(stage.name, step, {}, {"time/total": 60.0})
                if stage.trains:
                    path = f"tinker://{name}-{stage.name}/weights/{step}"
                    journal.add_checkpoint(stage.name, step, path)
        folder.set_state("finished")
        return journal.meta("id") or ""


def taken(plan: Plan, base_url: str | None = None) -> dict[str, str]:
    return {one.stage: one.run.name for one in find_reuse(plan, base_url=base_url).parts}


def test_states_on_a_service_are_taken_until_they_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up("first", finished=("warmup", "main", "heldout"))
    assert taken(hosted()) == dict.fromkeys(["warmup", "main", "heldout"], "first")
    assert taken(hosted(), "http://localhost:8000") == {}
    ahead = time.time() + 86_400 - 1_800  # half an hour is not enough to start from
    monkeypatch.setattr(time, "time", lambda: ahead)
    assert taken(hosted()) == {}


def test_on_a_service_a_stage_is_taken_only_with_the_weights_that_it_came_from() -> None:
    made_up("first", finished=("warmup",))
    with closing(RunFolder.create(Path("runs/other"), hosted())) as folder:  # trained anew
        begin_with(folder, find_reuse(hosted(), fresh=True))
        journal = folder.journal
        for stage in ("warmup", "main"):
            for step in (1, 2):
                journal.start_step(stage, step)
                journal.finish_step(stage, step, {}, {})
                journal.add_checkpoint(stage, step, f"tinker://other-{stage}/weights/{step}")
        journal.drop_checkpoint("warmup", 2)
    # Its `main` came from a `warmup` whose state is gone; that of the first has other weights.
    assert taken(hosted()) == {"warmup": "first"}


def test_states_that_stay_another_runs_are_not_deleted_by_the_run_that_takes_them() -> None:
    made_up("first")
    with closing(RunFolder.create(Path("runs/second"), hosted())) as folder:
        begin_with(folder, find_reuse(hosted()))
        (one,) = folder.journal.taken()
        assert one.foreign == tuple(folder.journal.checkpoints("warmup").values())
        assert folder.journal.used("warmup").seconds == 0


def test_files_of_runs_that_nothing_names_are_deleted_and_others_kept() -> None:
    done = Path("runs/done")
    run(open_run(tiny(train(**LAGGED)), done))
    left = done / "checkpoints/model-1/weights/main-000099.safetensors"
    left.write_bytes(b"x" * 1000)
    partial = Path("runs/sweep/trials/.0001-seed1-a.new")
    partial.mkdir(parents=True)
    before = {file for file in done.rglob("*") if file.is_file()}
    found = rlc.stored("runs")
    chosen = found.chosen()
    assert {(one.kind, one.path) for one in chosen} == {
        ("state", str(left)),
        ("folder", str(partial)),
    }
    snapshots = [one for one in found.items if one.loses_reuse]
    assert snapshots
    assert all("sampler_weights" in one.path for one in snapshots)
    assert found.delete(chosen) == []
    assert before - {file for file in done.rglob("*") if file.is_file()} == {left}
    longer = tiny(train(**LAGGED, steps="6"))
    assert taken(longer) == {"main": "done"}
    found.delete(found.chosen(lose_reuse=True))
    assert taken(longer) == {}  # as was said of them
    assert taken(tiny(train(**LAGGED))) == {"main": "done"}


def test_a_run_that_goes_on_and_one_that_is_damaged_are_left_alone() -> None:
    path = Path("runs/open")
    with closing(RunFolder.create(path, tiny(train()))):
        left = path / "checkpoints/model-1/weights/main-000001.safetensors"
        left.parent.mkdir(parents=True)
        left.write_bytes(b"x")
        found = rlc.stored("runs")
        assert not found.items
        assert "is going on" in found.notes[0]
    (item,) = rlc.stored("runs").items
    with closing(RunFolder.resume(path)):  # begun again since
        assert "another process" in found.delete([item])[0]
    Path(path, "journal.sqlite").write_bytes(b"damaged")
    assert "cannot be read" in rlc.stored("runs").notes[0]
    assert left.exists()
    with pytest.raises(rlc.Error, match="there is no folder"):
        rlc.stored("nowhere")


def test_checkpoints_on_a_service_are_kept_if_anything_names_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = made_up("first")
    Path("next.rl").write_text('weights = state("tinker://first-warmup/weights/named")')

    def stored_at(name: str, **metadata: str) -> StoredCheckpoint:
        return StoredCheckpoint(f"tinker://first-warmup/weights/{name}", 2 * 10**9, None, metadata)

    there = [
        stored_at("2", rlc_run="first", rlc_id=one),  # by its journal
        stored_at("named", rlc_run="first", rlc_id=one),  # by a recipe
        stored_at("old", rlc_run="first", rlc_id=one),
        stored_at("away", rlc_run="away", rlc_id="1234"),
        stored_at("same-name", rlc_run="first", rlc_id="5678"),  # of another machine
        stored_at("foreign"),  # not of rlc
    ]
    deleted = list[str]()
    monkeypatch.setattr(account, "stored_checkpoints", lambda *_: there)
    monkeypatch.setattr(account, "delete_stored", lambda path, *_: deleted.append(path))
    found = rlc.stored("runs")
    assert [item.path.rpartition("/")[2] for item in found.chosen()] == ["old"]
    assert main(["gc"]) == 0
    assert not deleted
    printed = capsys.readouterr().out
    assert "1 could be deleted, 2 GB, $0.20 a month" in printed
    assert "1 of the run away, which is not here (2 GB, $0.20 a month): --of away" in printed
    assert main(["gc", "--yes", "--of", "away", "--json"]) == 0
    assert [path.rpartition("/")[2] for path in deleted] == ["old", "away"]
    data = json.loads(capsys.readouterr().out)
    assert [item["chosen"] for item in data["items"]] == [True, True, False]


def test_what_a_copy_of_a_run_that_is_not_over_may_name_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"rlc_run": "first", "rlc_id": made_up("first")}
    later = StoredCheckpoint("tinker://first-main/weights/9", 10**9, None, known)
    monkeypatch.setattr(account, "stored_checkpoints", lambda *_: [later])
    assert rlc.stored("runs").chosen()
    with closing(RunFolder.resume(Path("runs/first"))) as folder:
        folder.set_state("interrupted")
    found = rlc.stored("runs")
    assert not found.chosen()
    assert [item.path for item in found.chosen(of=["first"])] == [later.path]
    assert main(["gc"]) == 0
    assert "1 of the run first, which is not over (1 GB, $0.10 a month)" in capsys.readouterr().out


def test_a_service_that_is_not_looked_at_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up("first")

    def refuse(*_: object) -> None:
        raise ServiceError("no key")

    monkeypatch.setattr(account, "stored_checkpoints", refuse)
    assert rlc.stored("runs").notes == ("the checkpoints on tinker are not looked at: no key",)
    assert rlc.stored("runs", services=[]).notes == ()
