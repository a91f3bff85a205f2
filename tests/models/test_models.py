"""Trained models in use: asked, sampled from, evaluated, exported and taken in again."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from run_support import TINY, block, compiled, rollouts, run_new, train

import rlc
from rlc.cli.commands.models.eval import results_dict
from rlc.cli.main import main
from rlc.compile.overrides import WEIGHTS
from rlc.compile.recipe import load as compile_file
from rlc.models.evaluation import EvaluationError, evaluation_plan
from rlc.models.export import ExportError, export_model
from rlc.models.model import open_model
from rlc.models.named import named_model
from rlc.report.run_page import run_html
from rlc.service.chats.prompts import TooLongError
from rlc.service.interface import SamplingRequest

pytestmark = pytest.mark.engine

ASKED = "Guess a number between 1 and 10."


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose adapter is far from the base model."""
    path = tmp_path_factory.mktemp("runs") / "a"
    run_new(path, compiled(TINY + train(steps="2", optimizer="adam(3e-2)")))
    return path


def logprobs(name: str, text: str = "2 + 3 = 5, so", **more: Any) -> list[float]:
    """Those that a model gives to a text."""

    async def scored() -> list[float]:
        from tinker import types

        opened = await open_model(named_model(name, **more))
        tokens = opened.chats.client.get_tokenizer().encode(text)
        found = await opened.chats.client.compute_logprobs(types.ModelInput.from_ints(tokens))
        await opened.close()
        return [value for value in found if value is not None]

    return asyncio.run(scored())


def test_a_model_answers(trained: Path) -> None:
    with rlc.model(str(trained)) as model:
        assert (model.base, model.name) == ("tiny", f"{trained}@main:2")
        one = model.chat(ASKED, seed=1, max_tokens=12)
        assert one == model.chat([{"role": "user", "content": ASKED}], seed=1, max_tokens=12)
        parts: list[str] = []
        (reply,) = model.sample(ASKED, SamplingRequest(12, seed=1), on_text=parts.append)
        assert reply.text == "".join(parts).strip() == one.strip()
        assert len(reply.tokens) == len(reply.logprobs)
        assert model.sample(ASKED, max_tokens=12, seed=1)[0].text == reply.text
        with pytest.raises(TypeError, match="temprature"):
            model.sample(ASKED, temprature=0)
        all_replies = model.sample_all(
            [[{"role": "user", "content": ASKED}]] * 2, SamplingRequest(8, seed=1)
        )
        assert len(all_replies) == 2
        talk = model.conversation("Be brief.")
        talk.say(ASKED)
        assert len(talk.messages) == 2
        talk.undo()
        assert not talk.messages
        with pytest.raises(TooLongError, match="the context is 8,192"):
            model.chat("word " * 9_000)
    model.close()  # safe to call twice


