"""What the reward gives to replies that are good, bad, and trying to get around it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reward import share

ROW = {"letter": "e"}


def test_the_share_of_the_letter_counts() -> None:
    assert share("tree", ROW) == 0.5
    assert share("moon", ROW) == 0.0


def test_there_is_no_way_around_writing_a_word() -> None:
    assert share("", ROW) == share("e", ROW) == 0.0
