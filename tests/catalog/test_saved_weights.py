"""The weights that an earlier run or another program has left, by the names people give them."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from adapters import write_adapter
from attrs import evolve
from run_support import TINY, compiled, train

from rlc.catalog.saved_weights import WeightsError, find_weights
from rlc.compile.recipe import compile_source
from rlc.data.journal import best_key
from rlc.lang.source import Source
from rlc.models.named import named_model
from rlc.plan.records import Plan
from rlc.plan.stages import Training
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.start import require_runnable

RECIPE = TINY + train("first", save="every(2, ttl = 7d)") + train(model="first")


def left(path: Path, plan: Plan | None = None, best: int | None = None) -> Path:
    """The folder of a run that has left states of two stages."""
    with closing(RunFolder.create(path, plan or compiled(RECIPE))) as folder:
        for stage, steps in (("first", [2, 4]), ("main", [2, 3])):
            for step in steps:
                name = f"{stage}-{step:06d}"
                file = path / "checkpoints" / "model-1" / "weights" / f"{name}.safetensors"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(b"")
                folder.journal.add_checkpoint(stage, step, f"local://model-1/weights/{name}")
        if best is not None:
            folder.journal.set_meta(**{best_key("main"): str(best)})
    return path


@pytest.mark.parametrize(
    ("name", "exactly", "chosen"),
    [
        ("", "@main:3", "the last of `main`"),
        ("@main", "@main:3", "the last of `main`"),
        ("@main:last", "@main:3", "the last of `main`"),
        ("@main:2", "@main:2", ""),
        ("@first", "@first:4", "the last of `first`"),
    ],
)
def test_a_run_is_named_by_its_folder(tmp_path: Path, name: str, exactly: str, chosen: str) -> None:
    path = left(tmp_path / "run")
    found = find_weights(f"{path}{name}")
    assert (found.exactly, found.chosen) == (exactly, chosen)
    stage, step = exactly[1:].split(":")
    state = f"{stage}-{int(step):06d}.safetensors"
    assert found.place == str(path / "checkpoints" / "model-1" / "weights" / state)
    assert (found.base, found.rank, found.service) == ("tiny", 4, "local")
    assert find_weights(f"{path}{exactly}") == evolve(found, chosen="")


def test_the_best_state_comes_first_where_it_is_kept(tmp_path: Path) -> None:
    path = left(tmp_path / "run", best=2)
    for name in ("", "@main", "@main:best"):
        assert find_weights(f"{path}{name}").exactly == "@main:2"
    assert find_weights(f"{path}@main:last").exactly == "@main:3"
    assert find_weights(f"{path}@first").exactly == "@first:4"


def test_a_run_that_was_moved(tmp_path: Path) -> None:
    path = left(tmp_path / "run")
    moved = tmp_path / "elsewhere" / "run@2"
    moved.parent.mkdir()
    shutil.move(path, moved)
    assert find_weights(str(moved)).exactly == "@main:3"
    assert Path(find_weights(str(moved)).place).is_file()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("@main:7", "no state of `main` after step 7"),
        ("@other", "no training stage `other`"),
        ("@first:best", "no best state of `first`"),
    ],
)
def test_what_a_run_has_not_left(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        find_weights(f"{left(tmp_path / 'run')}{name}")


def test_a_run_without_states_one_that_is_damaged_and_a_state_that_is_gone(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "new", compiled(RECIPE)).close()
    with pytest.raises(WeightsError, match="has left no state yet"):
        find_weights(str(tmp_path / "new"))
    path = left(tmp_path / "run")
    Path(find_weights(str(path)).place).unlink()
    with pytest.raises(WeightsError, match="@main:3 is gone"):
        find_weights(str(path))
    (path / "journal.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(WeightsError, match="cannot be read"):
        find_weights(str(path))
    (path / "plan.json").write_text("[]", encoding="utf-8")
    with pytest.raises(WeightsError, match="cannot be read"):
        find_weights(str(path))
    for nothing in (tmp_path, tmp_path / "none", tmp_path / "none@main:2"):
        with pytest.raises(WeightsError, match=r"no folder|the folder of no"):
            find_weights(str(nothing))


def test_a_state_that_has_expired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = left(tmp_path / "run")
    now = __import__("time").time()
    monkeypatch.setattr("rlc.catalog.saved_weights.time.time", lambda: now + 8 * 86_400)
    assert find_weights(f"{path}@main").exactly == "@main:3"  # kept for ever
    with pytest.raises(WeightsError, match="@first:4 has expired: it was kept for 7 d"):
        find_weights(f"{path}@first")


def test_an_adapter_of_peft(tmp_path: Path) -> None:
    found = find_weights(str(write_adapter(tmp_path / "a", rank=16)))
    assert (found.exactly, found.rank, found.base) == ("", 16, "tiny")
    assert found.trains == {"train_mlp": True, "train_attn": True, "train_unembed": True}
    for config, message in (
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 2}}, "different ranks"),
        ({"peft_type": "IA3"}, "no LoRA adapter"),
    ):
        folder = write_adapter(tmp_path / "b", **config)
        with pytest.raises(WeightsError, match=message):
            find_weights(str(folder))


def model_of(text: str) -> Training:
    result = compile_source(Source("recipe.rl", text), {}, 1)
    assert result.plan is not None, result.diagnostics
    stage = result.plan.stages[0]
    assert isinstance(stage, Training)
    return stage


def test_a_model_takes_what_it_leaves_open_from_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = TINY.replace("lora_rank = 4", "lora_rank = 4 train_unembed = false")
    left(Path("runs/a"), compiled(tiny + train("first") + train(model="first")))
    text = TINY.replace("lora_rank = 4", 'weights = "runs/a"') + train()
    model = model_of(text).model
    assert (model.weights, model.lora_rank) == ("runs/a@main:3", 4)
    assert (model.train_unembed, model.train_mlp) == (False, True)


@pytest.mark.parametrize(
    ("asked", "exactly"),
    [
        ("runs/a", "runs/a@main:2"),
        ("runs/a@main", "runs/a@main:2"),
        ("runs/a@main:last", "runs/a@main:3"),
        ("runs/a@first", "runs/a@first:4"),
        ("runs/b@2@main", "runs/b@2@main:3"),
    ],
)
def test_what_a_plan_and_the_command_line_name_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, exactly: str
) -> None:
    """A stage without a step is its best state where that is kept, else its last."""
    monkeypatch.chdir(tmp_path)
    left(Path("runs/a"), best=2)
    left(Path("runs/b@2"))
    result = compile_source(
        Source("b.rl", TINY.replace("lora_rank = 4", f'weights = "{asked}"') + train()), {}, 1
    )
    assert result.plan is not None, result.diagnostics
    assert result.plan.stages[0].model.weights == exactly
    assert named_model(asked).weights == exactly
    require_runnable(result.plan)


def test_weights_are_seen_from_the_file_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    left(Path("runs/a"))
    text = TINY.replace("lora_rank = 4", 'weights = "runs/a@first:2"') + train()
    (tmp_path / "recipes").mkdir()
    result = compile_source(Source("recipes/b.rl", text), {}, 1)
    (finding,) = result.diagnostics
    assert finding.code == "RL0330"
    assert finding.help == 'as seen from this file it is "../runs/a@first:2"'
    stage = compile_source(Source("recipes/b.rl", text.replace("first:2", "first")), {}, 1)
    assert stage.diagnostics[0].help == 'as seen from this file it is "../runs/a@first"'
    fixed = text.replace("runs/a", "../runs/a")
    plan = compile_source(Source("recipes/b.rl", fixed), {}, 1).plan
    assert plan is not None
    assert plan.stages[0].model.weights == "../runs/a@first:2"
