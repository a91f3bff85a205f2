"""Preferences in the forms that data sets have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve

from rlc.data.errors import DataError
from rlc.data.examples import (
    Comparison,
    ComparisonError,
    compares,
    read_comparison,
    read_labelled,
    read_ratings,
    repeats,
)
from rlc.data.messages import MessageError
from rlc.plan.sources import LabelledReplies, Pairs

PAIRS = Pairs("p.jsonl", None, None, None, "stop", None, None, None)
LABELLED = LabelledReplies("p.jsonl", None, None, None, "stop", None, None, None)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def texts(found: Comparison | None) -> tuple[list[str], list[str], list[str]]:
    """What was asked, the better and the worse reply."""
    assert found is not None
    asked = [str(m["content"]) for m in found.chosen.messages[: found.asked]]
    assert found.chosen.messages[: found.asked] == found.rejected.messages[: found.asked]
    replies = [
        [str(chat.messages[at]["content"]) for at in chat.trained]
        for chat in (found.chosen, found.rejected)
    ]
    return asked, replies[0], replies[1]


ASKED = [user("2 + 2?")]
FORMS: dict[str, Mapping[str, Any]] = {
    "text": {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"},
    "question": {"question": "2 + 2?", "chosen": "4", "rejected": "5"},
    "argilla": {"instruction": "2 + 2?", "chosen_response": "4", "rejected_response": "5"},
    "messages": {"prompt": ASKED, "chosen": [said("4")], "rejected": [said("5")]},
    "one message": {"prompt": ASKED, "chosen": said("4"), "rejected": said("5")},
    "implicit prompt": {"chosen": [*ASKED, said("4")], "rejected": [*ASKED, said("5")]},
    "ultrafeedback": {
        "prompt": "2 + 2?",
        "chosen": [*ASKED, said("4")],
        "rejected": [*ASKED, said("5")],
    },
    "hh": {
        "chosen": "\n\nHuman: 2 + 2?\n\nAssistant: 4",
        "rejected": "\n\nHuman: 2 + 2?\n\nAssistant: 5",
    },
    "arena": {
        "conversation_a": [user("2 + 2?"), said("5")],
        "conversation_b": [
            {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "4"}]},
        ],
        "winner": "model_b",
    },
    "cookbook": {
        "comparison": {
            "prompt_conversation": ASKED,
            "completion_A": [said("4")],
            "completion_B": [said("5")],
        },
        "label": "A",
    },
    "helpsteer3": {
        "context": ASKED,
        "response1": "5",
        "response2": "4",
        "overall_preference": 2,
    },
    "saferlhf": {
        "prompt": "2 + 2?",
        "response_0": "5",
        "response_1": "4",
        "better_response_id": 1,
    },
    "csv": {
        "prompt": '[{"role": "user", "content": "2 + 2?"}]',
        "chosen": "4",
        "rejected": "5",
    },
    "sharegpt": {
        "chosen": [{"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": "4"}],
        "rejected": [{"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": "5"}],
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_a_row_says_which_reply_is_better(form: str) -> None:
    assert texts(read_comparison(FORMS[form], PAIRS)) == (["2 + 2?"], ["4"], ["5"])


def test_fields_can_be_named() -> None:
    data = evolve(PAIRS, prompt="q", chosen="good", rejected="bad")
    row = {"q": "2 + 2?", "good": "4", "bad": "5", "chosen": "6", "prompt": "7"}
    assert texts(read_comparison(row, data)) == (["2 + 2?"], ["4"], ["5"])


def test_a_system_message_comes_from_its_own_field() -> None:
    row = {"system": "Be brief.", "question": "2 + 2?", "chosen": "4", "rejected": "5"}
    found = read_comparison(row, PAIRS)
    assert found is not None
    assert found.chosen.messages[0] == {"role": "system", "content": "Be brief."}
    assert found.asked == 2


def test_a_chat_counts_from_where_the_replies_part() -> None:
    start = [user("hi"), said("hello"), user("2 + 2?")]
    row = {
        "chosen": [*start, said("4")],
        "rejected": [*start, said("5"), user("sure?"), said("no")],
    }
    assert texts(read_comparison(row, PAIRS)) == (["hi", "hello", "2 + 2?"], ["4"], ["5", "no"])


@pytest.mark.parametrize(
    "row",
    [
        {**FORMS["arena"], "winner": "tie"},
        {**FORMS["arena"], "winner": "both_bad"},
        {**FORMS["cookbook"], "label": "Tie"},
        {**FORMS["helpsteer3"], "overall_preference": 0},
    ],
)
def test_a_tie_compares_nothing(row: Mapping[str, Any]) -> None:
    assert read_comparison(row, PAIRS) is None
    assert not compares(row, PAIRS)
    assert not repeats(row, PAIRS)


def test_a_reply_beside_itself_compares_nothing() -> None:
    row = {"prompt": "2 + 2?", "chosen": "4", "rejected": "4"}
    assert read_comparison(row, PAIRS) is None
    assert repeats(row, PAIRS)
    assert not repeats(FORMS["text"], PAIRS)


@pytest.mark.parametrize(
    ("row", "said_of_it"),
    [
        ({"chosen": "4", "rejected": "5"}, "no prompt that it answers"),
        ({"prompt": "2 + 2?", "chosen": "4"}, "no field `rejected`"),
        ({"prompt": "2 + 2?", "chosen": "4", "rejected": None}, "the field `rejected` is empty"),
        ({**FORMS["arena"], "winner": "model_c"}, "known are 'model_a', 'model_b', 'tie'"),
        (
            {"chosen": [user("1?"), said("1")], "rejected": [user("2?"), said("2")]},
            "do not answer the same prompt",
        ),
        (
            {"chosen": [*ASKED, said("4")], "rejected": [*ASKED, said("4"), user("?"), said("5")]},
            "beginning of the other",
        ),
        (
            {"prompt": "3?", "chosen": [*ASKED, said("4")], "rejected": [*ASKED, said("5")]},
            "does not begin with the prompt",
        ),
        ({"chosen": [said("4")], "rejected": [said("5")]}, "no prompt in common"),
        ({"chosen": [*ASKED], "rejected": [*ASKED, said("5")]}, "ends with"),
        ({"prompt": [said("4")], "chosen": "4", "rejected": "5"}, "a prompt ends with one"),
        ({"prompt": "2?", "chosen": 4, "rejected": "5"}, "neither text nor messages"),
        ({"prompt": "2?", "chosen": "", "rejected": "5"}, "is empty"),
    ],
)
def test_what_cannot_be_compared_is_said(row: Mapping[str, Any], said_of_it: str) -> None:
    with pytest.raises((ComparisonError, MessageError), match=said_of_it):
        read_comparison(row, PAIRS)
    assert compares(row, PAIRS)  # so that something is done about it


@pytest.mark.parametrize("label", [True, 1, 1.0, "true", "True", "1"])
def test_a_good_reply(label: object) -> None:
    row = {"prompt": "2 + 2?", "completion": "4", "label": label}
    found = read_labelled(row, LABELLED)
    assert found.good
    assert found.asked == 1
    assert found.reply.trained == (1,)


@pytest.mark.parametrize("label", [False, 0, "false", "0"])
def test_a_bad_reply(label: object) -> None:
    row = {"prompt": ASKED, "completion": [said("5")], "label": label}
    assert not read_labelled(row, LABELLED).good


def test_a_whole_chat_is_labelled_for_its_last_turn() -> None:
    chat = [user("hi"), said("hello"), user("2 + 2?"), said("4")]
    found = read_labelled({"reply": chat, "label": True}, LABELLED)
    assert (found.asked, found.reply.trained) == (3, (3,))


@pytest.mark.parametrize("label", ["good", 2, 0.5, None])
def test_a_label_is_true_or_false(label: object) -> None:
    with pytest.raises(DataError, match="label"):
        read_labelled({"prompt": "2 + 2?", "completion": "4", "label": label}, LABELLED)


MARGIN, BOTH = "rating_margin", ("chosen_rating", "rejected_rating")
RATED: list[tuple[Mapping[str, Any], Mapping[str, float]]] = [
    ({"chosen_rating": 4, "rejected_rating": 1.5}, dict(zip(BOTH, (4, 1.5), strict=True))),
    ({"score_chosen": 9.0, "score_rejected": 3}, {MARGIN: 6.0}),
    ({"chosen-rating": "9", "rejected-rating": "3.5"}, {MARGIN: 5.5}),
    ({"margin": 2, "score_chosen": 9, "score_rejected": 3}, {MARGIN: 2.0}),
    ({"overall_preference": -3}, {MARGIN: 3.0}),
]


@pytest.mark.parametrize(("row", "found"), RATED)
def test_ratings_are_read_as_data_sets_have_them(
    row: Mapping[str, Any], found: Mapping[str, float]
) -> None:
    assert read_ratings(row, PAIRS, tuple(found)) == found


def test_ratings_have_the_names_that_a_recipe_gives() -> None:
    row = {"margin": 2, "a": 5, "b": 1, "score": 7}
    named = evolve(PAIRS, chosen_rating="a", rejected_rating="b")
    assert read_ratings(row, named, [MARGIN]) == {MARGIN: 4.0}
    assert read_ratings(row, evolve(named, margin="score"), [MARGIN]) == {MARGIN: 7.0}
    assert read_ratings(row, LABELLED, ["rating"]) == {"rating": 7.0}
    assert read_ratings(row, named, ["rating"]) == dict(zip(BOTH, (5.0, 1.0), strict=True))


@pytest.mark.parametrize(
    ("row", "said_of_it"),
    [
        ({"score_chosen": 9}, "reads `rating_margin`, and there is no field `margin`, `rejected"),
        ({"margin": None}, "the field `margin` is empty"),
        ({"margin": True}, "`margin` is True; a rating is a finite number"),
        ({"margin": "much"}, "`margin` is 'much'"),
        ({"margin": float("nan")}, "`margin` is nan"),
        ({"margin": 10**400}, "a rating is a finite number"),
        ({"overall_preference": "inf"}, "`overall_preference` is 'inf'"),
    ],
)
def test_what_is_no_rating_is_said(row: Mapping[str, Any], said_of_it: str) -> None:
    with pytest.raises(ComparisonError, match=said_of_it):
        read_ratings(row, PAIRS, [MARGIN])
