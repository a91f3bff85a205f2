"""What the stages take beside training itself: data to imitate, metrics, trackers."""

from __future__ import annotations

from collections.abc import Callable

from rlc.catalog.builtins.sources import (
    ARGS,
    COOKBOOK_MODEL,
    COOKBOOK_RENDERER,
    DATA_FILE,
    OPENREWARD_KEY,
    ROWS,
    WHERE_ROWS_ARE,
)
from rlc.catalog.builtins.splits import SPLIT, USUAL
from rlc.catalog.records import Args, Builtin, Param, builtin, code, optional, word
from rlc.catalog.traits import DataTraits, Key, MetricTraits, TrackerTraits
from rlc.plan.parts import MetricPlan, TrackPlan
from rlc.plan.sources import AnyData, BuilderData, Chats, Demonstrations, Rows
from rlc.records import evolve


def data_builder(kind: type[AnyData]) -> Callable[[Args], AnyData]:
    """Return what makes the data of a kind, whose fields are called as its parameters are; ``n`` is
    its ``count``."""

    def build(args: Args) -> AnyData:
        given = dict(args.values)
        return kind(count=given.pop("n"), **given)

    return build


_FILE = Param(
    "path",
    "string",
    WHERE_ROWS_ARE,
    form=(ROWS, "demonstrations.jsonl"),
    file=DATA_FILE,
)
_OF_ROWS = (
    optional("n", "int", "take the first n rows of it; none: all", low=1),
    optional("max_tokens", "int", "most in a row; none: the model's context", low=2),
    word("too_long", "what becomes of a row with more", ("stop", "drop"), "stop"),
)
OF_FILES = (SPLIT, *_OF_ROWS)
# What a supervised builder of tinker-cookbook is given by other parts of the recipe.
COOKBOOK_COMMON, COOKBOOK_BATCH = "common_config", "batch_size"


DATA = (
    builtin(
        "demonstrations",
        "data",
        "episodes of an environment that went well",
        data_builder(Demonstrations),
        Param("env", "env", "where they are played"),
        Param("n", "int", "how many", low=1, high=10_000_000),
        word(
            "policy",
            "who plays: the environment's own oracle, or the model itself",
            ("oracle", "model"),
            "oracle",
        ),
        Param("min_reward", "float", "an episode with less is left out", 1.0),
        example="data = demonstrations(guess, n = 2_000)",
    ),
    builtin(
        "rows",
        "data",
        "prompts and replies from the rows of a file or data set",
        data_builder(Rows),
        _FILE,
        Param(
            "prompt",
            "string",
            "field of the prompt: text, or a list of messages",
            "prompt",
            holds="prompt",
        ),
        Param("reply", "string", "field of the reply", "reply", holds="text"),
        *OF_FILES,
        example='data = rows("pairs.jsonl", prompt = "question", reply = "answer")',
    ),
    builtin(
        "chats",
        "data",
        "chats from the rows of a file or data set, with several turns and tools",
        data_builder(Chats),
        evolve(_FILE, form=(ROWS, "chats.jsonl")),
        word(
            "train_on",
            "which of the assistant's messages are trained on",
            ("all", "last", "last_turn"),
            "all",
        ),
        optional(
            "messages",
            "string",
            "field of the messages; none: `messages`, or `conversations`",
            holds="messages",
        ),
        *OF_FILES,
        example='data = chats("chats.jsonl", train_on = last)',
    ),
    builtin(
        "cookbook",
        "data",
        "the examples of a SupervisedDatasetBuilder of tinker-cookbook, images and sounds too",
        data_builder(BuilderData),
        code("builder", "where the builder is"),
        ARGS,
        Param("split", "string", "its training or its test set", "train", choices=USUAL),
        *_OF_ROWS,
        formula=(
            "L = − Σ_t w log p_t",
            "t: the tokens that are trained on, w: what the builder has those of an example weigh",
        ),
        traits=DataTraits(
            {
                **dict.fromkeys((*COOKBOOK_MODEL, *COOKBOOK_RENDERER, COOKBOOK_COMMON), "model"),
                COOKBOOK_BATCH: "batch",
            }
        ),
        example=(
            "data = cookbook(\n"
            '  "tinker_cookbook.recipes.vlm_classifier.data:Caltech101DatasetBuilder",\n'
            "  args = { examples_per_class = 4 },\n"
            ")"
        ),
    ),
)


def _at(name: str, doc: str, formula: str) -> Builtin:
    return builtin(
        name,
        "metric",
        doc,
        lambda args: MetricPlan(name, args.k),
        Param("k", "int", "episodes of a task that are looked at", low=1, high=1_024),
        formula=(formula,),
        traits=MetricTraits(),
        example=f"samples  = 8\nsampling = sample(max_tokens = 512)\nmetrics  = [{name}(8)]",
    )


METRICS = (
    _at(
        "pass_at",
        "chance that one of k episodes solves the task, without bias (arXiv 2107.03374)",
        "pass@k = mean over tasks of 1 − C(n−c, k) / C(n, k)",
    ),
    _at(
        "any_at",
        "share of tasks that one of the first k episodes solves",
        "any@k = mean over tasks of [c_k > 0]",
    ),
    Builtin(
        "mean_reward",
        "metric",
        "mean reward of all episodes",
        lambda _: MetricPlan("mean_reward", None),
        traits=MetricTraits(share=False),
        example=("samples  = 8\nsampling = sample(max_tokens = 512)\nmetrics  = [mean_reward()]"),
    ),
    Builtin(
        "win_rate",
        "metric",
        "share of the matches of a game that were won; one that was drawn, or cut off, was not",
        lambda _: MetricPlan("win_rate", None),
        traits=MetricTraits(of_games=True),
        example=(
            'env      = textarena("TicTacToe-v0") |> chat() |> play(against = big)\n'
            "samples  = 8\n"
            "sampling = sample(max_tokens = 512)\n"
            "metrics  = [win_rate()]"
        ),
    ),
)


def _tracker(
    name: str, doc: str, traits: TrackerTraits, *params: Param, example: str = ""
) -> Builtin:
    return Builtin(
        name,
        "tracker",
        doc,
        lambda args: TrackPlan(name, dict(args.values)),
        params,
        traits=traits,
        example=example,
    )


_PROJECT = Param("project", "string", "the project that the run is part of")
_RUN = optional("run", "string", "name of the run; none: that of its folder")
_WANDB_KEY = Key("WANDB_API_KEY", instead="a login of wandb")

TRACKERS = (
    _tracker(
        "wandb",
        "Weights & Biases (WANDB_API_KEY in the environment)",
        TrackerTraits("wandb", "metrics to wandb", _WANDB_KEY),
        _PROJECT,
        _RUN,
        example='track = wandb("my-project")',
    ),
    _tracker(
        "trackio",
        "trackio, on this machine",
        TrackerTraits("trackio", "metrics to trackio"),
        _PROJECT,
        _RUN,
        example='track = trackio("my-project")',
    ),
    _tracker(
        "tensorboard",
        "event files in the run folder",
        TrackerTraits("tensorboardX", "event files in the run folder, tensorboard/{stage}"),
    ),
    _tracker(
        "openreward_rollouts",
        "episodes uploaded to OpenReward (OPENREWARD_API_KEY in the environment)",
        TrackerTraits("openreward", "episodes to OpenReward", OPENREWARD_KEY, "openreward"),
        Param("run", "string", "name of the run"),
        example=(
            'env   = openreward("GeneralReasoning/WhoDunIt")\ntrack = openreward_rollouts("my-run")'
        ),
    ),
)
