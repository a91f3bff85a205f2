"""The pages of `rlc explain CODE`: wrong examples are wrong in that way, right ones are right."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from adapters import write_adapter
from audits_here import audit_here
from page_examples import complete
from paths import RECIPES, ROOT

from rlc.cli.main import main
from rlc.compile.recipe import compile_source
from rlc.data.reading import Reader
from rlc.lang import Source, code_titles, page, render_page
from rlc.lang.pages import Example

RECIPE = complete("train main {\n  …\n}\n")
EVALUATED = "eval heldout {\n  model = main\n  env = guess\n  metrics = [mean_reward()]\n}\n"
TESTED = ("RL0855", "RL0856")  # found by `rlc test`, which makes prompts as a run does
FOLDER = ROOT / "rlc" / "lang" / "pages"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the examples speak of."""
    folder = tmp_path_factory.mktemp("workplace")
    (folder / "recipes").mkdir()
    (folder / "locked").mkdir()
    (folder / "lib").mkdir()
    for place in (folder, folder / "recipes", folder / "locked"):
        (place / "recipe.rl").write_text(RECIPE, encoding="utf-8")
    (folder / "weights.safetensors").write_bytes(b"\x08\x00\xff\xfe")
    (folder / "rollouts.jsonl").write_text("{}\n" * 400_000, encoding="utf-8")
    for empty in ("empty.rl", "empty.md"):
        (folder / empty).write_text("\n", encoding="utf-8")
    policy = 'model policy {\n  base      = "tiny"\n  lora_rank = 8\n}\n'
    (folder / "lib" / "qwen.rl").write_text(policy, encoding="utf-8")
    stage = RECIPE[: RECIPE.index("model policy")].replace("main", "inner")
    (folder / "lib" / "stage.rl").write_text(stage, encoding="utf-8")
    (folder / ".rlc" / "providers").mkdir(parents=True)
    (folder / ".rlc" / "providers" / "misspelt.json").write_text('{"loses": ["ppo"]}')
    write_rows(folder)
    write_adapter(folder / "adapters" / "sums")
    for name in ("fails", "works"):
        text = complete(
            f'env own = python("{name}.py:make")\ntrain main {{\n  env = own\n  …\n}}\n'
        )
        (folder / f"{name}.rl").write_text(text, encoding="utf-8")
    for name in ("anywhere", "alone", "form", "same", "raises", "chance", "floor"):
        text = complete(
            f'env own = rows("prompts.jsonl", grader = grade_with("graders.py:{name}"))\n'
            "train main {\n  env = own\n  …\n}\n"
        )
        (folder / f"{name}.rl").write_text(text, encoding="utf-8")
    unread = 'env own = gem("game:GuessTheNumber-v0-easy") |> chat() |> rollouts(max_turns = 2)\n'
    text = complete(unread + "train main {\n  env = own\n  …\n}\n")
    (folder / "unread.rl").write_text(text, encoding="utf-8")
    for name in ("uncentred", "centred"):
        text = complete(f'train main {{\n  advantage = python("credit.py:{name}")\n  …\n}}\n')
        (folder / f"{name}.rl").write_text(text, encoding="utf-8")
    tracked = complete('train main {\n  track = wandb(project = "guess")\n  …\n}\n')
    tested = 'test strict {{\n  env    = sums\n  expect = [reward("0") == {}]\n}}\n'
    sums = 'env sums = problems("sums.jsonl", grader = exact, shuffle = false)\n'
    for name, earned in (("fair", 1), ("unfair", 0)):
        text = f"{sums}train main {{\n  env = sums\n  …\n}}\n{tested.format(earned)}"
        (folder / f"{name}.rl").write_text(complete(text), encoding="utf-8")
    text = 'env sums = python("fails.py:make")\ntrain main {\n  env = sums\n  …\n}\n'
    text += tested.format(0)
    (folder / "breaks.rl").write_text(complete(text), encoding="utf-8")
    (folder / "tracked.rl").write_text(tracked, encoding="utf-8")
    (folder / "stages.rl").write_text(RECIPE + EVALUATED, encoding="utf-8")
    shell = complete('env guess = harbor("tasks/*")\ntrain main {\n  env = guess\n  …\n}\n')
    (folder / "shell.rl").write_text(shell, encoding="utf-8")
    shutil.copytree(RECIPES / "data" / "harbor", folder / "tasks")
    return folder


