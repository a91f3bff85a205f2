"""The browser of `rlc show`, by its keys, on runs that never ran."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from made_up_runs import write_folder, write_lines, write_run

pytest.importorskip("textual", reason="the extra `browse` is not installed")

import textual._wait
from textual.content import Content
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static
from textual.worker import WorkerCancelled

from rlc.cli.browser.app import Browser, HelpScreen, RunsScreen
from rlc.cli.browser.comparison import CompareScreen
from rlc.cli.browser.run_screen import RunScreen
from rlc.cli.main import main
from rlc.runtime.journal.episodes import EpisodeKey, EpisodeTokens, SequenceTokens, append_tokens

pytestmark = pytest.mark.slow

MODEL = 'model policy { base = "tiny" lora_rank = 4 }\n'
SFT = MODEL + (
    'env guess = gem("game:GuessTheNumber-v0-easy") |> chat()\n'
    "sft warmup { model = policy data = demonstrations(guess, n = 8) optimizer = adam(1e-3) "
    "batch = 4 steps = 2 }\n"
)
Use = Callable[[Pilot[None]], Awaitable[None]]


@pytest.fixture(autouse=True)
def _idle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each key textual sleeps for 20 ms, and longer, to see whether it has nothing to do."""
    for name in ("SLEEP_GRANULARITY", "SLEEP_IDLE"):
        monkeypatch.setattr(textual._wait, name, getattr(textual._wait, name) / 10)


def browse(path: Path, use: Use, size: tuple[int, int] = (80, 24)) -> None:
    """Open a run, or a folder of runs, and use it; nothing is read but on demand."""

    async def run() -> None:
        async with Browser(path, every=None).run_test(size=size) as pilot:
            await settle(pilot)
            await use(pilot)

    asyncio.run(run())


async def settle(pilot: Pilot[None]) -> None:
    """Wait until everything that was asked for has been read and is shown."""
    for _ in range(4):  # what is read is told to the list, and the list tells the page
        while not all(worker.is_finished for worker in pilot.app.workers):
            with suppress(WorkerCancelled):  # another page has taken its place
                await pilot.app.workers.wait_for_complete()
        await pilot.pause()


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settle(pilot)


async def look_for(pilot: Pilot[None], text: str) -> None:
    await press(pilot, "slash")
    screen(pilot).query_one(Input).value = text
    await press(pilot, "enter")


def screen(pilot: Pilot[None]) -> RunScreen:
    assert isinstance(pilot.app.screen, RunScreen)
    return pilot.app.screen


def labels(pilot: Pilot[None]) -> list[str]:
    """The lines of the list."""
    outline = screen(pilot).outline
    nodes = (outline.get_node_at_line(number) for number in range(outline.last_line + 1))
    return [str(node.label) for node in nodes if node is not None]


def chosen(pilot: Pilot[None]) -> str:
    node = screen(pilot).outline.cursor_node
    assert node is not None
    return str(node.label)


def page(pilot: Pilot[None]) -> str:
    return screen(pilot).page.text


def status(pilot: Pilot[None]) -> str:
    return str(screen(pilot).query_one("#status", Static).content)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "run"
    write_run(path)
    return path


def test_it_opens_at_the_last_step_and_goes_down_to_an_episode(folder: Path) -> None:
    async def use(pilot: Pilot[None]) -> None:
        assert chosen(pilot).startswith("step 8  0.")
        assert "✕1" in chosen(pilot)
        assert "main step 8" in page(pilot)
        assert "✕ EnvError: the game went away" in page(pilot)
        assert "reward/guess" in page(pilot)
        assert status(pilot).startswith("finished  ·  16 episodes")
        await press(pilot, "enter", "down")
        assert chosen(pilot) == "guess 8  0.00…1.50"
        assert "first observation:\nWhat is 8 & <b>1</b>?" in page(pilot)
        await press(pilot, "right", "down", "down")
        assert chosen(pilot) == "1 r0.5 ■+0.00"
        await press(pilot, "down", "down")
        assert chosen(pilot) == "3 r1.5 ▲+2.00"
        assert "── turn 2 of 2" in page(pilot)
        assert "I say 3." in page(pilot)
        await press(pilot, "left", "left", "left")
        assert chosen(pilot).startswith("step 8")

    browse(folder, use)


