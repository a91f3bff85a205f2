"""Examples to imitate: a `SupervisedDatasetBuilder` of tinker-cookbook. Its batches are read once,
in their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

from rlc.catalog import COOKBOOK_BATCH, COOKBOOK_COMMON, COOKBOOK_MODEL, COOKBOOK_RENDERER
from rlc.chat import Chunks, EnvError, split_chunks
from rlc.data import Code, explained, load_attribute, parameter_names
from rlc.envs.cookbook.sets import chosen_set, made_builder


@frozen
class ImitatedTokens:
    """Tokens with the marks of ``chunks``, and whether each is trained on, with one ``weight``: 1 /
    n where the cookbook takes the mean of an example."""

    tokens: list[int]
    trained: list[bool]
    chunks: Chunks
    weight: float


def builder_examples(
    code: Code, split: str, batch: int, tokenizer: Any, renderer: str
) -> Iterator[ImitatedTokens]:
    """Yield the examples of a builder's training or test set. Raise EnvError if it has none."""
    target = code.target

    def values(model: str) -> dict[str, Any]:
        given = {
            **dict.fromkeys(COOKBOOK_MODEL, model),
            **dict.fromkeys(COOKBOOK_RENDERER, renderer),
            COOKBOOK_BATCH: batch,
        }
        if COOKBOOK_COMMON in parameter_names(load_attribute(target)):
            from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig

            given[COOKBOOK_COMMON] = ChatDatasetBuilderCommonConfig(
                model_name_for_tokenizer=model,
                renderer_name=renderer,
                max_length=None,
                batch_size=batch,
            )
        return given

    builder = made_builder(code, tokenizer, renderer, values)
    try:
        data = chosen_set(target, builder(), split)
        for number in range(len(data)):
            for datum in data.get_batch(number):
                yield _imitated(target, datum)
    except EnvError:
        raise
    except Exception as error:
        raise EnvError(f"`{target}` failed to make its examples: {explained(error)}") from error


def _imitated(target: str, datum: Any) -> ImitatedTokens:
    import numpy as np

    inputs: Mapping[str, Any] = datum.loss_fn_inputs
    if set(inputs) != {"weights", "target_tokens"}:
        named = ", ".join(map(repr, inputs)) or "nothing"
        what = f"an example of `{target}` has {named}, and not `weights` and `target_tokens` alone"
        raise EnvError(what)
    weights_T, targets_T = (inputs[key].to_numpy() for key in ("weights", "target_tokens"))
    tokens, chunks = split_chunks(datum.model_input)
    if weights_T.shape != (len(tokens),) or targets_T.shape != (len(tokens),):
        raise EnvError(f"an example of `{target}` has not one weight and one target for each input")
    chosen_T = weights_T != 0
    weight = float(weights_T[chosen_T].max(initial=0.0))
    if not chosen_T.any():
        weight = 1.0
    elif not np.allclose(weights_T[chosen_T], weight) or weight <= 0:
        raise EnvError(
            f"the tokens of an example of `{target}` have different weights",
            "an `sft` stage trains on a token of an example like on the others, or not at all",
        )
    whole, trained = [*tokens, int(targets_T[-1])], [False, *chosen_T.tolist()]
    if any(whole[at] != targets_T[at - 1] for at, chosen in enumerate(trained) if chosen):
        raise EnvError(f"the targets of `{target}` are not the tokens after its inputs")
    return ImitatedTokens(whole, trained, chunks, weight)
