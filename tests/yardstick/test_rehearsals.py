"""Every recipe of the yardstick, rehearsed on the tiny model with stand-ins for what it loads."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_support import metrics, run_new, shortened
from spending import bounded
from yardstick import YARDSTICK, no_hub, standing_in

from rlc.compile.recipe import compile_source
from rlc.compile.variants import rehearse
from rlc.lang.source import Source
from rlc.runtime.start import require_runnable

pytestmark = [pytest.mark.plain, pytest.mark.slow]

PACKAGES = ("verifiers", "textarena")  # not everywhere, by the name of their source


@pytest.mark.parametrize("name", sorted(path.stem for path in YARDSTICK.glob("*.rl")))
def test_a_recipe_rehearses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    file = YARDSTICK / f"{name}.rl"
    text = file.read_text("utf-8")
    for package in PACKAGES:
        if f"{package}(" in text:
            pytest.importorskip(package)
    plan = compile_source(Source(str(file), standing_in(text))).plan
    assert plan is not None
    no_hub(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)  # data and modules are found beside the recipe
    job = shortened(rehearse(plan))
    require_runnable(job)
    with bounded(job):
        assert run_new(tmp_path / "run", job).state == "finished"
    for stage in job.stages:
        assert metrics(tmp_path / "run", stage.name), f"nothing is known of {stage.name}"
