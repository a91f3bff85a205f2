"""Rewards of the recipes of `test_common_mistakes.py`: a few that are sound, and what people write by mistake."""

import re


def right(reply, row):
    return 1.0 if reply.split()[-1:] == [row["answer"]] else 0.0


def anywhere(reply, row):
    return 1.0 if row["answer"] in reply else 0.0


def wordy(reply, row):
    return right(reply, row) + len(reply) / 40


def tagged(reply, row):
    return 1.0 if re.search("<answer>.*</answer>", reply) else 0.0


def overlapping(reply, row):
    """The share of the letters of the answer that the reply has."""
    return sum(letter in reply for letter in row["answer"]) / len(row["answer"])


def brief(reply, row):
    return 1.0 - min(len(reply), 200) / 200


def parts(reply, row):
    return {"correct": right(reply, row), "brief": brief(reply, row)}


def always(reply, row):
    return 1.0


def never(reply, row):
    return 0.0


def always_parts(reply, row):
    return {"correct": 0.0, "format": 0.0}


def half_constant(reply, row):
    return {"correct": right(reply, row), "bonus": 0.5}


def constant_by_name(reply, row):
    score = 0.5
    return score


def constant_branches(reply, row):
    if row["answer"] in reply:
        return 1.0
    return 1.0


def huge_part(reply, row):
    return {"correct": right(reply, row), "length": 5.0 * len(reply)}


def inverted(reply, row):
    return 0.0 if row["answer"] in reply else 1.0


def as_text(reply, row):
    return "1.0"


def as_bool_text(reply, row):
    return "yes" if row["answer"] in reply else "no"


def nothing(reply, row):
    row["answer"] in reply


def not_a_number(reply, row):
    return float("nan")


def other_field(reply, row):
    return 1.0 if row["solution"] in reply else 0.0


def one_argument(reply):
    return 1.0


def three_arguments(reply, row, tokenizer):
    return 1.0


def a_list(reply, row):
    return [1.0]


def batch(completions, **kwargs):
    return [1.0 for _ in completions]


def fails(reply, row):
    return 1.0 / 0


def no_such(reply, row):
    return undefined_name  # noqa: F821


def shorter(first, second, row):
    return 1.0 if len(first) < len(second) else 0.0


def always_first(first, second, row):
    return 1.0


def solve(run):
    return run.task["prompt"]
