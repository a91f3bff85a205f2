"""From turns to datums: merged where they extend, shifted by one, masked to sampled tokens."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinker.types import (
    EncodedTextChunk,
    ImageChunk,
    ModelInput,
    ProvenanceSpans,
    SampledProvenanceSpan,
)

from rlc.catalog.builtins.losses import LIKELIHOOD
from rlc.chat.turns import split_chunks
from rlc.plan.parts import LossPlan
from rlc.runtime.records import Turn
from rlc.runtime.rollouts.tokens import TokenSequence, merged_sequences
from rlc.runtime.updates.datums import TrainingDatum, episode_datums

pytestmark = pytest.mark.plain


def turn(prompt: list[int], tokens: list[int], name: str = "") -> Turn:
    logprobs = [-float(t) for t in tokens]
    return Turn(prompt, tokens, logprobs, "", "", 0.0, "stop", sequence_id=name)


def datums(
    turns: list[Turn], advantages: list[float], chosen: list[bool] | None = None
) -> list[TrainingDatum]:
    mask = np.array([True] * len(advantages) if chosen is None else chosen)
    return episode_datums(turns, np.array(advantages), mask)


def test_targets_are_shifted_and_only_sampled_tokens_carry_an_advantage() -> None:
    (datum,) = datums([turn([1, 2, 3], [4, 5])], [0.5])
    assert datum.inputs == [1, 2, 3, 4]
    assert datum.targets_T.tolist() == [2, 3, 4, 5]
    assert datum.mask_T.tolist() == [False, False, True, True]
    assert datum.advantages_T.tolist() == [0, 0, 0.5, 0.5]
    assert datum.logprobs_T.tolist() == [0, 0, -4, -5]


def test_turns_that_extend_are_one_datum_with_each_turns_own_advantage() -> None:
    played = [turn([1, 2], [3]), turn([1, 2, 3, 8], [4, 5])]
    (datum,) = datums(played, [1.0, -2.0])
    assert datum.inputs == [1, 2, 3, 8, 4]
    assert datum.advantages_T.tolist() == [0, 1, 0, -2, -2]


def test_a_turn_that_rewrites_the_past_starts_a_new_datum() -> None:
    played = [turn([1, 2], [3]), turn([1, 9, 3, 8], [4])]
    first, second = datums(played, [1.0, 1.0])
    assert first.inputs == [1, 2]
    assert second.inputs == [1, 9, 3, 8]


def test_turns_left_out_by_the_subsample_are_context_only() -> None:
    played = [turn([1, 2], [3]), turn([1, 2, 3, 8], [4])]
    (datum,) = datums(played, [1.0, 1.0], [False, True])
    assert datum.mask_T.tolist() == [False, False, False, True]
    assert datums(played, [1.0, 1.0], [False, False]) == []


def test_each_token_carries_its_own_advantage() -> None:
    """Wherever its sequence has it: after an episode, in one that begins with a reply, in none."""
    played = [turn([1], [3, 4]), turn([1, 3, 4, 8], []), turn([9], [5, 6, 7]), turn([], [2, 3])]
    numbers_A = np.arange(1.0, 8.0)
    ones_T = np.ones(4)
    found = episode_datums(played, ones_T, ones_T > 0, None, numbers_A)
    assert [datum.advantages_T.tolist() for datum in found] == [[1, 2, 0], [3, 4, 5], [7]]
    some_T = np.array([False, True, True, True])
    found = episode_datums(played, ones_T, some_T, None, numbers_A)
    assert [datum.advantages_T.tolist() for datum in found] == [[3, 4, 5], [7]]


token_lists = st.lists(st.integers(0, 9), min_size=1, max_size=4)


@given(st.lists(st.tuples(token_lists, token_lists), min_size=1, max_size=5))
def test_merging_keeps_every_sampled_token_once(parts: list[tuple[list[int], list[int]]]) -> None:
    """An episode of a chat: each prompt is all tokens so far and a new observation."""
    turns, seen = [], list[int]()
    for observation, reply in parts:
        turns.append(turn(seen + observation, reply))
        seen = [*turns[-1].prompt, *reply]
    (datum,) = datums(turns, [1.0] * len(turns))
    assert [datum.inputs[0], *datum.targets_T.tolist()] == seen
    sampled = datum.targets_T[datum.mask_T].tolist()
    assert sampled == [token for _, reply in parts for token in reply]


def test_the_tinker_datum_has_what_each_loss_takes() -> None:
    (datum,) = datums([turn([1, 2], [3])], [0.5])
    ppo, entropy = datum.to_tinker(LossPlan("ppo", {})), datum.to_tinker(LIKELIHOOD)
    assert set(ppo.loss_fn_inputs) == {"target_tokens", "logprobs", "advantages"}
    assert set(entropy.loss_fn_inputs) == {"target_tokens", "weights"}
    assert entropy.loss_fn_inputs["weights"].data == [0.0, 0.5]
    assert ppo.model_input.to_ints() == [1, 2]


def test_pictures_are_inputs_and_never_targets() -> None:
    """A picture takes positions, in the second turn too, and what is trained on is the replies."""
    picture = ImageChunk(data=b"cat", format="png", expected_tokens=3)
    asked = ModelInput(chunks=[EncodedTextChunk(tokens=[1]), picture, EncodedTextChunk(tokens=[2])])
    first, chunks = split_chunks(asked)
    again = [*first, 7, 8, 3, *first[1:4], 4]
    turns = [
        Turn(first, [7, 8], [-0.1, -0.2], "", "", 0.0, "stop", chunks=chunks),
        Turn(again, [9], [-0.3], "", "", 1.0, "stop", chunks=chunks),
    ]
    (sequence,) = merged_sequences(turns)
    assert TokenSequence.read(json.loads(json.dumps(sequence.written()))) == sequence
    (datum,) = episode_datums(turns, np.array([1.0, 2.0]), np.array([True, True]))
    assert datum.targets_T.tolist() == [0, 0, 0, 2, 7, 8, 3, 0, 0, 0, 4, 9]
    assert datum.advantages_T.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 2]
    sent = datum.to_tinker(LossPlan("importance_sampling", {})).model_input
    text = [getattr(chunk, "tokens", "picture") for chunk in sent.chunks]
    assert text == [[1], "picture", [2, 7, 8, 3], "picture", [4]]
    assert sent.length == len(datum.targets_T)


@given(
    st.lists(st.tuples(token_lists, token_lists, st.booleans()), min_size=1, max_size=5).filter(
        lambda parts: any(chosen for *_, chosen in parts)
    )
)
def test_spans_name_every_token_where_a_request_had_it(
    parts: list[tuple[list[int], list[int], bool]],
) -> None:
    """Looked up in the prompts and replies they name, the spans give the datum's own tokens, and
    those that count as sampled are those that are trained on."""
    turns, seen = list[Turn](), list[int]()
    for observation, reply, _ in parts:
        turns.append(turn(seen + observation, reply, name=f"s{len(turns)}"))
        seen = [*turns[-1].prompt, *reply]
    (datum,) = datums(turns, [1.0] * len(turns), [chosen for *_, chosen in parts])
    trimmed = datum.trimmed()
    assert trimmed.mask_T[-1]
    sent = trimmed.to_tinker(LossPlan("stable_reinforce", {}))
    by_name = {played.sequence_id: played for played in turns}

    def looked_up(spans: ProvenanceSpans | None) -> tuple[list[int], list[bool]]:
        tokens, sampled = list[int](), list[bool]()
        for span in spans or []:
            is_sampled = isinstance(span, SampledProvenanceSpan)
            named = by_name[span.sequence_id]
            source = named.tokens if is_sampled else named.prompt
            tokens += source[span.offset : span.offset + span.length]
            sampled += [is_sampled] * span.length
        return tokens, sampled

    assert looked_up(sent.model_input_spans)[0] == trimmed.inputs == sent.model_input.to_ints()
    targets, sampled = looked_up(sent.loss_fn_input_spans)
    assert targets == trimmed.targets_T.tolist()
    assert sampled == trimmed.mask_T.tolist()
