"""What cannot be run is refused by name, in the recipe's words, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import RECIPES
from run_support import TINY, block, compiled, tiny, train

from rlc.compile.rehearse import rehearse
from rlc.runtime.preflight import require_runnable, unsupported
from rlc.runtime.records import RunError

RL = "train main { model = policy  env = arena  batch = groups(4)  advantage = grpo()\n"
RL += "sampling = sample(max_tokens = 16)  loss = ppo()  optimizer = adam(1e-5)  steps = 2 }\n"


def test_the_refusal_names_them_all() -> None:
    job = tiny(train(overlap="streamed()", aggregate="token_mean()", kl='reference("tiny", 0.1)'))
    with pytest.raises(RunError, match=r"`token_mean\(\)`.*; the mean distance"):
        require_runnable(job)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"overlap": "streamed()", "aggregate": "token_mean()"}, "`token_mean()` needs the whole"),
        ({"overlap": "streamed()", "kl": 'reference("tiny", 0.1)'}, "`kl = reference(…)` needs"),
        (
            {"overlap": "streamed()", "advantage": "rebn()", "batch": "turns(8)"},
            "`streamed()` cannot be combined with `turns()`",
        ),
        ({"overlap": "streamed()", "advantage": "rebn()"}, "`over = batch` in the advantage"),
        ({"track": '[wandb("p")]'}, "`wandb()` needs a package that is not here"),
        ({"track": "[tensorboard()]"}, "`tensorboard()` needs a package that is not here"),
    ],
)
def test_settings_that_cannot_be_run(
    fields: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert any(message in text for text in unsupported(tiny(train(**fields))))


def test_an_environment_without_an_oracle() -> None:
    sums = 'env sums = gem("rg:chain_sum") |> chat()\n'
    fields = {"model": "policy", "data": "demonstrations(sums, n = 4)", "steps": "1"}
    job = compiled(TINY + sums + block("sft", "warmup", fields | {"optimizer": "adam(1e-4)"}))
    assert unsupported(job) == ["`sums` has no oracle: take `policy = model`"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            'sft warmup {{ model = policy  data = rows("{path}")  steps = 1'
            "  optimizer = adam(1e-4) }}",
            "which `warmup` reads",
        ),
        (
            'env arena = gem("rg:chain_sum") |> template("{path}")\n'
            + RL.replace("{", "{{").replace("}", "}}"),
            "which `arena` reads",
        ),
    ],
)
def test_a_file_that_is_gone_is_missed_before_the_run(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / ("a.jsonl" if "rows" in text else "a.j2")
    path.write_text("{{ observation }}")
    job = compiled(TINY + text.format(path=path))
    path.unlink()
    with pytest.raises(RunError, match=f"there is no file {path}, {what}"):
        require_runnable(job)


def test_what_can_be_run_is_not_refused() -> None:
    for name in ("quickstart", "mixture", "spell_backward", "sudoku"):
        require_runnable(compiled((RECIPES / f"{name}.rl").read_text(encoding="utf-8")))
    overlap = "asynchronous(max_staleness = 1)"
    require_runnable(rehearse(tiny(train(overlap=overlap, loss="ppo()"))))