def test_an_adapter_is_that_of_the_run_in_peft_and_back(trained: Path, tmp_path: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from rlc.service import tiny

    own = logprobs(str(trained))
    assert max(np.abs(np.subtract(own, logprobs("tiny")))) > 0.01
    folder = tmp_path / "adapter"
    export_model(named_model(str(trained)), folder)
    base: Any = AutoModelForCausalLM.from_pretrained(str(tiny.path()), dtype=torch.float32)
    with pytest.warns(UserWarning, match="tie_word_embeddings"):  # which merging takes care of
        theirs: Any = PeftModel.from_pretrained(base, str(folder)).eval()
    with rlc.model(str(trained)) as model:
        tokens = torch.tensor([model._opened.chats.client.get_tokenizer().encode("2 + 3 = 5, so")])
    with torch.no_grad():
        logits = theirs(tokens).logits[0, :-1].double().log_softmax(-1)
    found = logits.gather(1, tokens[0, 1:, None])[:, 0].numpy()
    np.testing.assert_allclose(found, own, atol=1e-5)
    np.testing.assert_allclose(logprobs(str(folder)), own, atol=1e-6)
    # Taken in and taken away again, it is the same to the bit.
    again = tmp_path / "again"
    text = TINY.replace("lora_rank = 4", f'weights = "{folder}"')
    nothing = train(steps="1", optimizer="adam(1e-30)")
    run_new(tmp_path / "b", compiled(text + nothing))
    export_model(named_model(str(tmp_path / "b")), again)
    one, two = (path / "adapter_model.safetensors" for path in (folder, again))
    from safetensors.numpy import load_file

    arrays = load_file(one)
    assert arrays.keys() == load_file(two).keys()
    for key, array in load_file(two).items():
        np.testing.assert_array_equal(array, arrays[key])


def test_merged_weights_are_a_model_of_their_own(trained: Path, tmp_path: Path) -> None:
    own = logprobs(str(trained))
    for dtype, error in (("float32", 1e-5), (None, 0.05)):  # that of the base model is bfloat16
        folder = tmp_path / f"merged-{dtype}"
        export_model(named_model(str(trained)), folder, "merged", dtype)
        found = logprobs(str(folder), renderer="qwen3_instruct")
        np.testing.assert_allclose(found, own, atol=error)


def test_a_card_says_how_a_model_was_made(trained: Path, tmp_path: Path) -> None:
    export_model(named_model(str(trained)), tmp_path / "a")
    card = (tmp_path / "a" / "README.md").read_text(encoding="utf-8")
    for part in ("base_model: tiny", "license: apache-2.0", "up to step 2 of `main`", "`guess`"):
        assert part in card
    assert os.stat(tmp_path / "a" / "adapter_model.safetensors").st_mode & 0o044


def test_what_cannot_be_exported(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="nothing that was trained"):
        export_model(named_model("tiny"), tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "file").write_text("", encoding="utf-8")
    with pytest.raises(ExportError, match="already has content"):
        export_model(named_model(str(trained)), tmp_path / "b")
    assert not (tmp_path / "a").exists()
    assert not list(tmp_path.glob(".*"))


def test_the_commands(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "2 + 2 =", "id": 1}\n{"prompt": "hi"}\n', encoding="utf-8")
    out = tmp_path / "replies.jsonl"
    drawn = ["-n", "2", "--seed", "1", "--max-tokens", "6", "--out", str(out)]
    assert main(["sample", str(trained), str(rows), *drawn, "--logprobs"]) == 0
    replies = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [(r["prompt"], r["sample"]) for r in replies] == [
        ("2 + 2 =", 0),
        ("2 + 2 =", 1),
        ("hi", 0),
        ("hi", 1),
    ]
    assert replies[0]["id"] == 1
    assert replies[0]["tokens"] == len(replies[0]["logprobs"])
    assert main(["sample", str(trained), str(rows), "--field", "question"]) == 2
    assert main(["sample", str(trained)]) == 2
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(trained), "-o", "taken"]) == 0
    said = capsys.readouterr().out
    assert 'weights = "./taken"' in said
    assert said.endswith("rlc chat taken\n")
    assert main(["export", str(trained), "-o", "with space", "--renderer", "role_colon"]) == 0
    assert capsys.readouterr().out.endswith("rlc chat 'with space' --renderer role_colon\n")
    few = ["--tasks", "2", "--run-dir", "quick", "--json"]
    assert main(["eval", str(trained), "--env", "guess", *few]) == 0
    printed = capsys.readouterr()
    (found,) = json.loads(printed.out)["runs"]  # and nothing else is printed there
    assert f"quick after step 0: mean_reward {found['results']['mean_reward']:.3f}" in printed.err
    assert main(["eval", str(trained), "--env", "spell_it"]) == 2
    assert "it has `guess`" in capsys.readouterr().err


