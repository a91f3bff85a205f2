"""Supervised builders of the cookbook: examples as they are made, and what is not one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from chat_support import tokenizer
from tinker import types

from rlc.catalog.index import data_traits
from rlc.chat.turns import EnvError
from rlc.data.calls import Code
from rlc.data.errors import DataError
from rlc.envs.cookbook.examples import ImitatedTokens, builder_examples

pytestmark = pytest.mark.engine

PHOTO = types.ImageChunk(data=b"a photo", format="png", expected_tokens=3)


def datum(tokens: Sequence[int], weights: Sequence[float], *before: Any) -> types.Datum:
    """An example of these tokens, of which each but the first has a weight, after some chunks."""
    length = sum(chunk.length for chunk in before)
    text = types.EncodedTextChunk(tokens=list(tokens[:-1]))
    targets = np.array([0] * (length - 1) + list(tokens) if length else tokens[1:])
    return types.Datum(
        model_input=types.ModelInput(chunks=[*before, text]),
        loss_fn_inputs={
            "target_tokens": types.TensorData.from_numpy(targets.astype(np.int64)),
            "weights": types.TensorData.from_numpy(
                np.array([0.0] * length + list(weights), dtype=np.float32)
            ),
        },
    )


class Builder:
    """Its data sets are the class's, so that a test says what they are."""

    datums: Sequence[Any] = ()
    given: tuple[str, str, int] = ("", "", 0)

    def __init__(
        self, model_name: str, renderer_name: str, batch_size: int, shots: int = 1
    ) -> None:
        type(self).given = (model_name, renderer_name, batch_size)
        self.shots = shots

    def __call__(self) -> tuple[Any, None]:
        return Data([*self.datums] * self.shots), None


class Data:
    def __init__(self, datums: Sequence[Any]) -> None:
        self.datums = datums

    def __len__(self) -> int:
        return len(self.datums)

    def get_batch(self, index: int) -> list[Any]:
        return [self.datums[index]]


def made(monkeypatch: pytest.MonkeyPatch, *datums: Any, split: str = "train", **args: Any) -> Any:
    monkeypatch.setattr(Builder, "datums", datums)
    code = Code(f"{__name__}:Builder", "factory", args, data_traits("cookbook").decides)
    return list(builder_examples(code, split, 4, tokenizer(), "qwen3_instruct"))


def test_examples_are_the_tokens_that_they_train_on(monkeypatch: pytest.MonkeyPatch) -> None:
    one = datum([1, 2, 3, 4], [0, 1, 1])
    assert made(monkeypatch, one, shots=2) == 2 * [
        ImitatedTokens([1, 2, 3, 4], [False, False, True, True], {}, 1.0)
    ]
    assert Builder.given[1:] == ("qwen3_instruct", 4)


def test_photos_are_among_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = made(monkeypatch, datum([1, 2, 3], [0.5, 0.5], PHOTO))
    (mark,) = one.chunks
    assert one.tokens == [mark, mark, mark, 1, 2, 3]
    assert one.trained == [False, False, False, False, True, True]
    assert one.weight == 0.5  # the mean of an example, as the cookbook's chats have it


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (datum([1, 2, 3], [1.0, 0.25]), "have different weights"),
        (datum([1, 2, 3], [-1.0, -1.0]), "have different weights"),
        (datum([1, 2, 3], [1.0]), "not one weight and one target for each input"),
        (
            types.Datum(model_input=types.ModelInput.from_ints([1]), loss_fn_inputs={}),
            "has nothing",
        ),
    ],
)
def test_what_is_no_example_is_an_error(
    monkeypatch: pytest.MonkeyPatch, wrong: Any, says: str
) -> None:
    with pytest.raises(EnvError, match=says):
        made(monkeypatch, wrong)


def test_targets_are_the_inputs_shifted_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = datum([1, 2, 3], [1.0, 1.0])
    wrong.loss_fn_inputs["target_tokens"] = types.TensorData.from_numpy(np.array([7, 3]))
    with pytest.raises(EnvError, match="not the tokens after its inputs"):
        made(monkeypatch, wrong)


def test_a_set_that_is_not_there_and_arguments_that_nobody_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(EnvError, match="has no test set"):
        made(monkeypatch, split="test")
    with pytest.raises(DataError, match="does not take `shot`"):
        made(monkeypatch, shot=1)
