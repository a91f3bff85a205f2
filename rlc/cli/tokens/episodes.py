"""The tokens of the episodes of a run, found and decoded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field

from rlc.cli.tokens.replies import Replies, replies_of
from rlc.cli.tokens.vocabulary import vocabulary_of
from rlc.runtime.journal.tokens import TOKENS_FILE, EpisodeKey, TokenIndex

if TYPE_CHECKING:
    from rlc.plan.records import Plan
    from rlc.runtime.journal.history import Record


@define(eq=False)
class TokenReader:
    """Reads them, also while the run goes on."""

    folder: Path
    plan: Plan
    _index: TokenIndex = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._index = TokenIndex(self.folder)

    def replies(self, record: Record) -> Replies:
        """Return the tokens of the turns of an episode; none of those that it was not trained on,
        or whose tokens were not kept."""
        who = (record["env"], record["task"], record["member"], record.get("role") or "")
        key = EpisodeKey(*who, max(0, record.get("reply", 0) - 1))
        found = self._index.episode(record["stage"], record["step"], key)
        return replies_of(found, vocabulary_of(self._base(record))) if found else {}

    def remark(self, record: Record, replies: Replies) -> str:
        """Say why there are no tokens of an episode, or none in words; "" if there is nothing to
        be said."""
        if replies:
            missing = vocabulary_of(self._base(record)).missing
            return f"Ids stand for tokens: {missing}." if missing else ""
        if record["error"] is not None or not record["turns"]:
            return ""
        if not record["advantages"]:
            return "No single tokens of it are here: it was not trained on."
        if not (self.folder / TOKENS_FILE).is_file():
            return f"No single tokens are here: the run has no {TOKENS_FILE}."
        return (
            "No single tokens of it are here: it was left out of training, or they were kept of "
            "the first episodes of its step only (`rlc run --tokens all`)."
        )

    def _base(self, record: Record) -> str:
        stages = {stage.name: stage for stage in self.plan.stages}
        return stages[record["stage"]].model.base