@pytest.fixture
def workplace(code: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That folder as the one to work in; a copy of it where an example is commands, which write."""
    shown = page(code)
    assert shown is not None
    if any(example.language != "rl" for example in (shown.wrong, shown.right)):
        made = shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(made)
    wrong = {"wandb": "not installed here"}
    audit_here(monkeypatch)
    monkeypatch.setattr("rlc.check.rules.code.lacking", wrong.get)
    monkeypatch.setattr("rlc.data.commands.is_command", lambda name: name == "python")

    real = tempfile.mkstemp

    def make(suffix: str, dir: str) -> tuple[int, str]:
        if dir.endswith("locked"):  # root may write anywhere: the folder's rights would not do
            raise PermissionError(13, "Permission denied", dir)
        return real(suffix=suffix, dir=dir)

    monkeypatch.setattr(tempfile, "mkstemp", make)


def write_rows(folder: Path) -> None:
    """The data that the examples name: sums, and what can be wrong with them."""
    sums = [{"question": f"{n} + {n} = ?", "answer": str(2 * n)} for n in range(32)]
    gaps = [*sums, {"question": "1 + 1 = ?", "answer": ""}]
    lists = [*sums, {"question": [1, 1], "answer": "2"}]
    prompts = [{"prompt": row["question"], "answer": row["answer"]} for row in sums]
    asked, said = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}
    pairs = [{"prompt": f"{n}?", "chosen": str(n), "rejected": f"no {n}"} for n in range(32)]
    answers = [{"prompt": f"{n}?", "best": str(n), "worst": f"no {n}"} for n in range(32)]
    rated = [{"prompt": f"{n}?", "completion": "a", "label": n % 2 == 0} for n in range(32)]
    named: dict[str, Sequence[object]] = {
        "pairs": pairs,
        "same": [*pairs, {"prompt": "1?", "chosen": "one", "rejected": "one"}],
        "answers": answers,
        "ratings": [{**row, "score_a": 5, "score_b": 2, "strength": 3} for row in pairs],
        "rated": rated,
        "praised": [{**row, "label": True} for row in rated],
        "chats": [{"messages": [asked, said]}] * 32,
        "unanswered": [{"messages": [asked]}] * 32,
        "sums": sums,
        "gaps": gaps,
        "lists": lists,
        "prompts": prompts,
        "words": [{"question": row["question"], "answer": "many"} for row in sums],
        "solved": [{"question": "1 + 1 = ?", "answer": "2"}],
        "boxed": [{"question": "1 + 1 = ?", "answer": "\\boxed{2}"}],
    }
    for name, rows in named.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    function = "def {}(reply, row):\n    return len(reply)\n"
    functions = "\n\n".join(function.format(name) for name in ("reward", "brief"))
    own = {
        "solver.py": f"{function.format('grade')}\n\ndef solve(run, style=''):\n    return 1.0\n"
        "\n\ndef forgets(run):\n    print(run.task)\n",
        "rewards.py": f"{functions}\n\ndef length(reply):\n    return len(reply)\n"
        "\n\ndef better(one, other, row):\n    return len(other) - len(one)\n",
        "agent.py": "print('an agent')\n",
        "graders.py": "def anywhere(reply, row):\n    return row['answer'] in reply\n"
        "\n\ndef alone(reply, row):\n    return reply.strip() == row['answer']\n"
        "\n\ndef form(reply, row):\n    return '\\\\boxed{' in reply\n"
        "\n\ndef same(reply, row):\n    return len(reply) >= 0\n"
        "\n\ndef raises(reply, row):\n    return reply.split()[0] == row['answer']\n"
        "\n\ndef chance(reply, row):\n    import random\n\n"
        "    return alone(reply, row) + 0.01 * random.random()\n"
        "\n\ndef floor(reply, row):\n    found = reply.strip()\n"
        "    return 1.0 if found == row['answer'] else 0.8 * found.isdigit()\n",
        "works.py": "def make():\n    ...\n",
        "fails.py": "def make():\n    ...\n\nSIZE = 1 / 0\n",
        "credit.py": "def centred(total_R):\n    return total_R - total_R.mean()\n"
        "\n\ndef uncentred(total_R):\n    return total_R - total_R[1:].mean\n",
        "mazes.py": "def make(size=4):\n    ...\n",
        "judge.j2": "{{ task }} {{ reply }} {{ rubric }} Score it from 1 to 10, in <score>.",
        "board.j2": "{{ observation }} Put your move in \\boxed{}.",
        "unclosed.j2": "{{ observation Put your move in \\boxed{}.",
        "question.j2": "{{ question }} Put your move in \\boxed{}.",
        "same.j2": "Make a move, in \\boxed{}.",
    }
    for name, text in own.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "broken.jsonl").write_text('{"question": "1 + 1 = ?", "answer": "2"\n')


def codes_of(example: Example, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The codes of all findings about an example."""
    if example.language == "rl":
        source = Source("example.rl", complete(example.text))
        return {item.code for item in compile_source(source, reader=Reader()).diagnostics}
    if example.language == "toml":
        Path("rlc.toml").write_text(example.text, encoding="utf-8")
        return {item.code for item in compile_source(Source("recipe.rl", RECIPE)).diagnostics}
    for line in example.text.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "rlc"
        main(arguments)
    captured = capsys.readouterr()
    return set(re.findall(r"^\w+\[(RL\d+)\]", captured.out + captured.err, re.M))


def _marked(code: str) -> Any:
    """Return a code, marked as one whose examples play episodes if they are audits or tests."""
    audits = "rlc audit" in (FOLDER / f"{code}.md").read_text(encoding="utf-8")
    plays = audits or code in TESTED
    return pytest.param(code, id=code, marks=[pytest.mark.plain] if plays else [])


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("code", map(_marked, code_titles()))
def test_the_examples_are_what_they_claim(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = page(code)
    assert shown is not None
    assert codes_of(shown.wrong, capsys) == {code}
    mentioned = set(re.findall(r"RL\d{4}", shown.meaning + shown.why)) - {code}
    assert codes_of(shown.right, capsys) <= mentioned


def test_every_file_is_the_page_of_a_code() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == set(code_titles())


@pytest.mark.parametrize("code", code_titles())
def test_pages_are_short_and_plain(code: str) -> None:
    text = (FOLDER / f"{code}.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 66
    assert max(len(line) for line in text.splitlines()) <= 105
    shown = page(code)
    assert shown is not None
    assert shown.title == code_titles()[code]


def test_a_code_may_be_written_small_and_an_unknown_one_has_no_page() -> None:
    assert page("rl0204") == page("RL0204")
    assert page("RL9999") is None
    assert page("../codes") is None


def test_a_page_reads_well_with_and_without_colour() -> None:
    shown = page("RL0010")
    assert shown is not None
    plain = render_page(shown, color=False)
    assert plain.startswith("RL0010: syntax error\n\nThe words at this place")
    assert "\nWrong\n\n    train main {\n      steps: 50\n" in plain
    assert max(len(line) for line in plain.splitlines()) <= 88
    colored = render_page(shown, color=True)
    assert "\x1b[1mRL0010" in colored
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == plain
