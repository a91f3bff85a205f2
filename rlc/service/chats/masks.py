"""What may be sampled next in a reply of a form, over all tokens of a vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import define, field, frozen

from rlc.service.chats.forms import BegunReply, marks_of, shared_start
from rlc.service.chats.grammar import State, after, shortest

_HALF = "\N{REPLACEMENT CHARACTER}"  # of bytes that are no complete character


@frozen(eq=False)
class TokenTexts:
    """The texts of all tokens that are text, sorted, each with the number of characters that it
    shares with the one before."""

    size: int
    texts: dict[int, str]
    shared: tuple[int, ...]


@lru_cache(maxsize=4)
def token_texts(tokenizer: Any) -> TokenTexts:
    """Return the texts of a tokenizer's tokens, without those of incomplete characters."""
    marks, size = marks_of(tokenizer), len(tokenizer)
    *_, anchor = tokenizer.encode("a", add_special_tokens=False)
    start = len(tokenizer.decode([anchor]))  # some tokenizers drop a space at the start
    texts = {i: tokenizer.decode([anchor, i])[start:] for i in range(size) if i not in marks}
    known = sorted((text, i) for i, text in texts.items() if text and _HALF not in text)
    shared = (len(shared_start(a, b)) for (a, _), (b, _) in pairwise(known))
    return TokenTexts(size, {i: text for text, i in known}, (0, *shared))


_NEVER = 2**30
_MOST_WAYS = 10**7  # to go on, over all tokens: seconds
Costs = npt.NDArray[np.int32]


@define(eq=False)
class FormMask:
    """What may be sampled next in a reply. A token is allowed if those that are left can complete
    the form after it; if they are too few for any, the one after which the fewest are missing. From
    where there are too many ways to go on, all are allowed."""

    known: TokenTexts
    tail: tuple[int, ...]
    state: State
    costs: dict[State, Costs | None]  # tokens to the end after each token; of all samples
    free: tuple[int, ...] = ()
    _read: int = field(default=0, init=False)
    _ending: int = field(default=0, init=False)  # tokens of the tail so far
    _open: bool = field(default=False, init=False)

    def allowed(self, tokens: Sequence[int], left: int) -> npt.NDArray[np.bool_]:
        """Return which tokens may follow ``tokens``, if ``left`` are sampled at most."""
        costs = None
        if not self._open and not (tokens and tokens[0] in self.free):
            for token in tokens[self._read :]:
                self._add(token)
            costs = self._next()
        if costs is None:
            self._open = True
            return np.ones(self.known.size, np.bool_)
        self._read = len(tokens)
        fitting: npt.NDArray[np.bool_] = costs < left
        fitting = fitting if fitting.any() else costs == costs.min()
        if not tokens:
            fitting[[*self.free]] = True
        return fitting

    def _add(self, token: int) -> None:
        if self._ending or token == self.tail[0]:
            self._ending += 1
        for one in self.known.texts.get(token, ""):
            self.state = after(self.state, one)

    def _next(self) -> Costs | None:
        if self._ending:
            costs = np.full(self.known.size, _NEVER, np.int32)
            costs[self.tail[min(self._ending, len(self.tail) - 1)]] = 0
            return costs
        if self.state not in self.costs:
            self.costs[self.state] = self._costs_of(self.state)
        return self.costs[self.state]

    def _costs_of(self, state: State) -> Costs | None:
        ways = 0
        costs = np.full(self.known.size, _NEVER, np.int32)
        least, states = dict[State, int](), [state]  # after each character of a text
        for (token, text), shared in zip(self.known.texts.items(), self.known.shared, strict=True):
            if ways > _MOST_WAYS:
                return None
            if shared >= len(states):  # the text before had no way on before it ended
                continue
            del states[shared + 1 :]
            for one in text[shared:]:
                ways += len(states[-1])
                if not (next_state := after(states[-1], one)):
                    break
                states.append(next_state)
            else:
                if (last := states[-1]) not in least:
                    least[last] = min(shortest(last) + len(self.tail), _NEVER)
                costs[token] = least[last]
        if not shortest(state):
            costs[self.tail[0]] = len(self.tail) - 1
        return costs


def masks_of(begun: BegunReply, tokenizer: Any) -> Callable[[], FormMask] | None:
    """Return what makes a mask for each reply that has begun so, if it has a grammar."""
    if begun.rest is None:
        return None
    known, costs = token_texts(tokenizer), dict[State, Costs | None]()
    given = known, begun.tail, begun.rest, costs, begun.free
    return lambda: FormMask(*given)
