"""From a plan's stage to the clients, environments and examples that its work needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from attrs import define

from rlc.envs.base import EnvError
from rlc.envs.build import PlayableEnv, build_env
from rlc.envs.seeds import derive_seed
from rlc.envs.tool_chat import tool_chat_history
from rlc.plan.records import EnvPlan, EvalPlan, SftPlan, StagePlan
from rlc.runtime.cleanup import close_envs
from rlc.runtime.guard.meter import PROBES, Meter
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.observer import Observer
from rlc.runtime.records import RunError, Usage
from rlc.runtime.stages.demonstrations import Demonstrator, read_pairs, row_turns
from rlc.runtime.stages.supervised import Example
from rlc.runtime.stages.work import Weights
from rlc.runtime.updates.datums import TokenSequence, merged_sequences
from rlc.service.errors import CheckpointError
from rlc.service.interface import ServiceClient, TrainingClient


def build_envs(envs: Iterable[EnvPlan], tokenizer: Any, renderer: str) -> dict[str, PlayableEnv]:
    """The environments by name. Raises RunError for one that cannot be made."""
    try:
        return {env.name: build_env(env, tokenizer, renderer) for env in envs}
    except EnvError as error:
        raise RunError(str(error)) from error


class LostCheckpointError(RunError):
    """The newest checkpoint of a stage is of no use; the journal has forgotten it."""


async def open_weights(
    service: ServiceClient, folder: RunFolder, stage: StagePlan, note: Callable[[str], None]
) -> TrainingClient:
    """The weights that a stage goes on from, the first that there are of: its own newest
    checkpoint with the optimiser; the end of the stage before; the model's saved state; a fresh
    adapter. Only the first has an optimiser's state."""
    metadata = {"rlc_run": folder.path.name, "rlc_stage": stage.name}
    if folder.journal.checkpoints(stage.name):
        return await _restored(
            folder,
            stage.name,
            lambda path: service.create_training_client_from_state_with_optimizer(
                path, user_metadata=metadata
            ),
        )
    if stage.after is not None:
        if not isinstance(stage, EvalPlan):
            note(f"{stage.name} goes on from the weights of {stage.after}, with a fresh optimiser")
        return await _restored(
            folder,
            stage.after,
            lambda path: service.create_training_client_from_state(path, user_metadata=metadata),
        )
    if (path := stage.model.weights) is not None:
        return await service.create_training_client_from_state(path, user_metadata=metadata)
    model = stage.model
    return await service.create_lora_training_client(
        model.base,
        rank=model.lora_rank,
        seed=derive_seed(folder.plan.seed, "lora", model.name) % 2**31,
        train_mlp=model.train_mlp,
        train_attn=model.train_attn,
        train_unembed=model.train_unembed,
        user_metadata=metadata,
    )


async def _restored(
    folder: RunFolder, stage: str, load: Callable[[str], Awaitable[TrainingClient]]
) -> TrainingClient:
    """What ``load`` makes of the newest checkpoint of a stage.

    Raises LostCheckpointError, with that one forgotten, where it is of no use and there is an
    older one; RunError where there is none.
    """
    checkpoints = folder.journal.checkpoints(stage)
    if not checkpoints:
        raise RunError(f"stage `{stage}` has left no checkpoint to go on from")
    *older, newest = checkpoints
    try:
        return await load(newest.path)
    except CheckpointError as error:
        if not older:
            raise RunError(
                f"{error} It is the only one that `{stage}` has",
                "put it back from a backup, or start a new run",
            ) from error
        folder.journal.drop_checkpoint(stage, newest.step)
        raise LostCheckpointError(
            f"{error} Going on from step {older[-1].step} of `{stage}`: what came after it is "
            "done again"
        ) from error


@define(eq=False)
class ExampleSource:
    """The examples of a supervised stage, made once and kept in the run folder: a resumed run
    imitates the same ones, whatever has become of the file or the weights that they came from."""

    folder: RunFolder
    stage: SftPlan
    weights: Weights
    meter: Meter
    observer: Observer

    async def examples(self) -> list[Example]:
        name = f"examples-{self.stage.name}.jsonl"
        if not (self.folder.path / name).exists():
            if self.weights.step:
                raise RunError(f"{self.folder.path / name} is gone, and cannot be made again")
            self.folder.rewrite(name, await self._make())
        records = self.folder.read(name)
        return [
            Example.of([TokenSequence.read(part) for part in record["sequences"]])
            for record in records
        ]

    async def _make(self) -> list[dict[str, Any]]:
        tokenizer = self.weights.training.get_tokenizer()
        if self.stage.data.kind == "rows":
            return self._rows(tokenizer)
        return await self._episodes(tokenizer)

    def _rows(self, tokenizer: Any) -> list[dict[str, Any]]:
        try:
            new_history = tool_chat_history(tokenizer, self.stage.model.renderer)
            played = [
                row_turns(prompt, reply, new_history(), tokenizer)
                for prompt, reply in read_pairs(self.stage.data)
            ]
        except EnvError as error:
            raise RunError(str(error)) from error
        return [
            {"row": number, "sequences": [s.written() for s in merged_sequences(turns)]}
            for number, turns in enumerate(played)
        ]

    async def _episodes(self, tokenizer: Any) -> list[dict[str, Any]]:
        stage, usage = self.stage, Usage()
        assert stage.data.env is not None
        env = build_envs([stage.data.env], tokenizer, stage.model.renderer)[stage.data.env.name]
        client = None
        if stage.data.policy == "model":
            client = (await self.weights.snapshot(0)).client
        player = Demonstrator(
            stage, env, tokenizer, self.folder.plan.seed, client, usage, self.observer.progress
        )
        try:
            played = await player.play()
        finally:
            self.meter.record(PROBES, usage)
            await close_envs([env])
        return [
            {
                "env": rollout.env,
                "task": rollout.task,
                "reward": rollout.reward,
                "actions": [turn.action for turn in rollout.turns],
                "sequences": [s.written() for s in merged_sequences(rollout.turns)],
            }
            for rollout in played
        ]
