"""`rlc grade` makes of a reply what a run makes of it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from attrs import evolve
from paths import ROOT
from run_support import rollouts, tiny, train, undisturbed

import rlc
from rlc.catalog.facts import find_model, model_names
from rlc.chat.prompts import fitting_renderer
from rlc.cli.main import main
from rlc.errors import Error
from rlc.proof import grade
from rlc.proof.scripted import StandInTokenizer, fitting_or_plain

pytestmark = pytest.mark.plain

PAGE = (ROOT / "docs" / "grade.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
EXAMPLES = ROOT / "examples" / "grade"


@pytest.fixture
def sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(EXAMPLES, tmp_path / "sums")
    monkeypatch.chdir(tmp_path / "sums")
    monkeypatch.delitem(sys.modules, "sums", raising=False)
    return tmp_path / "sums"


def test_the_page_shows_its_files_and_what_is_printed(
    sums: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {path.name: path.read_text() for path in sums.iterdir()} == FILES
    printed = re.findall(r"<!-- printed -->\n```console\n\$ (.*?)\n(.*?)```", PAGE, re.DOTALL)
    assert len(printed) == 2
    for command, shown in printed:
        status = main(shlex.split(command)[1:])
        assert capsys.readouterr().out.replace(f"{sums}/", "") == shown
        assert status == int("Traceback" in shown)


@pytest.mark.parametrize("env", ["guess", "spell"])
def test_a_run_makes_the_same_of_the_same_replies(env: str) -> None:
    """Each episode of a run, played again from its replies alone, has the same observations,
    rewards, metrics and end."""
    fields = {"env": env, "steps": "1", "batch": "groups(3, group_size = 3)"}
    job = tiny(train(**fields))
    played = rollouts(undisturbed(job))
    assert len(played) == 9
    for number in {record["task"] for record in played}:
        group = [record for record in played if record["task"] == number]
        replies = [[turn["action"] for turn in record["turns"]] for record in group]
        graded = grade(job, replies, env, number)
        for record, episode in zip(group, graded.episodes, strict=True):
            assert episode.reward == record["reward"]
            assert episode.ended == record["ended"]
            for turn, seen in zip(record["turns"], episode.turns, strict=True):
                assert (seen.observation, seen.reply) == (turn["observation"], turn["action"])
                assert (seen.reward, dict(seen.metrics)) == (turn["reward"], turn["metrics"])


def test_every_renderer_shows_its_chats_without_a_tokenizer_of_its_own() -> None:
    """The stand-in keeps every mark of every model's format one token, and loses no letter."""
    known = {model.renderers: base for base in model_names() if (model := find_model(base))}
    plain = set[str]()
    for renderers, base in known.items():
        for name in renderers:
            words = StandInTokenizer(base)
            planned = evolve(tiny(train()).stages[0].model, base=base, renderer=name)
            chosen = fitting_or_plain(planned, words)
            plain |= {name} if chosen != name else set()
            renderer = fitting_renderer(words, chosen)
            prompt = renderer.build_generation_prompt([{"role": "user", "content": "a ß 数 🙂\t1"}])
            assert "a ß 数 🙂\t1" in words.decode(prompt.to_ints())
    # It needs a tokenizer of its own; the others are newer than the package that is installed.
    assert {name for name in plain if not name.startswith("kimi_k31")} == {"tml_v0"}


def test_a_conversation_that_goes_on_shows_what_was_said_last() -> None:
    episode = rlc.grade(str(ROOT / "recipes/quickstart.rl"), [["\\boxed{5}"]]).episodes[0]
    assert (episode.reward, episode.ended) == (None, "unfinished")
    assert "the target number is lower than 5" in (episode.waiting or "")
    assert "number between 1 and 10" in episode.prompt
    (whole,) = rlc.grade(
        str(ROOT / "recipes/quickstart.rl"), [["\\boxed{5}", "\\boxed{3}"]]
    ).episodes
    assert whole.solved
    assert [turn.reward for turn in whole.turns] == [0, 1]


