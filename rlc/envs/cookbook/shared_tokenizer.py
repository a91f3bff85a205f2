"""A tokenizer that several threads may use."""

from __future__ import annotations

import functools
import threading
from typing import Any


class SharedTokenizer:
    """Any tokenizer, used by one thread at a time.

    The cookbook renders prompts in threads (`MessageEnv`), all with one tokenizer, and changes its
    settings from call to call; a fast one of transformers then fails with "Already borrowed".
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # looked up when the object is copied
            raise AttributeError(name)
        value = getattr(self._tokenizer, name)
        if not callable(value):
            return value

        @functools.wraps(value)
        def alone(*args: Any, **settings: Any) -> Any:
            with self._lock:
                return value(*args, **settings)

        return alone

    def __call__(self, *args: Any, **settings: Any) -> Any:
        with self._lock:
            return self._tokenizer(*args, **settings)

    def __len__(self) -> int:
        return len(self._tokenizer)
