"""What a reward pays replies of a policy that knows nothing.

Whatever such a reply earns a policy learns first. Each is graded beside the right answer of a row,
in the forms that answers usually have; a reward has been found to know the right answer where it
pays it more than a wrong one in the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from rlc.plan import SOLVED
from rlc.records import frozen

WITHOUT_ANSWER = "I do not know."
_FORMS = (
    *("{}", "The answer is {}.", "Answer: {}", "#### {}", "\\boxed{{{}}}", "<answer>{}</answer>"),
    "<think>\nI think.\n</think>\n<answer>\n{}\n</answer>",
)
_MARKS = slice(4, None)  # of the forms that say where the answer is
_USUAL = "0 1 2 3 4 5 6 7 8 9 10 A B C D E yes no true false"
_WRONG = "nothing", "0", "none of them"
EMPTY, ECHO, MARKS_ALONE = "an empty reply", "an echo of the prompt", "the marks of an answer alone"
LONG, LISTED = "a long reply that says nothing", "a list of usual answers"
BURIED = "a list of wrong answers with the right one in it"


@frozen
class UnearnedReply:
    """What the ``reply`` of a policy that knows nothing ``earned``, and what was ``due`` to the
    right answer; None if that is not known."""

    reply: str
    earned: float
    due: float | None


def unearned(
    rows: Sequence[tuple[str, str | None]], longest: int, worth: Callable[[int, str], float]
) -> tuple[UnearnedReply, ...]:
    """Return the replies that earn in most ``rows``, each a prompt with its right answer if that is
    known, as much as the right answer. ``worth`` returns what a reply to a row earns."""
    found: dict[str, list[UnearnedReply]] = {}
    for number, (prompt, answer) in enumerate(rows):
        others = [other for _, other in rows if other is not None]
        wrong = [other for other in (*others, *_WRONG) if other != answer]
        replies = _replies(prompt, answer, wrong, longest)
        for one in _of_row(replies, answer, wrong[0], partial(worth, number)):
            found.setdefault(one.reply, []).append(one)
    return tuple(each[0] for each in found.values() if 2 * len(each) > len(rows))


def _of_row(
    replies: Mapping[str, Sequence[str]],
    answer: str | None,
    wrong: str,
    worth: Callable[[str], float],
) -> Iterator[UnearnedReply]:
    nothing, due = worth(WITHOUT_ANSWER), None
    if answer is not None:
        right, other = ([worth(f.format(text)) for f in _FORMS] for text in (answer, wrong))
        most = max(right)
        knows = any(one > beside for one, beside in zip(right, other, strict=True))
        due = most if knows and (most > nothing or most >= SOLVED) else None
    paid = {kind: max(map(worth, texts)) for kind, texts in replies.items()}
    most = max(nothing, *(earned for kind, earned in paid.items() if kind != LONG))
    for kind, earned in paid.items():
        if due is not None:
            enough = earned >= due
        elif kind == LONG:
            enough = earned > most
        else:  # marks and silence that are paid in full, and not for their length
            enough = kind in (EMPTY, MARKS_ALONE) and SOLVED <= earned > max(nothing, paid[LONG])
        if enough:
            yield UnearnedReply(kind, earned, due)


def _replies(
    prompt: str, answer: str | None, wrong: Sequence[str], longest: int
) -> Mapping[str, Sequence[str]]:
    """Return replies of a policy that knows nothing, of each kind."""
    found: dict[str, Sequence[str]] = {
        EMPTY: [""],
        ECHO: [prompt],
        MARKS_ALONE: [form.format("") for form in _FORMS[_MARKS]],
        LISTED: [_USUAL],
    }
    if answer is not None:
        several = wrong[0], answer, *wrong[1:3]
        listed = [form.format(", ".join(several)) for form in _FORMS]
        apart = ["\n".join(form.format(one) for one in several) for form in _FORMS]
        found[BURIED] = [*listed, *apart]
    longest = max(longest, *(2 * len(text) for texts in found.values() for text in texts))
    return found | {LONG: [(WITHOUT_ANSWER * longest)[:longest]]}