@pytest.fixture(scope="module")
def with_tokens(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run with the tokens of an episode of its last step, under a model that has none here."""
    path = Path(shutil.copytree(folder, tmp_path_factory.mktemp("tokens") / "run"))
    one = SequenceTokens(
        tokens=[7, 7, 11, 12, 13, 7, 14],
        spans=[(0, 2, 5), (1, 6, 7)],
        logprobs_S=[-1.0, -1.0, -1.0, -2.0],
        trainer_S=[-1.0, -0.5, -1.03, math.nan],
        advantages_S=[0.5, -0.25, 0.0, 1.0],
        weight=1.0,
    )
    append_tokens(path, "main", 8, [EpisodeTokens(EpisodeKey("guess", 8, 0), [one])])
    return path


def styles(pilot: Pilot[None]) -> list[tuple[str, str]]:
    """The tokens of the first turn of a page that stand out: ``+`` in bold, ``-`` underlined."""
    content = screen(pilot).page.query(".block").results(Static)
    (_, turn, *_) = [block.content for block in content]
    assert isinstance(turn, Content)
    found = []
    for span in turn.spans:
        style = str(span.style)
        mark = "+" if style.startswith("bold $") else "-" if style.startswith("underline") else ""
        if mark or "reverse" in style:
            found.append((turn.plain[span.start : span.end], mark or "chosen"))
    return found


def test_tokens_are_coloured_by_advantage_or_ratio_and_one_is_told(with_tokens: Path) -> None:
    async def use(pilot: Pilot[None]) -> None:
        await press(pilot, "enter", "down", "right", "down")
        assert "3 tokens, advantage ▼ -0.250 to ▲ +0.500, ratio 0.970 to 1.649, farthest '12 '" in (
            page(pilot)
        )
        assert "1 token, advantage ▲ +1.000, no ratio" in page(pilot)
        assert "Ids stand for tokens: the tokenizer of deepseek-ai/DeepSeek-V3.1" in page(pilot)
        assert styles(pilot) == [("11 ", "+"), ("12 ", "-")]
        assert "coloured by advantage: tokens above 0 bold, below 0 underlined" in status(pilot)
        await press(pilot, "a")
        assert styles(pilot) == [("12 ", "+"), ("13 ", "-")]
        assert "coloured by ratio" in status(pilot)
        await press(pilot, "full_stop", "full_stop")
        assert styles(pilot) == [("12 ", "chosen"), ("13 ", "-")]
        assert status(pilot).startswith("token 2/3 '12 ' (id 12)  advantage ▼ -0.250  ratio 1.649")
        await press(pilot, "full_stop", "full_stop")
        assert "logprob -2.000, left out of the gradient" in status(pilot)
        await press(pilot, "escape", "a", "a")
        assert "coloured by nothing" in status(pilot)
        assert styles(pilot) == []

    browse(with_tokens, use)


def test_the_token_that_is_looked_at_is_on_the_screen(with_tokens: Path) -> None:
    async def use(pilot: Pilot[None]) -> None:
        await press(pilot, "enter", "down", "right", "down", *["full_stop"] * 4)
        shown = screen(pilot).page
        turn = list(shown.query(".block").results(Static))[2]
        top, bottom = shown.scroll_offset.y, shown.scroll_offset.y + shown.size.height
        assert top <= turn.virtual_region.y + 5 < bottom  # the line of its reply, about

    browse(with_tokens, use, size=(80, 12))


def test_a_run_without_tokens_says_so(folder: Path) -> None:
    async def use(pilot: Pilot[None]) -> None:
        await press(pilot, "full_stop")
        await press(pilot, "enter", "down", "right", "down", "full_stop")
        told = [one.message for one in pilot.app._notifications]
        assert told == [
            "There are no single tokens here: choose an episode.",
            "No single tokens are here: the run has no tokens.bin.",
        ]

    browse(folder, use)


def test_turns_are_coloured_by_what_is_chosen(folder: Path) -> None:
    def classes(pilot: Pilot[None]) -> list[set[str]]:
        blocks = screen(pilot).page.query(".block")
        return [set(block.classes) & {"good", "bad", "even"} for block in blocks]

    async def use(pilot: Pilot[None]) -> None:
        await press(pilot, "enter", "down", "right", "down")
        assert chosen(pilot) == "0 r0 ▼-1.00"
        assert classes(pilot) == [set(), {"bad"}, {"bad"}]
        assert "advantage ▼ -1.000" in page(pilot)  # the same without colour
        await press(pilot, "a")
        assert "coloured by reward" in status(pilot)
        assert classes(pilot) == [set(), {"even"}, {"even"}]
        await press(pilot, "down")
        assert classes(pilot) == [set(), {"good"}, {"good"}]
        await press(pilot, "a")
        assert classes(pilot) == [set(), {"even"}, {"even"}]

    browse(folder, use)


def test_keys_lead_to_the_best_the_worst_and_what_failed(folder: Path) -> None:
    async def use(pilot: Pilot[None]) -> None:
        await press(pilot, "b")
        assert chosen(pilot) == "3 r1.5 ▲+2.00"
        await press(pilot, "w")
        assert chosen(pilot) == "0 r0 ▼-1.00"
        await press(pilot, "x")
        assert chosen(pilot) == "3 ✕ failed"
        assert "step 8" in page(pilot)
        await press(pilot, "x")  # after the last one the first one comes
        assert chosen(pilot) == "3 ✕ failed"
        assert "step 7" in page(pilot)

    browse(folder, use)


def test_search_shows_what_fits_and_escape_all_again(folder: Path) -> None:
    async def use(pilot: Pilot[None]) -> None:
        await look_for(pilot, '"i say 2" step:8')
        assert labels(pilot) == [
            "run",
            "main",
            "step 8  2 found",
            "guess 8 · 2 r1 ▲+1.00",
            "spell 8 · 2 r1 ▲+1.00",
        ]
        assert chosen(pilot) == "guess 8 · 2 r1 ▲+1.00"
        assert '2 of 16 episodes: "i say 2" step:8' in status(pilot)
        await press(pilot, "escape")
        assert chosen(pilot) == "2 r1 ▲+1.00"  # still the same episode
        assert "16 episodes" in status(pilot)
        await look_for(pilot, "is:failed")
        assert labels(pilot)[2:] == [
            "step 7  1 found  ✕1",
            "spell 7 · 3 ✕ failed",
            "step 8  1 found  ✕1",
            "spell 8 · 3 ✕ failed",
        ]
        await look_for(pilot, "nobody said this")
        assert labels(pilot) == ["run"]
        assert "0 of 16 episodes" in status(pilot)
        await look_for(pilot, "step:x")  # a mistake changes nothing
        assert screen(pilot).has_class("searching")
        await press(pilot, "escape", "escape")
        assert "16 episodes" in status(pilot)

    browse(folder, use)


def test_two_members_stand_side_by_side(folder: Path) -> None:
    def sides(pilot: Pilot[None]) -> str:
        assert isinstance(pilot.app.screen, CompareScreen)
        texts = pilot.app.screen.query(".side").results(Static)
        return "\n".join(str(text.content) for text in texts)

    async def use(pilot: Pilot[None]) -> None:
        await press(pilot, "c")
        assert isinstance(pilot.app.screen, RunScreen)  # a step is no group
        await press(pilot, "w", "c")
        assert "I say 0." in sides(pilot)
        assert "I say 3." in sides(pilot)  # the best one
        await press(pilot, "right_square_bracket")
        assert "I say 1." in sides(pilot)
        await press(pilot, "left_square_bracket", "left_square_bracket", "s")
        assert sides(pilot).startswith("member 2\nreward 1.000\nadvantage ▲ +1.000")
        await press(pilot, "escape")
        assert chosen(pilot) == "0 r0 ▼-1.00"

    browse(folder, use)


def test_a_run_that_goes_on_is_followed(folder: Path, tmp_path: Path) -> None:
    def copied(name: str, steps: int, tail: str = "") -> None:
        records = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        with (tmp_path / "run" / name).open("w") as file:
            file.writelines(json.dumps(r) + "\n" for r in records if r["step"] <= steps)
            file.write(tail)

    write_run(tmp_path / "run", done=0)
    written = '{"stage": "main", "step": 8, "env": "gu'  # the last line is being written
    copied("rollouts.jsonl", 7, written)
    copied("metrics.jsonl", 7)

    async def use(pilot: Pilot[None]) -> None:
        assert chosen(pilot).startswith("step 7")
        assert "8 episodes" in status(pilot)
        await press(pilot, "f", "b")
        assert "following" in status(pilot)
        for name in ("rollouts.jsonl", "metrics.jsonl"):
            copied(name, 8)
        screen(pilot).read_on()
        await settle(pilot)
        assert chosen(pilot).startswith("step 8")
        assert "16 episodes" in status(pilot)
        await press(pilot, "f", "b")
        for name in ("rollouts.jsonl", "metrics.jsonl"):
            write_lines(tmp_path / "run" / f"{name}.tmp", [])  # a resume has dropped the steps
            (tmp_path / "run" / f"{name}.tmp").replace(tmp_path / "run" / name)
        screen(pilot).read_on()
        await settle(pilot)
        assert labels(pilot) == ["run"]
        assert "0 episodes" in status(pilot)

    browse(tmp_path / "run", use)


def test_a_run_without_steps_says_how_it_stands(tmp_path: Path) -> None:
    write_folder(tmp_path / "run", SFT)

    async def use(pilot: Pilot[None]) -> None:
        assert labels(pilot) == ["run"]
        assert "warmup  sft, 0 of 2 steps" in page(pilot)
        await press(pilot, "b", "x", "c", "n", "p", "f", "z", "z", "left", "right", "tab")
        assert "warmup  sft, 0 of 2 steps" in page(pilot)

    browse(tmp_path / "run", use)


def test_a_stage_that_learns_from_data_has_metrics_and_says_so(tmp_path: Path) -> None:
    metrics = [{"stage": "warmup", "step": n, "loss/mean": 1 / n} for n in (1, 2)]
    write_folder(tmp_path / "run", SFT, metrics=metrics)

    async def use(pilot: Pilot[None]) -> None:
        assert labels(pilot)[1:] == ["warmup", "step 1  1.000", "step 2  0.500"]
        assert "loss/mean  0.5" in page(pilot)
        await press(pilot, "up", "up")
        assert "it has metrics, and no episodes" in page(pilot)
        assert "1 → 0.5" in page(pilot)

    browse(tmp_path / "run", use)


def test_preferences_are_shown_with_both_replies(tmp_path: Path) -> None:
    pair = {"prompt": "Spell it.", "chosen": "good [b]", "rejected": "bad"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n", encoding="utf-8")
    recipe = MODEL + (
        f'preference align {{ model = policy data = pairs("{tmp_path}/pairs.jsonl") '
        "loss = dpo(beta = 0.1) optimizer = adam(1e-5) batch = 1 steps = 1 }\n"
    )
    write_folder(
        tmp_path / "run",
        recipe,
        metrics=[{"stage": "align", "step": 1, "accuracy": 1.0}],
        comparisons=[{"stage": "align", "step": 1, "example": 0, "rewards": [0.5, -0.25]}],
        examples_align=[{"place": "pairs.jsonl:1", "shown": pair}],
    )

    async def use(pilot: Pilot[None]) -> None:
        await press(pilot, "enter", "down")
        assert chosen(pilot) == "pairs.jsonl:1 ▲ +0.750"
        shown = page(pilot)
        assert "prompt:\nSpell it." in shown
        assert "chosen  reward ▲ +0.500\ngood [b]" in shown
        assert "rejected  reward ▼ -0.250\nbad" in shown

    browse(tmp_path / "run", use)


def test_preferences_whose_examples_are_gone_keep_their_rewards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = {"prompt": "Spell it.", "chosen": "good", "rejected": "bad"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n", encoding="utf-8")
    recipe = MODEL + (
        f'preference align {{ model = policy data = pairs("{tmp_path}/pairs.jsonl") '
        "loss = dpo(beta = 0.1) optimizer = adam(1e-5) batch = 1 steps = 1 }\n"
    )
    compared = [{"stage": "align", "step": 1, "example": n, "rewards": [0.5, 0.0]} for n in (0, 1)]
    write_folder(
        tmp_path / "run",
        recipe,
        metrics=[{"stage": "align", "step": 1, "accuracy": 1.0}],
        comparisons=compared,
    )
    examples = tmp_path / "run" / "examples-align.jsonl"
    show = ["show", str(tmp_path / "run"), "--limit", "2"]
    assert main(show) == 0
    assert "margin ▲ +0.500\nprompt:\n  (no longer in examples-align.jsonl)" in (
        capsys.readouterr().out
    )
    # A damaged line does not give its number to the next one.
    kept = json.dumps({"place": "pairs.jsonl:2", "shown": pair})
    examples.write_text('{"place": "pai\n' + kept + "\n", encoding="utf-8")
    assert main(show) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert "(no longer in" in first
    assert "pairs.jsonl:2" in second


def test_a_match_is_one_conversation_of_all_seats(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text("class Count:\n    def __init__(self, seed): ...\n")
    recipe = MODEL + (
        f'env count = python_game("{tmp_path}/count.py:Count") |> play(against = self)\n'
        "train main { model = policy env = count batch = groups(1, group_size = 2) "
        "sampling = sample(max_tokens = 4) advantage = rloo() loss = importance_sampling() "
        "optimizer = adam(1e-4) steps = 1 }\n"
    )

    def part(role: str, moves: list[int], reward: float) -> dict[str, Any]:
        turn = {"reward": reward, "metrics": {"win": reward}, "prompt_tokens": 3, "tokens": 1}
        turns = [
            turn
            | {"observation": f"seen {n}", "action": f"said {n}", "stop_reason": "stop", "move": n}
            for n in moves
        ]
        about = {"stage": "main", "step": 1, "env": "count", "task": 0, "member": 0, "role": role}
        about |= {"digest": "00", "reward": reward, "ended": "done", "error": None, "staleness": 0}
        return about | {"advantages": [reward] * len(turns), "turns": turns}

    rollouts = [part("first", [0, 2], 1.0), part("second", [1], -1.0)]
    metrics = [{"stage": "main", "step": 1, "rollouts/played": 2.0, "reward/mean": 0.0}]
    write_folder(tmp_path / "run", recipe, metrics=metrics, rollouts=rollouts)

    async def use(pilot: Pilot[None]) -> None:
        await press(pilot, "enter", "down", "enter", "down")
        assert chosen(pilot) == "0 first r1 ▲+1.00"
        found = [line for line in page(pilot).splitlines() if line.startswith(("──", "  said"))]
        assert found == [
            "── move 1 of 3, first",
            "  said 0",
            "── move 2 of 3, second",
            "  said 1",
            "── move 3 of 3, first",
            "  said 2",
        ]

    browse(tmp_path / "run", use)


def test_an_episode_shows_why_it_failed_what_it_called_and_what_a_judge_said(
    folder: Path, tmp_path: Path
) -> None:
    write_run(tmp_path / "run", done=2)
    lines = (tmp_path / "run" / "rollouts.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    first |= {"retried": ["TimeoutError: too late"], "error": "KeyError: 'x'", "failure": "f1"}
    first["turns"][0]["calls"] = [["1", "python", "print(4)"]]
    first["turns"][1]["verdicts"] = [{"judge": "helpful", "score": 0.5, "reason": "[bold]fair"}]
    cause = {"key": "f1", "error": "KeyError: 'x'", "place": "mine.py:3", "traceback": "in mine.py"}
    write_lines(tmp_path / "run" / "failures.jsonl", [cause])
    write_lines(tmp_path / "run" / "rollouts.jsonl", [first])

    async def use(pilot: Pilot[None]) -> None:
        await press(pilot, "x")
        for text in (
            "↻ played again after: TimeoutError: too late",
            "✕ KeyError: 'x'",
            "raised at mine.py:3\nin mine.py",
            "call of python:\n  print(4)",
            "judge helpful: 0.5\n  [bold]fair",
        ):
            assert text in page(pilot)
        await press(pilot, "home")
        assert "raised at mine.py:3" in page(pilot)  # of the run: all its causes

    browse(tmp_path / "run", use)


def test_a_damaged_record_is_said_to_be_damaged(tmp_path: Path) -> None:
    write_run(tmp_path / "run", done=2)
    lines = (tmp_path / "run" / "rollouts.jsonl").read_text().splitlines()
    first, second = json.loads(lines[0]), json.loads(lines[1])
    first["turns"] = [{"observation": "cut by hand"}]
    del second["advantages"], second["staleness"], second["role"]  # of an older version
    write_lines(tmp_path / "run" / "rollouts.jsonl", [first, second])

    async def use(pilot: Pilot[None]) -> None:
        await press(pilot, "home", "w")
        assert "This record cannot be read" in page(pilot)
        await press(pilot, "home", "b")
        assert "I say 1." in page(pilot)

    browse(tmp_path / "run", use)


def test_runs_are_listed_and_opened(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one", planned=4)
    write_folder(tmp_path / "runs" / "two", SFT)

    async def use(pilot: Pilot[None]) -> None:
        assert isinstance(pilot.app.screen, RunsScreen)
        table = pilot.app.screen.query_one(DataTable)
        assert [str(table.get_row_at(n)[0]) for n in range(table.row_count)] == ["one", "two"]
        await press(pilot, "enter")
        assert chosen(pilot).startswith("step 4")
        await press(pilot, "question_mark")
        assert isinstance(pilot.app.screen, HelpScreen)
        await press(pilot, "escape", "escape")
        assert isinstance(pilot.app.screen, RunsScreen)

    browse(tmp_path / "runs", use, size=(120, 30))


def test_the_mouse_and_the_page_alone(folder: Path) -> None:
    async def use(pilot: Pilot[None]) -> None:
        await press(pilot, "home")
        await pilot.click("#list", offset=(12, 2))
        await settle(pilot)
        assert chosen(pilot) == labels(pilot)[2]
        await press(pilot, "z")
        assert not screen(pilot).outline.display
        assert screen(pilot).page.size.width > 70
        await press(pilot, "escape", "home", "b", "n")
        assert screen(pilot).page.scroll_target_y > 0
        await press(pilot, "p", "t")
        assert pilot.app.theme == "textual-light"

    browse(folder, use, size=(80, 14))


def test_the_command_says_what_it_needs(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["show"]) == 2
    assert "which run?" in capsys.readouterr().err
    assert main(["show", str(folder), "--browse"]) == 1
    assert "needs a terminal" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["show", str(folder), "--browse", "--step", "3"]) == 2
    assert "--step does not go with --browse" in capsys.readouterr().err
    assert main(["show", str(folder / "nothing"), "--browse"]) == 1
    assert "there are no runs" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "textual", None)
    for arguments in (["show"], ["show", str(folder), "--browse"]):
        assert main(arguments) == 1
        assert "pip install 'rlc[browse]'" in capsys.readouterr().err
    assert main(["show", str(folder)]) == 0
    assert "main step 8" in capsys.readouterr().out
