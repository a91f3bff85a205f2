"""What replies are worth; the agent itself runs against any endpoint of OpenAI's API."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent import share


def test_the_share_of_the_letter_counts() -> None:
    assert share("tree", "e") == 0.5
    assert share("moon", "e") == 0.0


def test_a_reply_of_one_letter_or_none_is_worth_nothing() -> None:
    assert share("e", "e") == share("", "e") == 0.0
