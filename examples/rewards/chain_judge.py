"""Referees a game of words: as many as possible of the last letter before, in a new word."""

import json
import sys

*before, word = [message["content"].strip().lower() for message in json.load(sys.stdin)]
share = word.count(before[-1][-1]) / max(len(word), 1)
print(0.9 * share + 0.1 * (word not in before))