def test_two_models_are_compared_on_the_same_tasks(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    more = ["--tasks", "4", "--samples", "2", "--run-dir", "a", "--quiet"]
    assert main(["eval", str(trained), "--env", "guess", *more, "--against", "tiny"]) == 0
    said = capsys.readouterr().out
    runs = [rollouts(tmp_path / name) for name in ("a", "a-against")]
    assert len({tuple(one["digest"] for one in run) for run in runs}) == 1
    means = [
        [fmean(one["reward"] for one in run if one["task"] == task) for task in range(4)]
        for run in runs
    ]
    differences = [mine - other for mine, other in zip(*means, strict=True)]
    assert any(differences)
    mine, other = map(fmean, means)
    error = stdev(differences) / 2
    expected = f"mean_reward {mine:.3f} against {other:.3f}: {mine - other:+.3f} ± {error:.3f}"
    assert f"  {expected}, of 4 tasks\n  pass@2 " in said
    assert f"\n{trained} against tiny (± the standard error of the difference)\n" in said
    data = results_dict([str(trained), "tiny"], [tmp_path / "a", tmp_path / "a-against"])
    assert [run["results"]["mean_reward"] for run in data["runs"]] == pytest.approx([mine, other])
    found = data["differences"][0]
    assert (found["metric"], found["tasks"]) == ("mean_reward", 4)
    assert found["difference"] == pytest.approx(mine - other)
    assert found["standard_error"] == pytest.approx(error)


def test_a_run_says_what_its_model_is_called(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{trained}@main:2"
    assert main(["runs", str(trained), "--json"]) == 0
    assert [run["model"] for run in json.loads(capsys.readouterr().out)] == [name]
    assert main(["runs", str(trained)]) == 0
    assert "@main:2" in capsys.readouterr().out
    assert f"model <code>{name}</code>" in run_html(trained)


def test_other_weights_are_started_from_without_editing_the_recipe(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "r.rl"
    text = TINY.replace("lora_rank = 4", "") + train(steps="1")
    recipe.write_text('model unused { base = "tiny" }\n' + text)
    plan = compile_file(str(recipe), (f"{WEIGHTS}={trained}",)).plan
    assert plan is not None
    assert os.path.normpath(tmp_path / str(plan.stages[0].model.weights)) == f"{trained}@main:2"
    assert plan.stages[0].model.lora_rank == 4
    assert plan.provenance["stages.main.model.weights"].startswith("--weights")
    for given, said in (("nowhere", "there is no folder"), (f"{trained}@main:9", "after step 9")):
        assert main(["run", str(recipe), "--weights", given]) == 1
        assert said in capsys.readouterr().err
    recipe.write_text('eval e { model = "tiny" }\n')
    main(["explain", str(recipe), "--weights", str(trained)])
    assert "trains a model that it declares" in capsys.readouterr().err


def test_the_evaluation_of_a_run_is_repeated(tmp_path: Path) -> None:
    held = {"model": "main", "env": "guess", "tasks": "3", "samples": "2", "every": "1"}
    held |= {"sampling": "sample(max_tokens = 9)", "metrics": "[pass_at(2)]"}
    run_new(tmp_path / "run", compiled(TINY + train(steps="1") + block("eval", "held", held)))
    model = named_model(str(tmp_path / "run"))
    for env in (None, "held"):
        (stage,) = evaluation_plan(model, env).evaluations
        assert (stage.tasks, stage.samples, stage.sampling.max_tokens) == (3, 2, 9)
        assert [(metric.name, metric.k) for metric in stage.metrics] == [("pass_at", 2)]
        assert (stage.after, stage.every, stage.envs[0].rollouts.group) == (None, None, 2)
    (stage,) = evaluation_plan(model, None, tasks=5, metrics=["mean_reward()"]).evaluations
    assert (stage.tasks, stage.samples) == (5, 2)
    assert [metric.name for metric in stage.metrics] == ["mean_reward"]
    (stage,) = evaluation_plan(model, "guess").evaluations
    assert (stage.tasks, stage.samples) == (64, 1)
    with pytest.raises(EvaluationError) as caught:
        evaluation_plan(model, "spell")
    assert caught.value.hint == "it has `held`, `guess`"
    with pytest.raises(EvaluationError, match="comes from no run that could be repeated"):
        evaluation_plan(named_model("tiny"), None)
    run_new(tmp_path / "bare", compiled(TINY + train(steps="1")))
    with pytest.raises(EvaluationError, match="the run has no `eval` stage, so") as caught:
        evaluation_plan(named_model(str(tmp_path / "bare")), None)
    assert caught.value.hint == "name it with --env: `guess`"
