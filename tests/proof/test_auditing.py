"""`rlc audit` finds what rewards pay for nothing, and keeps what it found."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from audits_here import audit_here
from paths import RECIPES, ROOT
from scripted_judge import Script, judged_text, scripted_judge

import rlc
from rlc.catalog import TINY, audited
from rlc.cli.main import main
from rlc.proof.scripted import FileTokenizer
from rlc.service.tiny import path

pytestmark = pytest.mark.plain

PAGE = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
STAGE = """
train main {
  model = policy  env = sums  batch = groups(4, group_size = 4)  advantage = grpo()
  sampling = sample(max_tokens = 256)  loss = importance_sampling()
  optimizer = adam(1e-3)  steps = 2  budget = $1
}
"""
MODEL = 'model policy { base = "Qwen/Qwen3-8B" }\n'


@pytest.fixture
def sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "examples" / "grade", tmp_path / "sums")
    monkeypatch.chdir(tmp_path / "sums")
    monkeypatch.delitem(sys.modules, "sums", raising=False)
    return tmp_path / "sums"


def codes(env: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The findings about an environment, `sums`."""
    audit_here(monkeypatch)
    (folder / "recipe.rl").write_text(MODEL + env + STAGE, encoding="utf-8")
    return [one.code for one in rlc.audit(folder / "recipe.rl", keep=False).findings]


