"""An agent, and what grades it."""


def solve(run):
    return 1.0


def grade(reply, row):
    return float(reply == row["prompt"])


def forgets(run):
    def reward():
        return 1.0

    reward()
