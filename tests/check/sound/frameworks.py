"""Never imported: `rlc check` reads it."""

raise ImportError("a check imports nothing")


def load_environment(letter: str, turns: int = 2) -> object: ...


def action(reply: str) -> dict[str, str]:
    return {"message": reply}
