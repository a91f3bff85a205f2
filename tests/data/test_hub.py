"""Data sets of the hub by any name: what is read of them, and what is wrong with them."""

from __future__ import annotations

import importlib.util
import re

import pytest
from hub_support import fake_hub
from problem_support import problem_source
from run_support import compiled, tiny, train

from rlc.compile.recipe import compile_source
from rlc.data.errors import DataError
from rlc.data.problems import hub_rows
from rlc.explanation.job import needed
from rlc.lang.source import Source
from rlc.plan.codec import plan_from_dict, plan_to_dict
from rlc.plan.paths import hub_dataset
from rlc.plan.stages import Training
from rlc.runtime.records import RunError
from rlc.runtime.start import require_runnable

SUMS = [{"asked": f"{n} + 1 = ?", "sum": n + 1, "uid": f"u{n}"} for n in range(10)]
NAMED = {"question": "asked", "answer": "sum", "id": "uid"}
PUBLISHED = {
    ("org/sums", None, None): {"train": SUMS, "dev": SUMS[:2]},
    ("org/sums", None, "v1"): {"train": SUMS[:3]},
    ("org/sets", "hard", None): {"train": SUMS},
    ("org/sets", "easy", None): {"train": SUMS[:1]},
    ("org/gaps", None, None): {"train": [*SUMS[:4], {**SUMS[4], "asked": " "}]},
}


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return fake_hub(monkeypatch, PUBLISHED)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("hub:org/sums", ("org/sums", None, None)),
        ("hub:org/sums@v1", ("org/sums", "v1", None)),
        ("hub:org/sets/hard", ("org/sets", None, "hard")),
        ("hub:org/sets@v1.0/en-de, all", ("org/sets", "v1.0", "en-de, all")),
        ("hub:sums", None),
        ("org/sums", None),
        ("hub/sums.jsonl", None),
    ],
)
def test_a_name_has_its_parts(name: str, parts: tuple[str, ...] | None) -> None:
    assert hub_dataset(name) == parts


def test_rows_are_tasks_with_their_ids_and_places() -> None:
    source = problem_source("hub:org/sums", NAMED)
    (episode,) = source.numbered(0, 4, 1)
    assert episode.first.text == "4 + 1 = ?"
    assert episode.step("it is 5").reward == 1.0
    assert episode.first.about is not None
    assert episode.first.about.written() == {
        "place": "hub:org/sums, row 5",
        "id": "u4",
        "fields": {"sum": 5},
    }


@pytest.mark.parametrize(
    ("name", "count"), [("hub:org/sums@v1", 3), ("hub:org/sets/hard", 10), ("hub:org/sets/easy", 1)]
)
def test_revisions_and_configurations(name: str, count: int) -> None:
    assert len([*hub_rows(name, "train")]) == count


def test_parts_of_a_split_share_no_row() -> None:
    def part(which: str, share: float) -> set[str]:
        split = {"part": which, "share": share, "by": "order", "of": "train"}
        source = problem_source("hub:org/sums", NAMED | {"split": split})
        return {source.numbered(0, n, 1)[0].first.text for n in range(source.count or 0)}

    first, last = part("first", 0.9), part("last", 0.1)
    assert (len(first), len(last)) == (9, 1)
    assert not first & last


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        (
            "hub:org/sums",
            {"question": "text"},
            r"hub:org/sums, row 1: the row has no field `text`;",
        ),
        ("hub:org/gaps", NAMED, r"^hub:org/gaps, row 5: the field `asked` is empty$"),
        ("hub:org/sums", {"split": "test"}, r"hub:org/sums has no split `test`; it has `dev`, `t"),
        ("hub:org/sums", NAMED | {"samples": 11}, r"`samples = 11`, but hub:org/sums has 10 prob"),
        ("hub:org/sets", NAMED, r"(?s)is missing. Please .*: \['hard', 'easy'\].*org/sets/CONFIG"),
        ("hub:org/none", NAMED, r"hub:org/none cannot be loaded .*hub: Dataset 'org/none' doesn't"),
    ],
)
def test_what_is_wrong_is_said_as_of_files(name: str, args: dict[str, str], message: str) -> None:
    with pytest.raises(DataError) as refused:
        problem_source(name, args)
    assert re.search(message, f"{refused.value}\n{refused.value.hint or ''}".strip())


ENV = 'env sums = problems("hub:org/sums", question = "asked", answer = "sum", grader = numeric)\n'
IMITATE = (
    'sft warm {{ model = policy  data = chats("hub:org/sets/hard"{more})  batch = 2'
    "  optimizer = adam(1e-3)  {how_long} }}\n"
)


def test_a_plan_keeps_the_name_and_says_what_it_needs(loaded: list[str]) -> None:
    stages = IMITATE.format(more=", n = 4", how_long="epochs = 1")
    plan = tiny(ENV, stages, train(env="sums", model="warm"))
    (warm, _) = plan.stages
    assert isinstance(warm, Training)
    assert warm.steps == 2
    assert plan_from_dict(plan_to_dict(plan)) == plan
    whence = "a data set from the Hugging Face hub, downloaded when the run starts"
    assert {f"warm: {whence}: hub:org/sets/hard", f"sums: {whence}"} <= set(needed(plan))
    assert plan.data == ()
    assert not loaded  # neither check nor explain asks the hub


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (IMITATE.format(more="", how_long="epochs = 1"), "(`n = 1_000` in the source)"),
        (
            ENV + train(env="sums").replace("steps = 4", "epochs = 1"),
            "(`samples = 1_000` in the source)",
        ),
    ],
)
def test_an_epoch_of_unknown_size(text: str, advice: str, loaded: list[str]) -> None:
    model = 'model policy { base = "tiny" lora_rank = 4 }\n'
    found = compile_source(Source("recipe.rl", model + text), {}, 1).diagnostics
    assert [(item.code, advice in (item.help or "")) for item in found] == [("RL0310", True)]
    assert not loaded


def test_the_package_is_named_before_anything_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "datasets" else real(name)
    )
    plan = tiny(ENV, IMITATE.format(more="", how_long="steps = 1"), train(env="sums", model="warm"))
    with pytest.raises(RunError) as refused:
        require_runnable(plan)
    for reader in ("sums", "warm"):
        assert f"`{reader}` needs datasets" in str(refused.value)
    assert refused.value.hint == "pip install datasets"


@pytest.mark.parametrize(
    ("written", "code", "meant"),
    [
        ('rows("org/sums")', "RL0210", "hub:org/sums"),
        ('problems("org/sums/hard")', "RL0204", "hub:org/sums/hard"),
        ('problems("hub:sums")', "RL0204", "hub:org/name"),
    ],
)
def test_a_name_that_is_not_written_as_one(written: str, code: str, meant: str) -> None:
    text = f'model policy {{ base = "tiny" }}\nenv e = {written}\n'
    found = compile_source(Source("recipe.rl", text), {}, 1).diagnostics
    (advice,) = [item.help or "" for item in found if item.code == code]
    assert advice.endswith(f'a data set of the Hugging Face hub is "{meant}"')


def test_an_environment_without_a_name_has_that_of_its_data() -> None:
    text = 'model policy { base = "tiny" lora_rank = 4 }\n'
    text += train(env='problems("hub:org/big-sums.v2/hard", grader = numeric)')
    (stage,) = compiled(text).stages
    assert [env.name for env in stage.environments] == ["big_sums_v2"]
