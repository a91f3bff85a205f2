import re


def right(reply, row):
    """1 if the last number in the reply is the answer."""
    return re.findall(r"-?\d+", reply)[-1:] == [row["answer"]]


def brief(reply, row):
    """1 up to 20 characters, less for each one more."""
    return min(1.0, 20 / len(reply))
