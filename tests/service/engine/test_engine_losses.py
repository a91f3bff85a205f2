"""Losses that look at more than one token at a time, against their formulas by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from local_support import VOCABULARY, folder, prompt, run
from tinker import types

from rlc.algo import LOSSES
from rlc.algo.served import builtin_loss_and_grad
from rlc.service.engine import losses
from rlc.service.engine.service import LocalService
from rlc.service.interface import ServiceError


def inputs(**arrays: object) -> dict[str, types.TensorData]:
    return {
        key: types.TensorData.from_numpy(
            np.asarray(value, dtype=np.int64 if key == "target_tokens" else np.float32)
        )
        for key, value in arrays.items()
    }


def test_gspo_has_one_ratio_for_all_tokens_of_those_that_the_mask_marks(
    service: LocalService,
) -> None:
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
            advantages_T = rng.normal(size=len(lp_T)).astype(np.float32)
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


@pytest.mark.parametrize("name", LOSSES)
def test_datums_together_have_the_value_and_the_gradient_of_each_alone(name: str) -> None:
    """In float64, with thresholds, marks and advantages that differ from token to token."""
    rng, lengths = np.random.default_rng(3), (9, 1, 5)
    size, loss = sum(lengths), LOSSES[name]
    columns = {
        "logprobs": rng.normal(-2, 0.5, size),
        "advantages": rng.normal(size=size),
        "weights": rng.normal(size=size),
        "sequence_ratio_mask": rng.integers(0, 2, size).astype(np.float64),
        "sampled": rng.integers(0, 2, size).astype(np.float64),
        "clip_low_threshold": rng.uniform(0.7, 1.0, size),
        "clip_high_threshold": rng.uniform(1.0, 1.3, size),
        "beta": np.full(size, 0.3),
        "kl_coeff": np.full(size, 0.3),
    }
    read = {*loss.reads.values(), *loss.settings.values(), loss.marks} - {None}
    columns = {key: column for key, column in columns.items() if key in read}
    lp_M = torch.tensor(rng.normal(-2, 0.5, size), requires_grad=True)
    joined = {key: torch.tensor(column) for key, column in columns.items()}
    summed = losses.LOSSES[name].sum_M(lp_M, {**joined, "lengths_D": torch.tensor(lengths)})
    (grad_M,) = torch.autograd.grad(summed, lp_M)
    config = {key: 0.3 for key in read if key in ("beta", "kl_coeff")}
    ends = np.cumsum(lengths)[:-1]
    inputs = {key: np.split(column, ends) for key, column in columns.items() if key not in config}
    alone = [
        builtin_loss_and_grad(name, config, lp_T, {k: parts[i] for k, parts in inputs.items()})
        for i, lp_T in enumerate(np.split(lp_M.detach().numpy(), ends))
    ]
    assert summed.item() == pytest.approx(sum(value for value, _ in alone), rel=1e-12)
    expected_M = np.concatenate([grad_T for _, grad_T in alone])
    np.testing.assert_allclose(grad_M.numpy(), expected_M, rtol=1e-12, atol=1e-15)


SAMPLED: types.ProvenanceSpans = [
    types.PromptProvenanceSpan(sequence_id="s", length=2),
    types.SampledProvenanceSpan(sequence_id="s", length=3),
]


def test_stable_reinforce_counts_the_tokens_of_sampled_spans(service: LocalService) -> None:
    """Value and gradient are the local formula's, and nothing outside the spans moves them."""
    rng, config = np.random.default_rng(1), {"kl_coeff": 0.3}
    tokens = rng.integers(3, VOCABULARY, 6)
    targets, step = tokens[1:], types.AdamParams(learning_rate=0.0)

    async def main() -> None:
        client = await service.create_lora_training_client(folder(), rank=4, seed=0)

        async def norm(
            data: list[types.Datum], loss: str, config: dict[str, float] | None
        ) -> float:
            await client.forward_backward(data, loss, config)
            metrics = (await client.optim_step(step)).metrics
            assert metrics is not None
            return metrics["grad_norm"]

        text = prompt(tokens[:-1].tolist())
        weights = inputs(target_tokens=targets, weights=np.ones(5))
        scored = await client.forward([types.Datum(text, weights)], "cross_entropy")
        lp_T = scored.loss_fn_outputs[0]["logprobs"].to_numpy().astype(np.float64)
        q_T = (lp_T + rng.normal(0, 0.5, 5)).astype(np.float32)
        sampled_T = np.array([0, 0, 1, 1, 1], dtype=np.float32)
        columns: dict[str, np.ndarray] = {
            "logprobs": q_T,
            "advantages": rng.normal(size=5) * sampled_T,
        }
        value, grad_T = builtin_loss_and_grad(
            "stable_reinforce", config, lp_T, {**columns, "sampled": sampled_T}
        )
        datum = types.Datum(text, inputs(target_tokens=targets, **columns))
        datum = datum.with_provenance(SAMPLED, SAMPLED)
        passed = await client.forward([datum], "stable_reinforce", config)
        assert passed.metrics["loss:sum"] == pytest.approx(value, rel=1e-4)
        # The gradient of -Σ w·lp is that of the loss where w is its weight on each token.
        same = types.Datum(text, inputs(target_tokens=targets, weights=-grad_T))
        expected = await norm([same], "cross_entropy", None)
        assert await norm([datum], "stable_reinforce", config) == pytest.approx(expected, rel=1e-4)
        elsewhere = {**columns, "logprobs": q_T - 5 * (1 - sampled_T)}
        moved = types.Datum(text, inputs(target_tokens=targets, **elsewhere))
        again = moved.with_provenance(SAMPLED, SAMPLED)
        assert await norm([again], "stable_reinforce", config) == pytest.approx(expected, rel=1e-4)
        # Cookbook 0.6.1 names no strength.
        usual = await client.forward([datum], "stable_reinforce")
        named = await client.forward([datum], "stable_reinforce", {"kl_coeff": 0.01})
        assert usual.metrics["loss:sum"] == named.metrics["loss:sum"] != passed.metrics["loss:sum"]

    run(main)


def test_stable_reinforce_refuses_what_it_cannot_place(service: LocalService) -> None:
    arrays = inputs(target_tokens=[5, 6, 7, 8, 9], logprobs=np.zeros(5), advantages=np.ones(5))
    datum = types.Datum(prompt([4, 5, 6, 7, 8]), arrays)
    named = datum.with_provenance(SAMPLED, SAMPLED)

    async def main() -> None:
        client = await service.create_lora_training_client(folder(), rank=4, seed=0)
        for data, said in (
            (datum, "needs provenance: sample with record_stability_info"),
            (named, "advantages on sampled tokens only"),
        ):
            with pytest.raises(ServiceError, match=said):
                await client.forward_backward([data], "stable_reinforce", {"kl_coeff": 0.1})

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
