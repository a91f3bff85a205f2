import re


def right(reply, row):
    """1 if the last number in the reply is the answer."""
    return re.findall(r"-?\d+", reply)[-1:] == [row["answer"]]
