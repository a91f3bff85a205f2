"""What the game gives, and that the same seed begins the same game."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from game import make


def test_the_members_of_a_group_play_the_same_game() -> None:
    source = make("aeot")
    one, two = source.group(seed=7, size=2)
    assert one.first == two.first == source.group(seed=7, size=1)[0].first


def test_each_reply_is_worth_its_share_of_the_letter() -> None:
    (episode,) = make("eo").group(seed=1, size=1)
    first, second = episode.letters
    one, two = episode.step(2 * first + "xx"), episode.step(3 * second + "x")
    assert (one.reward, one.done) == (0.5, False)
    assert (two.reward, two.done) == (0.75, True)
