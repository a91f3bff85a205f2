"""Losses that look at more than one token at a time, against their formulas by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from local_support import VOCABULARY, engine, folder, prompt, run
from tinker import types

from rlc.service.errors import ServiceError
from rlc.service.local.service import LocalService


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LocalService]:
    opened = engine(tmp_path)
    yield opened
    opened.close()


def inputs(**arrays: object) -> dict[str, types.TensorData]:
    return {
        key: types.TensorData.from_numpy(
            np.asarray(value, dtype=np.int64 if key == "target_tokens" else np.float32)
        )
        for key, value in arrays.items()
    }


def test_gspo_has_one_ratio_for_the_tokens_that_the_mask_marks(service: LocalService) -> None:
    rng = np.random.default_rng(1)
    sequences = [rng.integers(3, VOCABULARY, n) for n in (7, 4)]
    config = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.05}

    async def main() -> None:
        client = await service.create_lora_training_client(folder(), rank=4, seed=0)
        plain = [
            types.Datum(
                prompt(s[:-1].tolist()), inputs(target_tokens=s[1:], weights=np.ones(len(s) - 1))
            )
            for s in sequences
        ]
        scored = await client.forward(plain, "cross_entropy")
        expected, expected_gradient, data, surrogate = 0.0, [], [], []
        for sequence, output in zip(sequences, scored.loss_fn_outputs, strict=True):
            lp_T = np.asarray(output["logprobs"].to_numpy(), dtype=np.float64)
            q_T = (lp_T + rng.normal(0, 0.1, len(lp_T))).astype(np.float32)
            mask_T = (np.arange(len(lp_T)) >= 2).astype(np.float32)
            advantages_T = rng.normal(size=len(lp_T)).astype(np.float32) * mask_T
            ratio = np.exp(((lp_T - q_T) * mask_T).sum() / mask_T.sum())
            clipped = np.clip(ratio, 0.9, 1.05)
            chosen_T = np.minimum(ratio * advantages_T, clipped * advantages_T)
            expected -= chosen_T.sum()
            moves_T = ratio * advantages_T <= clipped * advantages_T
            expected_gradient.append(ratio * advantages_T * moves_T)
            tokens = prompt(sequence[:-1].tolist())
            data.append(
                types.Datum(
                    tokens,
                    inputs(
                        target_tokens=sequence[1:],
                        logprobs=q_T,
                        advantages=advantages_T,
                        sequence_ratio_mask=mask_T,
                    ),
                )
            )
            # The gradient of -Σ w·lp is that of the loss where w is its weight on each token.
            surrogate.append(
                types.Datum(
                    tokens, inputs(target_tokens=sequence[1:], weights=expected_gradient[-1])
                )
            )
        step = types.AdamParams(learning_rate=0.0)
        passed = await client.forward_backward(data, "gspo", config)
        assert passed.metrics["loss:sum"] == pytest.approx(expected, rel=1e-4)
        norm = (await client.optim_step(step)).metrics
        await client.forward_backward(surrogate, "cross_entropy")
        same = (await client.optim_step(step)).metrics
        assert norm is not None
        assert same is not None
        assert norm["grad_norm"] == pytest.approx(same["grad_norm"], rel=1e-4)

    run(main)


def test_cross_entropy_takes_several_targets_for_a_position(service: LocalService) -> None:
    tokens, rng = [5, 17, 40], np.random.default_rng(2)
    targets_TK = rng.integers(3, VOCABULARY, (3, 2))
    weights_TK = rng.random((3, 2)).astype(np.float32)

    async def main() -> None:
        client = await service.create_lora_training_client(folder(), rank=4, seed=0)
        single = [
            await client.forward(
                [
                    types.Datum(
                        prompt(tokens), inputs(target_tokens=targets_TK[:, k], weights=np.ones(3))
                    )
                ],
                "cross_entropy",
            )
            for k in range(2)
        ]
        both = types.Datum(prompt(tokens), inputs(target_tokens=targets_TK, weights=weights_TK))
        together = await client.forward([both], "cross_entropy")
        (output,) = together.loss_fn_outputs
        lp_TK = output["logprobs"].to_numpy()
        assert lp_TK.shape == (3, 2)
        for k, alone in enumerate(single):
            np.testing.assert_allclose(
                lp_TK[:, k], alone.loss_fn_outputs[0]["logprobs"].to_numpy(), rtol=1e-5
            )
        assert together.metrics["loss:sum"] == pytest.approx(-(weights_TK * lp_TK).sum(), rel=1e-5)

    run(main)


@pytest.mark.parametrize(
    ("loss", "targets", "weights", "said"),
    [
        ("cross_entropy", (3, 2), (3,), "weights has the shape .3., but target_tokens has .3, 2."),
        ("cross_entropy", (2, 2), (2, 2), "the model input has 3 tokens"),
        ("importance_sampling", (3, 2), (3, 2), "the model input has 3 tokens"),
    ],
)
def test_arrays_of_other_shapes_are_refused(
    service: LocalService, loss: str, targets: tuple[int, ...], weights: tuple[int, ...], said: str
) -> None:
    names = ("weights",) if loss == "cross_entropy" else ("logprobs", "advantages")
    arrays = {name: np.ones(weights) for name in names}
    datum = types.Datum(prompt([5, 17, 40]), inputs(target_tokens=np.full(targets, 4), **arrays))

    async def main() -> None:
        client = await service.create_lora_training_client(folder(), rank=4, seed=0)
        with pytest.raises(ServiceError, match=said):
            await client.forward_backward([datum], loss)

    run(main)
