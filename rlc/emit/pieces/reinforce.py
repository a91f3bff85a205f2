"""Episodes, and what is learnt from them, step after step"""

from __future__ import annotations

import asyncio
from statistics import fmean

from rlc.emit.pieces.curricula import replaced
from rlc.emit.pieces.datums import anchor, data_of, parts_of, plain_data, trained
from rlc.emit.pieces.job import *
from rlc.emit.pieces.penalty import penalise
from rlc.emit.pieces.rollouts import Player, next_tasks, play_turns, repeats
from rlc.emit.pieces.training import Counted, opened


async def train(steps: int, metrics: str) -> None:
    run = await opened(steps, metrics)
    training, tokenizer = run.training, run.training.get_tokenizer()
    if LOSS_INPUTS:
        # Traced once; where a server has no custom losses, the SDK computes it here.
        custom_loss = run.service.create_custom_loss(own_loss, LOSS_INPUTS).result()
    if SCORERS:
        scorers = [await run.service.create_sampling_client(**one["model"]) for one in SCORERS]
    envs = await environments(tokenizer)
    same = None
    if IS_MIXTURE or TURNS:
        cursor = {env.name: 0 for env in envs}
    for step in range(1, steps + 1):
        if IS_RECORDED:
            how = {"record_stability_info": True}
            sampler = await training.save_weights_and_get_sampling_client(**how)
        else:
            sampler = await training.save_weights_and_get_sampling_client()
        if same is None:
            same = await repeats(sampler, tokenizer)
        if LIMITS:
            sampler = Counted(sampler, run.used)
        player = Player(sampler, same)
        if TURNS:
            episodes = await play_turns(player, envs, cursor)
        else:
            tasks = [(envs[0], n) for n in range((step - 1) * GROUPS, step * GROUPS)]
            if IS_MIXTURE:
                tasks = next_tasks(envs, cursor, GROUPS)
            groups = await asyncio.gather(*(player.play(*task) for task in tasks))
            episodes = [episode for group in groups for episode in group if episode.turns]
        if RESAMPLE:
            episodes, everything = await replaced(player, step, tasks, groups)
        if MUST_NOT_FAIL and len(episodes) < sum(env.group for env, _ in tasks):
            raise RuntimeError("an episode failed")
        if not episodes:
            raise RuntimeError("every episode failed")
        reward, loss = fmean(episode.reward for episode in episodes), 0.0
        if RESAMPLE:
            reward = fmean(episode.reward for episode in everything)
        if CURRICULA and not RESAMPLE:
            everything = episodes
        if CURRICULA:
            for env in (one for one in envs if one.name in CURRICULA):
                env.tasks.learn([one for one in everything if one.env == env.name])
        if KEEPS:
            keep = kept(episodes)
            episodes = [one for one, left in zip(episodes, keep, strict=True) if left]
        if REQUIRES and not required(episodes).all():
            raise ValueError("an episode has no advantage: it stands alone")
        if not IS_PLAIN:
            played = trained(step, episodes)
        if SCORERS or REACHES_PROMPT:
            made = [one for own in played for one in own]
        if SCORERS:
            for model, by in zip(scorers, SCORERS, strict=True):
                await penalise(model, made, by, step)
        if REACHES_PROMPT:
            await anchor(training, made)
        if REACHES_PROMPT and LIMITS:
            run.used["prefill"] += sum(len(one.tokens) - 1 for one in made)
        if IS_PLAIN:
            parts = [plain_data(episodes)]
        if not IS_PLAIN:
            parts = [data_of(part) for part in parts_of(played, UPDATES)]
        for data in filter(None, parts):
            if LOSS_INPUTS:
                gradient = training.forward_backward_custom(data, custom_loss)
            elif LOSS_CONFIG:
                gradient = training.forward_backward(data, LOSS, LOSS_CONFIG)
            else:
                gradient = training.forward_backward(data, LOSS)
            loss += await run.update(gradient, step)
            if LIMITS:
                run.used["trained"] += sum(one.model_input.length for one in data)
        if await run.is_over(step, {"reward/mean": reward, "loss/sum": loss}):
            break
