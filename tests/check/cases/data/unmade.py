"""An environment that cannot be made."""


def make():
    raise RuntimeError("there is no board to play on")
