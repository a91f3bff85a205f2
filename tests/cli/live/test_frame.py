"""The live view as a picture: what it shows of each kind of run at the usual sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import made_up_runs
import pytest
from golden import check_golden
from hypothesis import given
from hypothesis import strategies as st
from live_states import (
    begun,
    episode,
    evaluating,
    game,
    learnt_from_data,
    trained,
    turn,
)
from rich.cells import cell_len

from rlc.cli.live.frame import frame
from rlc.cli.live.state import RunState

EXPECTED = Path(__file__).parent / "expected"
NOW = 725.0
STATES: dict[str, Callable[[], RunState]] = {
    "mixture": trained,
    "supervised": lambda: learnt_from_data("warm_start.rl", "warmup"),
    "preferences": lambda: learnt_from_data("preferences.rl", "align"),
    "game": game,
    "evaluation": evaluating,
}
SIZES = ((80, 24), (120, 40), (200, 60))


def shown(state: RunState, width: int, height: int) -> list[str]:
    return [line.plain for line in frame(state, width, height, NOW)]


@pytest.mark.parametrize("name", STATES)
def test_a_run_at_the_usual_sizes(name: str) -> None:
    pictures = []
    for width, height in SIZES:
        lines = shown(STATES[name](), width, height)
        assert len(lines) <= height
        assert all(cell_len(line) <= width for line in lines)
        title = f"{width} × {height}"
        pictures += [f"{title} {'=' * (width - len(title) - 1)}", *map(str.rstrip, lines), ""]
    check_golden(EXPECTED / f"{name}.txt", "\n".join(pictures))


def test_what_matters_most_is_there_at_80_by_24() -> None:
    text = "\n".join(shown(trained(), 80, 24))
    for part in (
        "recipe.rl · seed 1 · runs/recipe-20261121-093000",
        "12 min 05 s",
        "▶ main 80/120   · heldout",
        "step 80 of 120   3 of 4 groups   left",
        "reward guess",
        "heldout pass@1",
        "kl 0.00",
        "gradient norm",
        "$8.80 of $20.00   about $4.40 to come",
        "1.2 steps stale   96 replies at once   backed off 2 times",
        "11 ToolError",
        "16 played again",
        "reward 1.000, 3 turns, done",
        "› It is 6 or 7. \\boxed{7}",
        "! 12% of the replies ran into max_tokens",
    ):
        assert part in text


def test_it_says_at_once_what_it_waits_for() -> None:
    state = RunState(made_up_runs.plan(8), Path("runs/x"), began=720.0)
    state.wait("opening deepseek-ai/DeepSeek-V3.1", 721.0)
    assert shown(state, 80, 24)[-1] == "opening deepseek-ai/DeepSeek-V3.1 …   4 s"
    state = begun(made_up_runs.plan(8), "main")
    assert shown(state, 80, 24)[-1].endswith("step 0 of 8   first rollouts …")
    state.playing = (1, 4)
    assert shown(state, 80, 24)[-1].endswith("step 0 of 8   first rollouts: 1 of 4 groups")


def test_more_to_come_than_the_budget_has_is_said() -> None:
    text = "\n".join(shown(trained(done=100, usd=0.187), 80, 24))
    assert "$18.70 of $20.00   about $3.74 to come: more than the budget" in text


NASTY = "\x1b[2J\x07\r\n漢字とかな\t👩‍💻 e\u0301 \u202e" + "wide" * 40


@given(
    width=st.integers(20, 220),
    height=st.integers(4, 70),
    done=st.integers(0, 40),
    asked=st.text(max_size=300) | st.just(NASTY),
    replied=st.text(max_size=300) | st.just(NASTY),
)
def test_it_fits_every_screen_and_hides_no_control_character(
    width: int, height: int, done: int, asked: str, replied: str
) -> None:
    state = trained(done, steps=40)
    state.episode = episode(turn(asked, replied), turn(replied, asked))
    state.notes.append(NASTY)
    lines = frame(state, width, height, NOW)
    assert len(lines) <= height
    for line in lines:
        assert line.cell_len <= width
        assert line.plain.isprintable()


def test_a_failed_episode_shows_its_error() -> None:
    state = trained()
    state.episode = episode(
        turn("2 + 2?", "4"), error="KeyError: 'answer'", cause="KeyError", credit=()
    )
    text = "\n".join(shown(state, 80, 24))
    assert "newest episode: guess, task 12, failed (KeyError)" in text
    assert "KeyError: 'answer'" in text
