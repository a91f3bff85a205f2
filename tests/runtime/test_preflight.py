"""What is missing when a run begins is named before anything is paid for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from attrs import evolve
from plan_recipes import recipe
from run_support import TINY, block, compiled, tiny, train

from rlc.catalog.packages import too_new
from rlc.compile.variants import rehearse
from rlc.explanation.summary import summary_text
from rlc.lang import Diagnostics
from rlc.plan.parts import TrackPlan
from rlc.plan.records import Plan
from rlc.plan.stages import Training
from rlc.runtime.records import RunError
from rlc.runtime.start import require_runnable

RL = "train main { model = policy  env = arena  batch = groups(4)  advantage = grpo()\n"
RL += "sampling = sample(max_tokens = 16)  loss = ppo()  optimizer = adam(1e-5)  steps = 2 }\n"


@pytest.mark.parametrize(
    ("tracker", "package"), [('wandb("p")', "wandb"), ("tensorboard()", "tensorboardX")]
)
def test_a_tracker_without_its_package(
    tracker: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == package else real(name)
    )
    name = tracker.partition("(")[0]
    message = rf"^packages are missing: `{name}\(\)` needs {package}$"
    with pytest.raises(RunError, match=message) as refused:
        require_runnable(tiny(train(track=f"[{tracker}]")))
    assert refused.value.hint == f"pip install {package}"


def test_a_version_that_is_too_old_is_named_with_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = {"tinker": "0.35.0", "tinker-cookbook": "0.5.8"}
    monkeypatch.setattr("rlc.catalog.packages._installed", versions.__getitem__)
    require_runnable(tiny(train()))
    own = "loss soft { token = -adv * log(1 + ratio) }\n"
    with pytest.raises(RunError, match=r"`soft` needs tinker>=0\.36 \(0\.35\.0 here\)") as refused:
        require_runnable(tiny(own, train(loss="soft")))
    assert refused.value.hint == "pip install 'tinker>=0.36'"


@pytest.mark.parametrize(
    ("python", "help"),
    [
        ((3, 12, 0, "final", 0), "pip install 'rlc[gem]'"),
        ((3, 12, 1, "final", 0), "gem-llm needs a Python from 3.11 to 3.12.0, and this is 3.12.1"),
    ],
)
def test_a_package_that_does_not_install_on_this_python(
    python: object, help: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    job = compiled(recipe("spell_backward"))
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "gem" else real(name)
    )
    monkeypatch.setattr("sys.version_info", python)
    with pytest.raises(RunError, match=r"needs gem-llm$") as refused:
        require_runnable(job)
    assert str(refused.value.hint).startswith(help)


@pytest.mark.parametrize(
    ("text", "reader"),
    [
        (
            'sft warmup {{ model = policy  data = rows("{path}")  steps = 1'
            "  optimizer = adam(1e-4) }}",
            "warmup",
        ),
        (
            'env arena = gem("rg:chain_sum") |> template("{path}")\n'
            + RL.replace("{", "{{").replace("}", "}}"),
            "arena",
        ),
    ],
)
def test_a_file_that_is_gone(tmp_path: Path, text: str, reader: str) -> None:
    path = tmp_path / ("a.jsonl" if "rows" in text else "a.j2")
    path.write_text("{{ observation }}")
    job = compiled(TINY + text.format(path=path))
    path.unlink()
    with pytest.raises(RunError, match=f"there is no file {path}, which `{reader}` reads"):
        require_runnable(job)


def test_a_tracker_without_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENREWARD_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)  # a login will do
    monkeypatch.setattr("importlib.util.find_spec", lambda _: pytest.__spec__)
    job = tiny(train())
    (stage,) = job.stages
    assert isinstance(stage, Training)
    uploads = TrackPlan("openreward_rollouts", {"run": "one"})
    metrics = TrackPlan("wandb", {"project": "p", "run": None})
    job = evolve(job, stages=(evolve(stage, track=(metrics, uploads)),))
    message = r"^`openreward_rollouts\(\)` needs OPENREWARD_API_KEY in the environment"
    with pytest.raises(RunError, match=message):
        require_runnable(job)


def test_agents_without_what_serves_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlc.envs.agents.find_spec", lambda package: package == "uvicorn" or None)
    job = compiled(recipe("agent"))  # its first stage needs no agent
    with pytest.raises(RunError, match=r"served with starlette.*pip install 'rlc\[serve\]'"):
        require_runnable(job)


def test_what_can_be_run_is_not_refused() -> None:
    of_gem = () if too_new("gem-llm") else ("mixture", "spell_backward", "sudoku")
    for name in ("quickstart", *of_gem):
        require_runnable(compiled(recipe(name)))
    overlap = "asynchronous(max_staleness = 1)"
    require_runnable(rehearse(tiny(train(overlap=overlap, loss="ppo()"))))


def test_a_budget_of_what_has_no_price_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text('{"prompt": "1 + 1"}\n', encoding="utf-8")

    def limited(base: str, prices: str) -> Plan:
        asked = f'endpoint("http://127.0.0.1:1/v1", model = "a-judge"{prices})'
        text = TINY.replace('"tiny"', f'"{base}" service = tinker renderer = qwen3_instruct')
        text += (
            f'env asked = rows("rows.jsonl") |> judged(rubric("Is it right?", model = {asked}))\n'
        )
        fields = {"model": "main", "env": "asked", "sampling": "sample(max_tokens = 8)"}
        held = block("eval", "held", fields | {"metrics": "[mean_reward()]"})
        return compiled(text + train(budget="$500") + held)

    known, prices = "Qwen/Qwen3.5-4B", ", prompt_price = $1, reply_price = $2"
    with pytest.raises(RunError, match="cannot be reached"):  # its budget can be kept
        require_runnable(limited(known, prices))
    for base, stated, name in (("vendor/New", prices, "vendor/New"), (known, "", "a-judge")):
        with pytest.raises(RunError, match=f"budget of stage `main` cannot be .* of `{name}` are"):
            require_runnable(limited(base, stated))
        unlikely = summary_text(limited(base, stated), Diagnostics())
        assert "$500.00 for main: it cannot be kept, for a price is unknown" in unlikely
