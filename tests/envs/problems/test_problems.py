"""Problems: rows from files and by name, their order, their rewards, and what the model sees."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from problem_support import ARGS, grader, jsonl, problem_source

from rlc.data import problems
from rlc.data.errors import DataError
from rlc.data.grading.countdown import row
from rlc.envs.base import TaskKey
from rlc.envs.build import build_env
from rlc.envs.problems import ProblemSource
from rlc.plan.environments import EnvPlan, RewardPlan, RolloutsPlan, StepPlan
from rlc.service.tiny import path as tiny_path

SUMS = [{"question": f"{n} + {n} = ?", "answer": 2 * n} for n in range(5)]


def asked(source: ProblemSource, count: int, order: int = 7, start: int = 0) -> list[str]:
    return [source.numbered(order, n, 1)[0].first.text for n in range(start, start + count)]


def test_rows_come_in_order_again_and_again(tmp_path: Path) -> None:
    source = problem_source(jsonl(tmp_path, SUMS), {"suffix": " Say it."})
    questions = [f"{row['question']} Say it." for row in SUMS]
    assert asked(source, 12) == [*questions, *questions, *questions[:2]]


def test_each_epoch_has_every_row_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    source = problem_source(jsonl(tmp_path, SUMS * 4), {"shuffle": True})
    epochs = [asked(source, 20, start=start) for start in (0, 20, 40)]
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert asked(source, 20, order=8) != epochs[0]


def test_a_task_depends_on_seed_and_number_alone(tmp_path: Path) -> None:
    path = jsonl(tmp_path, SUMS)
    straight = asked(problem_source(path, {"shuffle": True}), 13)
    assert asked(problem_source(path, {"shuffle": True}), 6, start=7) == straight[7:]


def test_members_share_the_question_and_are_graded_by_the_row(tmp_path: Path) -> None:
    source = problem_source(jsonl(tmp_path, SUMS))
    members = source.numbered(0, 3, 3)
    after = [m.step(reply) for m, reply in zip(members, ["\\boxed{6}", "7", "?"], strict=True)]
    assert [a.reward for a in after] == [1.0, 0.0, -0.1]
    assert [a.metrics for a in after] == [
        {"correct": 1.0, "format": 1.0},
        {"correct": 0.0, "format": 1.0},
        {"correct": 0.0, "format": 0.0},
    ]
    assert all(a.done for a in after)


def test_files_of_every_kind_say_the_same(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "rows.csv").write_text(
        "question,answer\n" + "".join(f"{r['question']},{r['answer']}\n" for r in SUMS)
    )
    parquet.write_table(pyarrow.Table.from_pylist(SUMS), tmp_path / "rows.parquet")
    jsonl(tmp_path, SUMS)
    sources = [
        problem_source(str(tmp_path / f"rows{end}")) for end in (".jsonl", ".csv", ".parquet")
    ]
    assert asked(sources[0], 5) == asked(sources[1], 5) == asked(sources[2], 5)
    assert {s.numbered(0, 2, 1)[0].step("4").reward for s in sources} == {1.0}


def test_a_field_named_split_selects(tmp_path: Path) -> None:
    rows = [{**row, "split": "test" if n % 2 else "train"} for n, row in enumerate(SUMS)]
    path = jsonl(tmp_path, rows)
    assert asked(problem_source(path), 3) == ["0 + 0 = ?", "2 + 2 = ?", "4 + 4 = ?"]
    assert asked(problem_source(path, {"split": "test"}), 2) == ["1 + 1 = ?", "3 + 3 = ?"]
    with pytest.raises(DataError, match=r"has no split `dev`; it has `test`, `train`"):
        problem_source(path, {"split": "dev"})


def test_without_that_field_there_is_only_train(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no split `test`; it has `train`"):
        problem_source(jsonl(tmp_path, SUMS), {"split": "test"})


def test_samples_are_the_first_or_the_same_ones_of_every_seed(tmp_path: Path) -> None:
    path = jsonl(tmp_path, SUMS * 1)
    first = problem_source(path, {"samples": 2})
    assert asked(first, 3) == ["0 + 0 = ?", "1 + 1 = ?", "0 + 0 = ?"]
    some = problem_source(path, {"samples": 3, "shuffle": True})
    assert set(asked(some, 3, order=1)) == set(asked(some, 3, order=2))
    with pytest.raises(DataError, match=r"`samples = 9`, but .* has 5 problems in `train`"):
        problem_source(path, {"samples": 9})


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        ([], {}, "has no rows"),
        ([["x"]], {}, "rows.jsonl:1: the row has no named fields"),
        ([SUMS[0], {"question": "x"}], {}, ":2: the row has no field `answer`; it has `question`"),
        ([SUMS[0], {"question": "x", "answer": "y"}], {}, ":2: the answer 'y' is no number"),
        (SUMS, {"question": "problem"}, ":1: the row has no field `problem`; it has `question`"),
        ([{"question": 7, "answer": 7}], {}, ":1: the field `question` holds a number, and not"),
        (
            [{"question": ["a"], "answer": 7}],
            {},
            ":1: the field `question` holds a list, and not text",
        ),
        (SUMS, {"id": "uid"}, ":1: the row has no field `uid`; it has"),
        (SUMS, {"grader": "countdown"}, ":1: countdown needs whole numbers in"),
    ],
)
def test_rows_that_cannot_be_used(
    tmp_path: Path, rows: list[Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        problem_source(jsonl(tmp_path, rows), changes)


def test_parquet_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match="pip install pyarrow"):
        problem_source(str(tmp_path / "x.parquet"))


COUNTDOWN = {"grader": "countdown", "shuffle": True}


def test_countdown_has_no_end_and_no_repeats() -> None:
    train = problem_source("countdown", COUNTDOWN)
    assert len(set(asked(train, 40))) == 40
    assert asked(train, 5, order=8) != asked(train, 5)
    in_order = problem_source("countdown", COUNTDOWN | {"shuffle": False})
    assert asked(in_order, 5, order=8) == asked(in_order, 5)


def test_some_countdown_problems_come_again_each_epoch() -> None:
    some = problem_source("countdown", COUNTDOWN | {"samples": 8})
    first, second = asked(some, 8), asked(some, 8, start=8)
    assert first != second
    assert set(first) == set(second) == set(asked(some, 8, order=9))


def test_many_countdown_problems_are_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def problem(split: str, seed: int) -> dict[str, Any]:
        made.append(seed)
        return row([1], 1)

    monkeypatch.setattr(problems, "problem", problem)
    asked(problem_source("countdown", COUNTDOWN | {"samples": 400_000}), 3)
    assert len(set(made)) == 3


def test_countdown_test_has_its_size() -> None:
    test = problem_source("countdown", COUNTDOWN | {"split": "test"})
    assert len(set(asked(test, 1_024))) == 1_024
    assert set(asked(test, 1_024, start=1_024)) == set(asked(test, 1_024))


def test_rows_of_the_public_countdown_data_are_asked_for(tmp_path: Path) -> None:
    path = jsonl(tmp_path, [{"target": 9, "nums": [1, 2, 3]}])
    (episode,) = problem_source(path, COUNTDOWN).numbered(0, 0, 1)
    assert episode.first.text.startswith("Using the numbers 1, 2, 3, find a way")
    assert episode.step("<answer>(1 + 2) * 3</answer>").reward == 1.0


HUB = {
    ("openai/gsm8k", "main"): {
        "test": [{"question": "q", "answer": "a lot of work\n#### 1,200"}],
    },
    ("HuggingFaceH4/MATH-500", None): {
        "test": [{"problem": "p0", "solution": "so \\boxed{0}"}],
    },
    ("EleutherAI/hendrycks_math", "algebra"): {
        "train": [{"problem": "p1", "solution": "\\boxed{1}"}],
        "test": [
            {"problem": "p0", "solution": "so \\boxed{0}"},
            {"problem": "p2", "solution": "\\boxed{2}"},
        ],
    },
}


def hub(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))


def test_known_sets_come_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, lambda name, config, **_: HUB.get((name, config), {"train": [], "test": []}))
    gsm8k = problem_source("gsm8k", {"split": "test"})
    assert gsm8k.numbered(0, 0, 1)[0].step("1200").reward == 1.0
    train = problem_source("math")
    assert asked(train, 2) == ["p1", "p2"]  # without the problem of the test
    assert asked(problem_source("math", {"split": "test"}), 1) == ["p0"]


def test_no_hub_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route to host")

    hub(monkeypatch, unreachable)
    with pytest.raises(
        DataError, match=r"^hub:openai/gsm8k/main cannot be .* Hugging Face hub: no route"
    ):
        problem_source("gsm8k")


def prompt(path: str, *wrappers: StepPlan, **changes: Any) -> str:
    """What the model sees of the first problem."""
    from transformers import AutoTokenizer

    rollouts, reward = RolloutsPlan(1, 1.0, 8, None, None), RewardPlan("sum", None, None, None)
    args = ARGS | changes
    plan = EnvPlan("sums", 1.0, "problems", path, args, wrappers, 1, rollouts, reward, (grader(),))
    tokenizer = AutoTokenizer.from_pretrained(str(tiny_path()))
    env = build_env(plan, tokenizer, "qwen3_instruct")
    (first,) = asyncio.run(env.source.open(TaskKey(0, 0, 0, 1), [0]))
    text: str = tokenizer.decode(env.new_history().observe(first.first))
    return text


@pytest.mark.engine
def test_a_question_is_a_chat(tmp_path: Path) -> None:
    text = prompt(jsonl(tmp_path, SUMS))
    assert text == "<|im_start|>user\n0 + 0 = ?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.engine
def test_solved_problems_come_before_it_as_turns(tmp_path: Path) -> None:
    solved = jsonl(tmp_path, [{"question": "1 + 1 = ?", "answer": "\\boxed{2}"}], "shots.jsonl")
    text = prompt(jsonl(tmp_path, SUMS), few_shot=solved, suffix=" Box it.")
    assert text == (
        "<|im_start|>user\n1 + 1 = ? Box it.<|im_end|>\n"
        "<|im_start|>assistant\n\\boxed{2}<|im_end|>\n"
        "<|im_start|>user\n0 + 0 = ? Box it.<|im_end|>\n<|im_start|>assistant\n"
    )


def test_solved_problems_need_both_fields(tmp_path: Path) -> None:
    solved = jsonl(tmp_path, [{"question": "1 + 1 = ?"}], "shots.jsonl")
    with pytest.raises(DataError, match=r"shots.jsonl:1: the row has no field `answer`"):
        problem_source(jsonl(tmp_path, SUMS), {"few_shot": solved})


def test_parts_of_a_file_are_played_apart(tmp_path: Path) -> None:
    path = jsonl(tmp_path, SUMS)
    parts = [HALF | {"share": 0.8}, HALF | {"part": "last", "share": 0.2}]
    train, test = (problem_source(path, {"split": part}) for part in parts)
    assert (train.count, test.count) == (4, 1)
    assert asked(test, 1) == ["4 + 4 = ?"]


HALF = {"part": "first", "share": 0.5, "by": "order", "of": "train"}


@pytest.mark.parametrize("split", ["trian", HALF | {"of": "x"}])
def test_countdown_knows_its_splits(split: Any) -> None:
    with pytest.raises(DataError, match=r"countdown has no split `(trian|x)`; it has `stage2`"):
        problem_source("countdown", COUNTDOWN | {"split": split})


def test_what_has_no_end_has_no_parts() -> None:
    with pytest.raises(DataError, match="`train` of countdown has no end, so it has no first"):
        problem_source("countdown", COUNTDOWN | {"split": HALF})


MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Add."},
    {"role": "assistant", "content": "What?"},
    {"role": "user", "content": "0 + 0 = ?"},
]
CHAT = [{"question": MESSAGES, "answer": 0}]


@pytest.mark.engine
def test_a_question_of_messages_is_rendered_as_messages(tmp_path: Path) -> None:
    chat = StepPlan("chat", {"instruction": "Box it.", "system": ""})
    solved = jsonl(tmp_path, [{"question": MESSAGES[3:], "answer": "0"}], "shots.jsonl")
    text = prompt(jsonl(tmp_path, CHAT), chat, suffix=" Think.", few_shot=solved)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n0 + 0 = ? Think.<|im_end|>\n"
        "<|im_start|>assistant\n0<|im_end|>\n"
        "<|im_start|>user\nAdd.<|im_end|>\n"
        "<|im_start|>assistant\nWhat?<|im_end|>\n"
        "<|im_start|>user\n0 + 0 = ? Think.\nBox it.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.engine
def test_a_system_message_of_the_recipe_comes_first(tmp_path: Path) -> None:
    chat = StepPlan("chat", {"instruction": "", "system": "Be brief."})
    assert prompt(jsonl(tmp_path, SUMS), chat) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n0 + 0 = ?<|im_end|>\n<|im_start|>assistant\n"
    )
    with pytest.raises(DataError, match=r":1: .* has a system message, and `chat\(system = …\)`"):
        prompt(jsonl(tmp_path, CHAT), chat)


@pytest.mark.engine
def test_a_game_takes_questions_that_are_one_text(tmp_path: Path) -> None:
    game = StepPlan("solver_judge", {"solvers": 1, "solver_prompt": None, "judge_prompt": None})
    assert "0 + 0 = ?" in prompt(jsonl(tmp_path, [{**CHAT[0], "question": MESSAGES[3:]}]), game)
    with pytest.raises(DataError, match=r":1: the field `question` has to be one text"):
        prompt(jsonl(tmp_path, CHAT), game)


def test_a_solved_problem_has_no_system_message(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a solved problem has no system message and no tools"):
        problem_source(jsonl(tmp_path, SUMS), {"few_shot": jsonl(tmp_path, CHAT, "shots.jsonl")})


def test_the_row_of_a_problem_is_kept(tmp_path: Path) -> None:
    rows = [{"id": f"q{n}", "level": n} | row for n, row in enumerate(SUMS)]
    (attempt,) = problem_source(jsonl(tmp_path, rows)).numbered(0, 1, 1)
    assert attempt.first.about is not None
    assert attempt.first.about.written() == {
        "place": "rows.jsonl:2",
        "id": "q1",
        "fields": {"level": 1, "answer": 2},
    }
