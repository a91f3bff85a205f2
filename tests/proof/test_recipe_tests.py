"""`rlc test`: what a test sees, what it says when it fails, and that it changes nothing else."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from paths import RECIPES, ROOT
from run_support import TINY, train

import rlc
from rlc.catalog.declarations import TEST_FIELDS
from rlc.cli.main import main
from rlc.compile.recipe import compile_source, load
from rlc.lang.source import Source
from rlc.plan import plan_hash
from rlc.proof import RecipeTestResult, run_recipe_tests

pytestmark = pytest.mark.plain

PAGE = (ROOT / "docs" / "test.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
EXAMPLES = ROOT / "examples" / "test"
SUMS = 'env sums = rows("sums.jsonl", prompt = "question", grader = grade_with("sums.py:right"))'


@pytest.fixture
def sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(EXAMPLES, tmp_path / "sums")
    monkeypatch.chdir(tmp_path / "sums")
    monkeypatch.delitem(sys.modules, "sums", raising=False)
    return tmp_path / "sums"


def run_one(text: str, declared: str = "", **fields: str) -> RecipeTestResult:
    """The result of one test in a small recipe of the working directory."""
    Path("one.rl").write_text("\n".join([TINY, declared, train(**fields), text, ""]), "utf-8")
    (found,) = run_recipe_tests(["one.rl"]).results
    return found


def messages(found: RecipeTestResult) -> list[str]:
    return [item.message.partition(": ")[2] for item in found.findings]


def test_the_page_shows_its_files_and_a_failure(
    sums: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {path.name: path.read_text() for path in sums.iterdir()} == FILES
    (sums / "sums.py").write_text(FILES["sums.py"].replace("[-1:]", "[:1]"))
    ((command, shown),) = re.findall(
        r"<!-- printed -->\n```console\n\$ (.*?)\n(.*?)```", PAGE, re.DOTALL
    )
    assert main(shlex.split(command)[1:]) == 1
    seconds = re.compile(r"\d+\.\d+ s")
    assert seconds.sub("", capsys.readouterr().out) == seconds.sub("", shown)


@pytest.mark.slow
@pytest.mark.server
def test_every_recipe_passes_two_tests() -> None:
    """What needs data, keys, containers or servers is tested by its plan."""
    found = rlc.test(RECIPES)
    assert found, [item.message for item in found.findings]
    assert {one.state for one in found.results} == {"passed"}
    passed = [one.recipe for one in found.results]
    for path in (one for one in RECIPES.rglob("*.rl") if one.parent.name != "lib"):
        assert passed.count(str(path)) >= 2, path


def test_a_test_is_no_part_of_the_plan(sums: Path) -> None:
    alone = load("sums.rl").plan
    beside = load("sums.test.rl").plan
    text = (sums / "sums.rl").read_text().partition("test the_answer")[0]
    without = compile_source(Source(str(sums / "sums.rl"), text)).plan
    assert alone is not None
    assert beside is not None
    assert without is not None
    assert len({plan_hash(plan) for plan in (alone, beside, without)}) == 1


def test_only_files_of_tests_import_stages(sums: Path) -> None:
    text = 'import "sums.rl"\nparam more: int = 3\ntest small { expect = [main.steps == 40] }\n'
    found = compile_source(Source(str(sums / "other.rl"), text)).diagnostics
    assert "RL0311" in {item.code for item in found}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("task", "1", None),
        ("task", '{ question = "1?", answer = "3" }', '`reward("2")` is 0, not 1'),
        ("replies", '["3"]', "`reward` is 0, not 1"),
        ("replies", '["2"]', None),
    ],
)
@pytest.mark.usefixtures("sums")
def test_task_and_replies_decide_the_episode(field: str, value: str, message: str | None) -> None:
    expected = "reward == 1" if field == "replies" else 'reward("2") == 1'
    given = {"task": '{ question = "1 + 1?", answer = "2" }', field: value}
    if (field, value) == ("task", "1"):  # whichever of the two rows that is
        expected = 'reward("5") != reward("8")'
    lines = "  ".join(f"{name} = {text}" for name, text in given.items())
    found = run_one(f"test t {{ env = sums  {lines}  expect = [{expected}] }}", SUMS, env="sums")
    assert messages(found) == ([] if message is None else [message])


@pytest.mark.parametrize(
    ("judge", "earned"), [("0.75", 0.75), ("{ taste = 0 }", 0.0), ("[1, 0.5]", 1.0)]
)
def test_scores_of_judges_are_given(judge: str, earned: float, tmp_path: Path) -> None:
    shutil.copytree(RECIPES / "data", tmp_path / "data")
    text = (RECIPES / "judged.rl").read_text(encoding="utf-8").partition("# `rlc test`")[0]
    path = tmp_path / "judged.rl"
    tested = f'test t {{ env = words  judge = {judge}  expect = [reward("yes") == {earned}] }}'
    path.write_text(f"{text}\n{tested}\n", encoding="utf-8")
    assert rlc.test(path), rlc.test(path).findings


@pytest.mark.usefixtures("sums")
def test_a_failure_has_what_was_given_expected_and_found() -> None:
    found = run_one(
        """test t {
          env    = guess
          expect = [
            reward("\\\\boxed{11}") == 1,
            turns("\\\\boxed{11}", "\\\\boxed{11}") == 1,
            end("\\\\boxed{11}") == done,
            contains(prompt, "between 1 and 9"),
            reward.nothing("\\\\boxed{11}") == 1,
            main.steps == 3,
            main.loss.name == "ppo",
            contains(main.needs, "vllm"),
          ]
        }""",
        sampling="sample(max_tokens = 64)",
        steps="2",
    )
    assert found.state == "failed"
    told = messages(found)
    assert told[0].endswith("not 1")
    assert any("is unfinished, not done" in one or "is 2, not 1" in one for one in told)
    assert "`main.steps` is 2, not 3" in told
    assert '`main.loss.name` is "importance_sampling", not "ppo"' in told
    assert any('contains no "between 1 and 9"' in one for one in told)
    assert all(item.span is not None and item.code == "RL0855" for item in found.findings)
    assert 'given "\\\\boxed{11}"' in str(found.findings[0].help)


@pytest.mark.usefixtures("sums")
def test_what_a_run_would_cut_off_is_cut_off() -> None:
    long = "one two three four five six seven eight nine ten eleven twelve 2"
    row = '{ question = "1 + 1?", answer = "2" }'
    text = f'test t {{ env = sums  task = {row}  expect = [reward("{long}") == 1] }}'
    found = run_one(text, SUMS, env="sums", sampling="sample(max_tokens = 4)")
    assert "cut off at `max_tokens`" in str(found.findings[0].help)


@pytest.mark.usefixtures("sums")
def test_a_rehearsal_is_measured() -> None:
    text = "test t {{ rehearse = main  steps = {}  expect = [main.rollouts.played.sum == {}] }}"
    fields = {"batch": "groups(2, group_size = 2)", "steps": "9"}
    assert run_one(text.format(2, 8), **fields).state == "passed"
    failed = run_one(text.format(1, 8), **fields)
    assert messages(failed) == ["`main.rollouts.played.sum` is 4, not 8"]
    slow = "test t { rehearse = main  steps = 9  within = 0.001s  expect = [main.reward < 9] }"
    found = run_one(slow, **fields)
    assert [item.code for item in found.findings] == ["RL0856"]
    assert not Path("runs").exists()


def test_every_field_of_a_test_is_tried_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    for param in TEST_FIELDS:
        assert f"{param.name} = " in text or f'"{param.name}"' in text, param.name


def test_formats_and_exit_status(sums: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "-k", "plan", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["test"] for one in shown["tests"]] == ["the_plan_stays_small"]
    (sums / "sums.py").write_text("def right(reply, row):\n    print('noise')\n    return 0\n")
    assert main(["test", "-k", "answer", "--format", "junit"]) == 1
    suite = ElementTree.fromstring(capsys.readouterr().out)
    assert suite.attrib["failures"] == "1"
    assert "is 0, not 1" in suite[0][0].attrib["message"]
    assert main(["test", "-k", "answer", "--format", "github"]) == 1
    assert capsys.readouterr().out.startswith("::error file=sums.rl,line=")
    assert main(["test", "-k", "nothing_like_it"]) == 2
    assert "there is no test" in capsys.readouterr().err
    (sums / "sums.rl").write_text("train main {}\n")
    assert main(["test", "sums.rl"]) == 1
    assert "(the recipe has errors)" in capsys.readouterr().out


def test_code_that_has_changed_is_read_anew(sums: Path) -> None:
    """As an agent changes it, whose server goes on."""
    assert rlc.test("sums.rl", keyword="answer")
    (sums / "sums.py").write_text("def right(reply, row):\n    return 1\n")
    assert not rlc.test("sums.rl", keyword="answer")
