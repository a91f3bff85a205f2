"""A whole run on data sets of the hub: imitation, practice and an evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hub_support import Published, fake_hub
from run_support import block, run_new, tiny, train

from rlc.errors import Error

pytestmark = pytest.mark.plain

CHATS = [
    {"talk": [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"{n}!"}]}
    for n in range(3)
]
TASKS = [{"ask": f"{n} + {n}?", "sum": str(2 * n), "uid": n} for n in range(4)]
PUBLISHED: Published = {
    ("org/talks", "short", None): {"train": CHATS},
    ("org/sums", None, "v2"): {"train": TASKS, "dev": TASKS[:1]},
}
SUMS = 'problems("hub:org/sums@v2", question = "ask", answer = "sum", id = "uid"{split})'
WARM = {
    "model": "policy",
    "data": 'chats("hub:org/talks/short", messages = "talk", n = 3)',
    "optimizer": "adam(1e-3)",
    "epochs": "1",
    "batch": "3",
}
MAIN = train(
    env=SUMS.format(split=", split = first(50%)"),
    model="warm",
    steps="1",
    batch="groups(2, group_size = 2)",
    give_up="none",
)


def heldout(split: str) -> str:
    env = SUMS.format(split=f', split = "{split}"')
    return block("eval", "heldout", {"model": "main", "env": env, "samples": "1"})


def test_stages_learn_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_hub(monkeypatch, PUBLISHED)
    plan = tiny(block("sft", "warm", WARM), MAIN, heldout("dev"))
    run_new(tmp_path / "run", plan, stop_after=("main", 1))
    examples = (tmp_path / "run/examples-warm.jsonl").read_text().splitlines()
    assert [json.loads(line)["place"] for line in examples] == [
        f"hub:org/talks/short, row {n}" for n in (1, 2, 3)
    ]
    rollouts = (tmp_path / "run/rollouts.jsonl").read_text().splitlines()
    about = [json.loads(line)["about"] for line in rollouts]
    assert {(one["place"], one["id"]) for one in about} == {
        (f"hub:org/sums@v2, row {n + 1}", n) for n in (0, 1)
    }


@pytest.mark.parametrize(
    ("warm", "split", "message"),
    [
        ({}, "test", r"`heldout`, a later stage, .*@v2 has no split `test`; it has `dev`, `train`"),
        ({"data": WARM["data"].replace("= 3", "= 4")}, "dev", r"`n = 4`, but .* has 3 rows in `tr"),
        ({"data": WARM["data"].replace('"talk"', '"chat"')}, "dev", r"short, row 1: .*`chat`"),
    ],
)
def test_no_stage_pays_for_it(
    warm: dict[str, str],
    split: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_hub(monkeypatch, PUBLISHED)
    plan = tiny(block("sft", "warm", WARM | warm), MAIN, heldout(split))
    with pytest.raises(Error, match=message):
        run_new(tmp_path / "run", plan)
    assert (tmp_path / "run/metrics.jsonl").read_text() == ""
