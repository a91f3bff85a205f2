"""The snapshot says of TextArena what the installed TextArena does."""

from __future__ import annotations

import sys

import pytest
from golden import check_file
from stage_parts import flat

pytest.importorskip("textarena")

from rlc.catalog.facts import snapshot as stored
from rlc.catalog.facts import textarena_facts, textarena_ids
from rlc.compile.recipe import compile_source
from rlc.envs.games import TextArenaGame
from rlc.lang.source import Source
from tools import textarena_snapshot as snapshot

MEASURED = ("TicTacToe-v0", "KuhnPoker-v0", "Taboo-v0", "SecretMafia-v0")


def test_its_games_are_those_of_the_library() -> None:
    assert list(textarena_ids()) == snapshot.ids()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="taken with Python 3.11")
@pytest.mark.parametrize("env_id", [*MEASURED, "Chess-v0"])
def test_players_and_prompts_are_those_of_the_game(env_id: str) -> None:
    assert snapshot.probe(env_id) == stored("textarena")["games"][env_id]


def test_the_file_is_as_the_script_writes_it() -> None:
    written = snapshot.render(stored("textarena"))
    check_file(snapshot.PATH, written, "python -m tools.textarena_snapshot")


@pytest.mark.parametrize("env_id", MEASURED)
def test_a_game_is_begun_with_the_players_that_the_check_allows(env_id: str) -> None:
    (fewest, *_) = textarena_facts(env_id)["players"]
    text = (
        'model policy { base = "tiny" }\n'
        f'env game = textarena("{env_id}") |> play(against = self)\n'
        "train main { model = policy  env = game  batch = groups(2)  sampling = sample(8)\n"
        "  advantage = rae()  loss = ppo()  optimizer = adam(1e-3)  steps = 1 }\n"
    )
    plan = compile_source(Source("test.rl", text)).plan
    assert plan is not None
    env = flat(plan.stages[0]).envs[0]
    assert env.args == {"players": fewest, "illegal": None}
    assert TextArenaGame(env_id, fewest, seed=1).observe(0)
