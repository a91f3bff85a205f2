"""Which of two replies is better, for `shorter.rl`."""


def shorter(one: str, other: str, _row: dict) -> int:
    return len(other) - len(one)
