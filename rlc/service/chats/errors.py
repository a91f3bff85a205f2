"""What is wrong with a chat."""

from __future__ import annotations

from typing import Literal

from rlc.chat import EnvError

Part = Literal["tools", "messages"]


class ChatError(EnvError):
    """A chat that cannot be shown to a model. ``part`` is what of it is wrong."""

    def __init__(self, message: str, hint: str | None = None, *, part: Part = "messages") -> None:
        super().__init__(message, hint)
        self.part: Part = part


class TooLongError(EnvError):
    """A chat that the model's context cannot hold."""
