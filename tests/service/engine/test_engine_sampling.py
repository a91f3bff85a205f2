"""The embedded engine's samples: the right distribution, independent of other requests."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from local_support import (
    ARCHITECTURES,
    END,
    PROMPT,
    VOCABULARY,
    engine,
    folder,
    params,
    plain_model,
    policy_datum,
    prompt,
    random_group,
    run,
    trained,
)
from tinker import types

from rlc.service.engine.service import LocalService
from rlc.service.interface import ServiceClient, ServiceError


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sampler_and_trainer_agree_over_the_turns_of_episodes(
    service: LocalService, architecture: str
) -> None:
    async def episode(sampler: Any, member: int) -> tuple[list[int], list[float], int]:
        tokens, logprobs, hits = [*PROMPT], [0.0] * (len(PROMPT) - 1), 0
        for turn in range(3):
            seed = 10 * member + turn
            reply = await sampler.sample(prompt(tokens), 1, params(seed=seed, stop=None))
            sequence, observation = reply.sequences[0], [7, 8 + member]
            tokens += sequence.tokens + observation
            logprobs += sequence.logprobs + [0.0] * len(observation)
            hits += reply.prompt_cache_hit_tokens
        return tokens, logprobs, hits

    async def main() -> tuple[list[tuple[list[int], list[float], int]], list[np.ndarray]]:
        client = await trained(service, architecture)
        sampler = await client.save_weights_and_get_sampling_client()
        episodes = await asyncio.gather(*[episode(sampler, m) for m in range(6)])
        data = [policy_datum(t, lp, np.zeros(len(lp)).tolist()) for t, lp, _ in episodes]
        output = await client.forward(data, "importance_sampling")
        return episodes, [o["logprobs"].to_numpy() for o in output.loss_fn_outputs]

    episodes, trainer = run(main)
    for (_, logprobs, hits), theirs in zip(episodes, trainer, strict=True):
        ours = np.array(logprobs)
        assert np.abs(ours - theirs)[ours != 0].max() < 1e-4
        assert hits > len(PROMPT)  # the later turns did come from the cache


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logprobs_are_those_of_a_plain_forward_pass(
    service: LocalService, architecture: str
) -> None:
    async def main() -> Any:
        sampler = await service.create_sampling_client(base_model=folder(architecture))
        return await sampler.sample(
            prompt(PROMPT), 4, params(max_tokens=20), include_prompt_logprobs=True
        )

    reply = run(main)
    model = plain_model(architecture)
    for sequence in reply.sequences:
        tokens = torch.tensor([PROMPT + sequence.tokens])
        with torch.no_grad():
            expected = model(tokens).logits[0, :-1].log_softmax(-1)
        expected = expected.gather(1, tokens[0, 1:, None])[:, 0].numpy()
        found = reply.prompt_logprobs[1:] + sequence.logprobs
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_first_snapshot_is_the_base_model(service: LocalService) -> None:
    async def main() -> Any:
        client = await service.create_lora_training_client(folder(), rank=4, seed=0)
        samplers = [
            await service.create_sampling_client(base_model=folder()),
            await client.save_weights_and_get_sampling_client(),
        ]
        return [await s.sample(prompt(PROMPT), 4, params()) for s in samplers]

    base, first = run(main)
    for ours, theirs in zip(first.sequences, base.sequences, strict=True):
        assert ours.tokens == theirs.tokens
        assert ours.logprobs == theirs.logprobs


def test_a_snapshot_does_not_change_when_training_goes_on(service: LocalService) -> None:
    async def main() -> Any:
        client = await trained(service)
        sampler = await client.save_weights_and_get_sampling_client()
        before = await sampler.sample(prompt(PROMPT), 1, params())
        client.forward_backward(random_group(9), "importance_sampling")
        await client.optim_step(types.AdamParams(learning_rate=0.1))
        later = await client.save_weights_and_get_sampling_client()
        return [
            before,
            await sampler.sample(prompt(PROMPT), 1, params()),
            await later.sample(prompt(PROMPT), 1, params()),
        ]

    before, again, later = (reply.sequences[0] for reply in run(main))
    assert before.tokens == again.tokens
    np.testing.assert_allclose(before.logprobs, again.logprobs, atol=1e-5)
    assert later.logprobs[0] != pytest.approx(before.logprobs[0], abs=1e-3)


def test_a_seed_decides_the_tokens_regardless_of_other_requests(service: LocalService) -> None:
    async def main() -> Any:
        sampler = await service.create_sampling_client(base_model=folder())
        alone = await sampler.sample(prompt(PROMPT), 3, params())
        crowd = [
            sampler.sample(prompt([20 + i, *PROMPT[: i % 4]]), 1 + i % 3, params(seed=i))
            for i in range(12)
        ]
        among = sampler.sample(prompt(PROMPT), 3, params())
        fewer = sampler.sample(prompt(PROMPT), 2, params())
        await asyncio.gather(*crowd)
        return alone, await among, await fewer

    alone, among, fewer = run(main)
    expected = [s.tokens for s in alone.sequences]
    assert [s.tokens for s in among.sequences] == expected
    assert [s.tokens for s in fewer.sequences] == expected[:2]
    assert len({tuple(tokens) for tokens in expected}) == 3, "each sample has its own stream"


def test_without_a_seed_every_request_draws_afresh(service: LocalService) -> None:
    async def main() -> Any:
        sampler = await service.create_sampling_client(base_model=folder())
        return [await sampler.sample(prompt(PROMPT), 1, params(seed=None)) for _ in range(2)]

    one, two = run(main)
    assert one.sequences[0].tokens != two.sequences[0].tokens


def test_the_same_program_gives_the_same_bits_twice(tmp_path: Path) -> None:
    async def program(service: LocalService) -> Any:
        client = await service.create_lora_training_client(folder(), rank=4, seed=0)
        seen = []

        async def rollout(sampler: Any, seed: int) -> Any:
            first = await sampler.sample(prompt(PROMPT), 1, params(seed=seed, stop=None))
            longer = PROMPT + first.sequences[0].tokens + [seed + 4]
            second = await sampler.sample(prompt(longer), 1, params(seed=seed))
            return (
                first.sequences[0].logprobs_np.tobytes() + second.sequences[0].logprobs_np.tobytes()
            )

        for step in range(2):
            sampler = await client.save_weights_and_get_sampling_client()
            seen += await asyncio.gather(*[rollout(sampler, seed) for seed in range(8)])
            trained = client.forward_backward(random_group(step), "ppo")
            stepped: Any = client.optim_step(types.AdamParams(learning_rate=0.01))
            seen += [o["logprobs"].to_numpy().tobytes() for o in (await trained).loss_fn_outputs]
            seen.append(np.float64((await stepped).metrics["grad_norm"]).tobytes())
        return seen

    def once(root: Path) -> Any:
        service = engine(root)
        try:
            return run(lambda: program(service))
        finally:
            service.close()

    assert once(tmp_path / "a") == once(tmp_path / "b")


def test_who_asks_first_changes_no_bit(tmp_path: Path) -> None:
    """Eleven prompts of different lengths in one wave, in some orders."""

    async def program(service: LocalService, order: list[int]) -> dict[int, Any]:
        client = await trained(service)
        sampler = await client.save_weights_and_get_sampling_client()
        asked = {
            n: sampler.sample(prompt([*PROMPT[: 1 + n % 5], n]), 1 + n % 3, params(seed=n))
            for n in order
        }
        replies = {n: await reply for n, reply in asked.items()}
        return {n: [s.logprobs for s in replies[n].sequences] for n in sorted(replies)}

    found = []
    for number, order in enumerate((range(11), reversed(range(11)), np.roll(range(11), 4))):
        opened = engine(tmp_path / str(number))
        found.append(run(partial(program, opened, [int(n) for n in order])))
        opened.close()
    assert found[0] == found[1] == found[2]


def test_frequencies_follow_the_probabilities(service: LocalService) -> None:
    async def main() -> Any:
        sampler = await service.create_sampling_client(base_model=folder())
        return await sampler.sample(prompt(PROMPT), 4000, params(max_tokens=1))

    sequences = run(main).sequences
    with torch.no_grad():
        expected = plain_model()(torch.tensor([PROMPT])).logits[0, -1].softmax(-1).numpy()
    counts = np.bincount([s.tokens[0] for s in sequences], minlength=VOCABULARY)
    spread = np.sqrt(expected * (1 - expected) / len(sequences))
    assert (np.abs(counts / len(sequences) - expected) < 5 * spread + 1e-3).all()


def test_temperature_top_k_and_top_p_shape_the_distribution(service: LocalService) -> None:
    async def sample(**given: Any) -> Any:
        sampler = await service.create_sampling_client(base_model=folder())
        return await sampler.sample(prompt(PROMPT), 200, params(max_tokens=1, **given))

    with torch.no_grad():
        logits = plain_model()(torch.tensor([PROMPT])).logits[0, -1].double()
    ranked = logits.argsort(descending=True)

    greedy = run(lambda: sample(temperature=0.0)).sequences[0]
    assert greedy.tokens == [int(ranked[0])]
    assert greedy.logprobs[0] == pytest.approx(float(logits.log_softmax(-1)[ranked[0]]), abs=1e-4)

    for sequence in run(lambda: sample(temperature=0.5)).sequences:
        expected = (logits / 0.5).log_softmax(-1)[sequence.tokens[0]]
        assert sequence.logprobs[0] == pytest.approx(float(expected), abs=1e-4)

    top = run(lambda: sample(top_k=3)).sequences
    assert {s.tokens[0] for s in top} == {int(i) for i in ranked[:3]}
    for sequence in top:
        expected = logits[ranked[:3]].log_softmax(-1)[ranked[:3] == sequence.tokens[0]]
        assert sequence.logprobs[0] == pytest.approx(float(expected), abs=1e-4)

    mass = logits.softmax(-1)[ranked].cumsum(0)
    nucleus = int((mass < 0.6).sum()) + 1
    allowed = {int(i) for i in ranked[:nucleus]}
    assert {s.tokens[0] for s in run(lambda: sample(top_p=0.6)).sequences} <= allowed


@pytest.mark.parametrize("least", [{"temperature": 5e-324}, {"top_p": 5e-324}])
def test_the_least_temperature_and_top_p_leave_the_likeliest_token(
    service: LocalService, least: dict[str, float]
) -> None:
    async def main() -> list[Any]:
        sampler = await service.create_sampling_client(base_model=folder("qwen3"))
        drawn = (params(max_tokens=8, **given) for given in (least, {"temperature": 0.0}))
        return [
            await sampler.sample(prompt(PROMPT), 2, each, topk_sample_logprobs=2) for each in drawn
        ]

    ours, greedy = run(main)
    assert [s.tokens for s in ours.sequences] == [s.tokens for s in greedy.sequences]
    for sequence in ours.sequences:
        assert sequence.logprobs == [0.0] * 8


def test_stops(service: LocalService) -> None:
    async def sample(stop: Any, max_tokens: int | None = 30) -> types.SampledSequence:
        sampler = await service.create_sampling_client(base_model=folder())
        reply = await sampler.sample(prompt(PROMPT), 1, params(stop=stop, max_tokens=max_tokens))
        return reply.sequences[0]

    free = run(lambda: sample([]))
    assert (len(free.tokens), free.stop_reason) == (30, "length")
    target = free.tokens[6]
    stopped = run(lambda: sample([target]))
    assert stopped.tokens == free.tokens[: free.tokens.index(target) + 1]
    assert stopped.stop_reason == "stop"
    to_the_end = run(lambda: sample(None, max_tokens=None))
    if END in to_the_end.tokens:
        assert to_the_end.tokens.index(END) == len(to_the_end.tokens) - 1
    else:
        assert len(to_the_end.tokens) == 128 - len(PROMPT)


@pytest.mark.parametrize(
    ("tokens", "given", "says"),
    [
        ([], {}, "no tokens"),
        ([-1], {}, "outside the vocabulary"),
        (PROMPT, {"max_tokens": 124}, "exceed the model's context of 128"),
        (PROMPT, {"max_tokens": 0}, "max_tokens must be at least 1"),
        (list(range(3, 90)) * 2, {}, "more than the model's context"),
        (PROMPT, {"temperature": -1.0}, "temperature must be"),
        (PROMPT, {"temperature": float("nan")}, "temperature must be"),
        (PROMPT, {"top_k": 0}, "top_k must be"),
        (PROMPT, {"top_p": 0.0}, "top_p must be"),
        (PROMPT, {"stop": [""]}, "none of them empty"),
    ],
)
def test_requests_that_cannot_be_honoured(
    service: LocalService, tokens: list[int], given: dict[str, object], says: str
) -> None:
    async def main() -> None:
        sampler = await service.create_sampling_client(base_model=folder())
        await sampler.sample(prompt(tokens), 1, params(**given))

    with pytest.raises(ServiceError, match=says):
        run(main)


def test_a_string_ends_the_completion_in_which_it_appears(service: LocalService) -> None:
    async def sample(stop: Any) -> list[int]:
        sampler = await service.create_sampling_client(base_model=folder())
        reply = await sampler.sample(prompt(PROMPT), 1, params(stop=stop, max_tokens=30))
        return reply.sequences[0].tokens

    free = run(lambda: sample([]))
    text = "".join(chr(32 + token) for token in free)
    for stop in (text[5:7], ["no such text", text[5:7]]):
        assert run(partial(sample, stop)) == free[: text.index(text[5:7]) + 2]


def test_a_string_stop_needs_a_tokenizer(service: LocalService) -> None:
    async def main() -> None:
        sampler = await service.create_sampling_client(base_model=folder("llama"))
        await sampler.sample(prompt(PROMPT), 1, params(stop="end"))

    with pytest.raises(ServiceError, match="no tokenizer"):
        run(main)


def test_prompt_logprobs_of_a_single_token(service: LocalService) -> None:
    async def main() -> list[list[float | None]]:
        sampler = await service.create_sampling_client(base_model=folder())
        return [await sampler.compute_logprobs(prompt(PROMPT[:n])) for n in (1, 3)]

    single, three = run(main)
    assert single == [None]
    assert three[0] is None
    assert all(value is not None and value < 0 for value in three[1:])


def test_the_tiny_model_samples(service: LocalService) -> None:
    async def main() -> Any:
        # The interface is what the runtime knows; the engine must fit it.
        client: ServiceClient = service
        trainer = await client.create_lora_training_client("tiny", rank=8, seed=0)
        sampler = await trainer.save_weights_and_get_sampling_client()
        ids = trainer.get_tokenizer().encode("Guess a number.")
        return await sampler.sample(prompt(ids), 2, params(stop=None))

    assert all(sequence.tokens for sequence in run(main).sequences)


def test_an_unknown_model_is_one_sentence(service: LocalService) -> None:
    with pytest.raises(ServiceError, match="has no model 'Qwen/Qwen3-8B'"):
        run(lambda: service.create_sampling_client(base_model="Qwen/Qwen3-8B"))