def test_judges_say_what_they_are_told_to() -> None:
    compared = str(ROOT / "recipes/compared.rl")
    group = rlc.grade(compared, ["one", "two", "three"], judge=[0.5, 1, 0])
    assert [one.components["better"] for one in group.episodes] == [0.5, 1, 0]
    assert [one.components["brief"] for one in group.episodes] == pytest.approx([0.1, 0.2, 0])
    assert [one.rank for one in group.episodes] == [2, 1, 3]
    unasked = rlc.grade(compared, ["one", "two"]).episodes[0]
    assert "as judge `" in str(unasked.error)
    assert "say with `judge` what it says" in str(unasked.error)
    assert unasked.reward is None


def test_solvers_and_seats_have_conversations_of_their_own() -> None:
    row = {"nums": [2, 3, 4], "target": 14}
    duel = str(ROOT / "recipes/solver_judge.rl")
    said = ["<answer>2 + 3</answer>", "<answer>2 + 3 * 4</answer>", "<answer>2</answer>"]
    graded = rlc.grade(duel, said, env="duel", task=row)
    assert [(one.role, one.solved) for one in graded.episodes] == [
        ("solver", False),
        ("solver", True),
        ("judge", True),
    ]
    tug = rlc.grade(str(ROOT / "recipes/self_play.rl"), [["[3]", "[3]"], ["[1]", "[1]"]])
    assert len(tug.episodes) == 2
    assert all(one.ended == "done" for one in tug.episodes), tug


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--env", "summs", "--reply", "5"], "did you mean `sums`"),
        (["--task", "{", "--reply", "5"], "neither a number nor JSON"),
        (["--task", "[1]", "--reply", "5"], "a row as an object"),
        (["--task", "-1", "--reply", "5"], "tasks count from 0"),
        (["--task", '{"q": 1}', "--reply", "5"], "the row"),
        (["--task", '{"prompt": "\\ud800", "answer": "5"}', "--reply", "5"], "half of a character"),
        (["--task", "{}", "--reply", "5"], "it has none"),
        (["--reply", "\udcff"], "half of a character"),
        (["--reply", "@nothing.txt"], "No such file"),
        (["--reply", "5", "--judge", "0.5"], "`sums` asks no judge"),
        (["--reply", "5", "--judge", "7"], "from 0 to 1"),
        (["--reply", "5", "--judge", "a=b"], "numbers from 0 to 1"),
        (["--reply", "5", "--judge", "0.1", "--judge", "0.2"], "2 scores of a judge"),
    ],
)
def test_mistakes_say_what_to_do(
    arguments: list[str], said: str, sums: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["grade", str(sums / "sums.rl"), *arguments]) in (1, 2)
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


def test_a_recipe_with_mistakes_is_not_played(
    sums: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sums / "sums.rl").write_text((sums / "sums.rl").read_text().replace("grpo()", "grpa()"))
    for command in (["grade", "sums.rl", "--reply", "5"], ["audit", "sums.rl"]):
        assert main(command) == 1
        told = capsys.readouterr().err
        assert told.startswith("error[RL")
        assert "did you mean `grpo`" in told
    assert main(["audit", "sums.rl", "--format", "github"]) == 1
    assert capsys.readouterr().out.startswith("::error")


def test_replies_are_read_from_files(sums: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sums / "reply.txt").write_text("It is 5\n")
    (sums / "turns.json").write_text('["5", "no more"]')
    given = ["--reply", "@reply.txt", "--reply", "@turns.json", "--json"]
    assert main(["grade", "sums.rl", *given]) == 0
    first, second = json.loads(capsys.readouterr().out)["episodes"]
    assert [turn["reply"] for turn in first["turns"]] == ["It is 5"]
    assert [turn["reply"] for turn in second["turns"]] == ["5"]  # it ends with its only turn


def test_a_limit_ends_an_episode_as_in_a_run(sums: Path) -> None:
    recipe = rlc.load("sums.rl", set={"main.sampling": "sample(max_tokens = 3)"})
    (episode,) = rlc.grade(recipe, "1 2 3 4 5").episodes
    assert episode.turns[0].stop_reason == "length"
    assert episode.reward == 0
    with pytest.raises(Error, match="no reply"):
        rlc.grade(recipe, [])
