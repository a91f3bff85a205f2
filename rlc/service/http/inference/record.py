"""The answered requests of an endpoint in a file, to the token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

from attrs import define, field

from rlc.errors import Error
from rlc.service.http.inference.endpoint import Answered


@define(eq=False)
class Recorder:
    """Adds a line (JSON) to a file for each request, with its exact tokens and their logprobs.
    Keys of callers are not written. Raise Error if the file cannot be written."""

    path: Path
    _file: IO[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        try:
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise Error(f"cannot write {self.path}: {error}") from error

    def __call__(self, answered: Answered) -> None:
        """Write a request."""
        draw = answered.draw
        row = {
            "id": answered.id,
            "model": answered.model,
            "path": answered.path,
            "session": answered.caller.session,
            "messages": answered.messages,
            "tools": [tool.shown() for tool in answered.tools],
            "temperature": draw.temperature,
            "top_p": draw.top_p,
            "max_tokens": draw.max_tokens,
            "seed": draw.seed,
            "prompts": [list(prompt) for prompt in answered.prompts],
            "choices": [
                {
                    "token_ids": list(choice.token_ids),
                    "logprobs": list(choice.logprobs),
                    "stop_reason": choice.stop_reason,
                    "message": choice.message,
                }
                for choice in answered.choices
            ],
            "user": answered.user,
            "metadata": dict(answered.metadata),
        }
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