def test_a_result_counts_until_something_changes(
    sums: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audit_here(monkeypatch)
    recipe = sums / "sums.rl"
    with recipe.open("a") as file:
        file.write("expect main.audit.findings == 0\n")
    assert main(["check", "sums.rl"]) == 1
    assert "not all environments are audited" in capsys.readouterr().out
    assert main(["audit", "sums.rl"]) == 0  # a warning
    assert main(["check", "sums.rl"]) == 1
    assert "`rlc audit sums.rl` shows them" in capsys.readouterr().out
    code = sums / "sums.py"
    other = "from shortest import shortest\n" + code.read_text()
    code.write_text(other.replace("len(reply))", "max(len(reply), shortest()))"))
    helper = sums / "shortest.py"
    helper.write_text("def shortest():\n    return 1\n")
    sys.modules.pop("sums", None)
    assert main(["check", "sums.rl"]) == 1
    assert "not all environments are audited" in capsys.readouterr().out
    assert main(["audit", "sums.rl"]) == 0
    assert main(["check", "sums.rl"]) == 0
    capsys.readouterr()
    assert main(["explain", "sums.rl"]) == 0
    assert capsys.readouterr().err == "audit: 0 findings\n"
    helper.write_text(helper.read_text().replace("1", "0"))
    assert main(["check", "sums.rl"]) == 1
    helper.write_text(helper.read_text().replace("0", "1"))
    moved = shutil.copytree(sums, sums.parent / "elsewhere")
    monkeypatch.chdir(moved)
    assert main(["check", str(moved / "sums.rl")]) == 0
    monkeypatch.chdir(sums)
    with (sums / "sums.jsonl").open("a") as file:
        file.write('{"id": "c", "prompt": "What is 1 + 1?", "answer": "2"}\n')
    assert main(["check", "sums.rl"]) == 1
    (sums / ".rlc" / "audits" / "sums.json").write_text("[not json")  # no audit, and no mistake
    plan = rlc.load("sums.rl", set={"main.steps": 3}).compile().unmet
    assert plan is not None
    assert audited(plan.stages[0].environments, "sums.rl") == {"sums": None}


def test_the_page_shows_what_is_printed(
    sums: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audit_here(monkeypatch)
    ((command, shown),) = re.findall(
        r"<!-- audited -->\n```console\n\$ (.*?)\n(.*?)```", PAGE, re.S
    )
    assert main(shlex.split(command)[1:]) == 0
    *printed, last = capsys.readouterr().out.splitlines()
    assert "\n".join(printed) + "\n" == shown
    assert re.fullmatch(r"sums: 1 finding, \d+ replies in [\d.]+ s", last)


@pytest.mark.slow
def test_a_reply_that_ends_the_process_is_named(sums: Path) -> None:
    (sums / "sums.py").write_text(
        "import os\n\ndef right(reply, row):\n    if 'SystemExit' in reply:\n        os._exit(3)\n"
        "    return reply.strip() == row['answer']\n\ndef brief(reply, row):\n    return 1.0\n"
    )
    (found,) = rlc.audit("sums.rl", keep=False).findings
    assert (found.code, found.severity) == ("RL0694", "error")
    assert found.message == "a reply to `sums` ends the process in which it is graded"
    assert "SystemExit" in str(found.reply)
    (sums / "sums.py").write_text((sums / "sums.py").read_text() + "\nif os: os._exit(3)\n")
    (found,) = rlc.audit("sums.rl", keep=False).findings
    assert found.message == "the code of `sums` ends the process in which it is graded"
    assert found.reply is None


def test_a_reply_that_changes_what_grades_it_is_named(
    sums: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_here(monkeypatch)
    rows = ({"prompt": f"Write add{n}(a, b).", "answer": f"def add{n}(a, b): ..."} for n in "ab")
    (sums / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (sums / "sums.py").write_text(
        "def right(reply, row):\n    if 'isclose' in reply:\n        exec(reply, {})\n"
        "    return reply == row['answer']\n\ndef brief(reply, row):\n    return 1.0\n"
    )
    job = rlc.load("sums.rl", set={"main.sampling.max_tokens": 200})
    found = rlc.audit(job, keep=False).findings
    ((reply, severity),) = [(f.reply, f.severity) for f in found if "changes `math`" in f.message]
    assert str(reply).startswith("import math\nmath.isclose")
    assert severity == "error"


@pytest.mark.parametrize(
    ("grader", "answers", "found"),
    [
        ("numeric", ["42", "1,000", "3/4"], []),
        ("exact", ["Paris", "Rome", "Oslo"], []),
        ("math", ["x^2 + 1", "\\\\frac{1}{2}", "7"], []),
        ('regex("Answer: ([A-D])")', ["A", "B", "C"], []),
        ('regex("([A-D])")', ["A", "B", "C"], []),
        ('regex("answer is (\\\\d+)\\\\.$")', ["4", "17", "23"], []),
    ],
)
def test_every_grader_is_tried_with_its_own_reference(
    grader: str,
    answers: list[str],
    found: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = ({"question": f"Question {n}?", "answer": a} for n, a in enumerate(answers))
    lines = "".join(json.dumps(row).replace("\\\\\\\\", "\\\\") + "\n" for row in rows)
    (tmp_path / "rows.jsonl").write_text(lines, encoding="utf-8")
    env = f'env sums = problems("rows.jsonl", grader = {grader}, format_coef = 0)\n'
    assert codes(env, tmp_path, monkeypatch) == found


def test_countdown_is_tried_with_an_expression_that_is_worked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = "env sums = problems(countdown, grader = countdown)"
    assert codes(env + "\n", tmp_path, monkeypatch) == []
    duel = env + " |> solver_judge(solvers = 2)\n"
    assert codes(duel, tmp_path, monkeypatch) == []


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ("rg:puzzle24", {"RL0691"}),  # any text earns 1
        ("rg:game_of_life", {"RL0696"}),  # any board .9
        ("rg:chain_sum", set()),
    ],
)
def test_weak_scorers_of_gem_are_found(
    env: str, found: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (
        f'env sums = gem("{env}", size = 20) |> chat(instruction = "Put it in \\\\boxed{{}}.")\n'
    )
    assert set(codes(asked, tmp_path, monkeypatch)) == found


def test_a_judge_is_not_told_by_replies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "Hello?"}\n' * 2)
    text = 'model big { base = "Qwen/Qwen3-8B" }\njudge good = rubric("Is it good?", model = big)\n'
    for how in ("judged(good)", "compared(good)", "compared(good, by = pairwise)"):
        env = f'{text}env sums = rows("rows.jsonl") |> {how}\n'
        assert codes(env, tmp_path, monkeypatch) == []
        (one,) = rlc.audit(tmp_path / "recipe.rl", keep=False).environments
        assert one.key
    # A judge whose question and answer lets verdicts of a reply through is found.
    monkeypatch.setattr("rlc.data.texts.untagged", lambda text: text)
    env = f'{text}env sums = rows("rows.jsonl") |> judged(good)\n'
    monkeypatch.setattr(
        "rlc.envs.judges.judging.read_scores",
        lambda answer, **_: {"": float(re.findall(r"<score>([\d.]+)", answer)[0]) / 10},
    )
    assert codes(env, tmp_path, monkeypatch) == ["RL0690"]


@pytest.mark.slow
@pytest.mark.engine
def test_tasks_of_harbor_are_tried_with_their_solutions_and_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = shutil.copytree(RECIPES / "data" / "harbor", tmp_path / "tasks")
    env = 'env sums = harbor("tasks/*", runtime = "subprocess", turns = 3)\n'
    assert codes(env, tmp_path, monkeypatch) == []
    first, second, *_ = sorted(tasks.iterdir())
    (first / "solution" / "solve.sh").write_text("true\n")
    test = second / "tests" / "test.sh"
    test.write_text("echo 1 > /logs/verifier/reward.txt\n")
    found = {one.code: one.message for one in rlc.audit(tmp_path / "recipe.rl").findings}
    assert f"the solution of `{first.name}` itself earns 0" in found["RL0692"]
    assert f"`{second.name}` earns 1 when nothing was done" in found["RL0690"]


def _essays(folder: Path, url: str, price: str = "$1") -> str:
    (folder / "rows.jsonl").write_text('{"prompt": "Hello?"}\n{"prompt": "Well?"}\n')
    model = f'endpoint("{url}", model = "judge-1", prompt_price = {price}, reply_price = $10)'
    return (
        f'judge good = rubric("Is it good?", model = {model}, scale = [0, 10])\n'
        'env sums = rows("rows.jsonl") |> judged(good)\n'
    )


@pytest.mark.server
@pytest.mark.parametrize(
    ("said", "found"),
    [
        (lambda body, _: "9" if "highest score" in judged_text(body)[0] else "2", ["RL0690"]),
        (lambda *_: "2", []),
    ],
)
def test_judges_themselves_are_asked_within_a_budget(
    said: Script,
    found: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with scripted_judge(lambda *given: f"<score>{said(*given)}</score>") as judge:
        assert codes(_essays(tmp_path, judge.url), tmp_path, monkeypatch) == []
        assert not judge.asked
        recipe = str(tmp_path / "recipe.rl")
        asked = ["audit", recipe, "--budget", "0.50", "--format", "json"]
        assert main(asked) == len(found)
        printed = capsys.readouterr()
        assert "the judges of sums are asked about replies, for up to $0.50" in printed.err
        (one,) = json.loads(printed.out)["environments"]
        assert [each["code"] for each in one["findings"]] == found
        spent = f"{len(judge.asked) * (100 * 1 + 10 * 10) / 1e6:.4f}"
        assert f"its judges were asked about 16 replies, for ${spent}" in one["notes"]
        before = len(judge.asked)
        small = rlc.audit(recipe, budget=0.02, keep=False).environments[0]
        assert "a judge was not asked: the budget has no room for more" in small.notes
        assert 0 < len(judge.asked) - before < before


@pytest.mark.server
@pytest.mark.slow
def test_a_judge_on_the_service_is_asked_and_metered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine_tinker import engine_tinker

    monkeypatch.setenv("TINKER_API_KEY", "tml-x")
    tiny = "rlc.service.hosted.clients.own_tokenizer"  # that of the model would be downloaded
    monkeypatch.setattr(tiny, lambda *_: FileTokenizer(TINY, Path(path())))
    big = 'model big { base = "Qwen/Qwen3-8B"  renderer = qwen3_instruct }\n'
    judge = f'{big}judge good = rubric("Is it?", model = big)\n'
    env = f'{judge}env sums = rows("rows.jsonl") |> judged(good)\n'
    (tmp_path / "rows.jsonl").write_text('{"prompt": "Hello?"}\n{"prompt": "Well?"}\n')
    codes(env, tmp_path, monkeypatch)
    with engine_tinker(tmp_path / "server") as server:
        audit = rlc.audit(tmp_path / "recipe.rl", budget=1.0, keep=False, base_url=server.url)
        assert server.asked("asample")
    notes = audit.environments[0].notes
    assert any(re.search(r"\$0\.0*[1-9]", note) for note in notes), notes
    assert any("a judge gave no score: " in note for note in notes)  # the tiny model says anything


@pytest.mark.server
def test_what_cannot_be_asked_spends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted_judge(lambda *_: "2") as judge:
        assert codes(_essays(tmp_path, judge.url, "none"), tmp_path, monkeypatch) == []
        one = rlc.audit(tmp_path / "recipe.rl", budget=1.0, keep=False).environments[0]
        assert not judge.asked
        assert any("asked about 0 replies, for $0.0000" in note for note in one.notes)
        assert "a judge was not asked: its price is not known" in one.notes
    with pytest.raises(SystemExit):
        main(["audit", "recipe.rl", "--budget", "nothing"])
    (tmp_path / "recipe.rl").write_text(
        MODEL + "env sums = problems(countdown, grader = countdown)\n" + STAGE
    )
    with pytest.raises(rlc.Error, match="no judge of the recipe can be asked"):
        rlc.audit(tmp_path / "recipe.rl", budget=1.0)


def test_what_cannot_be_opened_is_not_audited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_here(monkeypatch)
    env = 'env sums = openenv("http://127.0.0.1:9")\n'
    (tmp_path / "recipe.rl").write_text(MODEL + env + STAGE, encoding="utf-8")
    (one,) = rlc.audit(tmp_path / "recipe.rl").environments
    assert (one.key, one.findings) == ("", ())
    assert "not audited" in one.notes[0]
    plan = rlc.load(tmp_path / "recipe.rl").plan()
    assert audited(plan.stages[0].environments, plan.recipe) == {"sums": None}


def test_what_takes_too_long_is_not_kept(
    sums: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audit_here(monkeypatch)
    code = (sums / "sums.py").read_text()
    slow = code.replace("    return min", "    import time\n\n    time.sleep(0.5)\n    return min")
    (sums / "sums.py").write_text(slow)
    found = rlc.audit("sums.rl", seconds=0.1)  # of which the helper makes a second
    assert "not all was tried" in found.environments[0].notes[0]
    assert not (sums / ".rlc").exists()
    for wrong in ("0", "x", "1e9"):
        with pytest.raises(SystemExit):
            main(["audit", "sums.rl", "--seconds", wrong])
    assert "Traceback" not in capsys.readouterr().err
