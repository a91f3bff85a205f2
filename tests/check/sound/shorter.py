"""What compares the replies of a recipe beside it."""


def shorter(one: str, other: str, row: object) -> int:
    return len(other) - len(one)
