"""The declarations of the language and the fields of those that are blocks."""

from __future__ import annotations

from rlc.catalog.builtins.training import DEFAULT_BUDGET
from rlc.catalog.facts.models import model_names, renderer_names
from rlc.catalog.index import KINDS
from rlc.catalog.records import MODEL_FOLDER, Declaration, Param, optional, word
from rlc.catalog.stage_fields import EVAL_FIELDS, PREFERENCE_FIELDS, SFT_FIELDS, TRAIN_FIELDS
from rlc.catalog.traits import StageTraits
from rlc.plan.models import SERVICES
from rlc.plan.paths import RUN_WEIGHTS

# The types that a param can be declared with.
PARAM_TYPES = ("int", "float", "bool", "string", "money", "duration")

MODEL_FIELDS = (
    Param(
        "base",
        "string",
        "a model of the catalogue, or a folder of this machine",
        file=MODEL_FOLDER,
        suggests=model_names,
        aliases=(
            "model_name model_name_or_path base_model model_path pretrained pretrain hf_model "
            "model_id"
        ),
    ),
    Param(
        "lora_rank",
        "int",
        "rank of the LoRA adapter, a power of two",
        32,
        low=1,
        aliases="rank r lora_r lora_dim",
    ),
    Param("train_mlp", "bool", "adapt the feed-forward layers", True),
    Param("train_attn", "bool", "adapt the attention layers", True),
    Param("train_unembed", "bool", "adapt the output layer", True),
    optional(
        "weights",
        "string",
        "what to start from: an earlier run (its best or last state, or `runs/x@main:20`), an "
        "adapter of PEFT in a folder, a state that Tinker keeps; none: a fresh adapter",
        form=(rf"tinker://.+/weights/.+|{RUN_WEIGHTS}", "runs/NAME@main:20"),
        file=RUN_WEIGHTS,
        aliases="load_checkpoint_path init_from adapter checkpoint_path",
    ),
    Param(
        "renderer",
        "string",
        "how a chat becomes tokens; by default the one recommended for the model",
        None,
        choices=renderer_names,
        noun="renderer",
        aliases="renderer_name chat_template",
    ),
    word(
        "service",
        "where it is trained; by default where the model lives",
        SERVICES,
        None,
        noun="service",
        aliases="provider backend",
    ),
)

SWEEP_FIELDS = (
    Param("of", "stage", "the stage that is tried, with those that it needs"),
    Param(
        "over",
        "axis",
        "what is varied: values, or a range, of each param or field",
        named=True,
        aliases="parameters params space search_space grid",
    ),
    Param(
        "seeds",
        "int",
        "runs of each configuration, each with a seed of its own",
        1,
        low=1,
        high=100,
    ),
    Param(
        "metric",
        "measure",
        "what the runs are compared by; by default the first metric of the stage's evaluation",
        None,
        aliases="objective maximize target",
    ),
    Param(
        "search",
        "search",
        "how configurations are chosen; by default `grid()`",
        None,
        aliases="method sampler algorithm",
    ),
    Param("budget", "budget", "most to spend on all of it; by default no limit", DEFAULT_BUDGET),
)

LOSS_FIELDS = (
    Param("token", "expression", "a loss for each sampled token, added up by `aggregate`", None),
    Param("sequence", "expression", "a loss for each sequence, which counts like a token's", None),
)

EVAL, SWEEP, EXPECT = "eval", "sweep", "expect"

DECLARATIONS = {
    item.kind: item
    for item in (
        Declaration(
            "param",
            "a value that the command line can set",
            value="param",
            aliases="var variable let const parameter arg",
            noun="a param",
            reusable=False,
            example="param learning_rate: float = 4e-5",
        ),
        Declaration(
            "model",
            "a base model with a LoRA adapter",
            MODEL_FIELDS,
            aliases="policy actor llm",
            example='base = "tiny"\nlora_rank = 8',
        ),
        Declaration(
            "env",
            "an environment, or a mixture of several",
            value="env",
            aliases="environment task dataset",
        ),
        Declaration("advantage", "an advantage scheme", value="advantage"),
        Declaration(
            "loss",
            "a loss of one's own: named parts, then `token` or `sequence`",
            LOSS_FIELDS,
            aliases="loss_fn objective",
            open=True,
            example="token = -clip(ratio, 0, 5) * adv",
        ),
        Declaration(
            "sft",
            "a stage of supervised training",
            SFT_FIELDS,
            aliases="finetune supervised",
            noun="a training stage",
            traits=StageTraits("loss/mean", rises=False, trains_by="supervised training"),
            example="model = policy\ndata = demonstrations(guess, n = 2_000)\n"
            "optimizer = adam(1e-4)\nepochs = 1",
        ),
        Declaration(
            "train",
            "a stage of reinforcement learning",
            TRAIN_FIELDS,
            aliases="training trainer rl stage",
            noun="a training stage",
            traits=StageTraits("reward/mean"),
            example="model = policy\nenv = guess\nbatch = groups(16, group_size = 8)\n"
            "sampling = sample(max_tokens = 512)\nadvantage = grpo()\n"
            "loss = importance_sampling()\noptimizer = adam(1e-4)\nsteps = 100",
        ),
        Declaration(
            EVAL,
            "an evaluation",
            EVAL_FIELDS,
            aliases="evaluate evaluation test benchmark",
            noun="an evaluation",
            traits=StageTraits(),
            example="model = main\nenv = guess\nsamples = 8\nevery = 20\n"
            "metrics = [pass_at(1), pass_at(8)]",
        ),
        Declaration(
            "preference",
            "a stage that learns from preferences",
            PREFERENCE_FIELDS,
            aliases="dpo align preferences kto orpo simpo",
            noun="a training stage",
            traits=StageTraits("accuracy", trains_by="learning from preferences"),
            example='model = policy\ndata = pairs("pairs.jsonl")\nloss = dpo(beta = 0.1)\n'
            "optimizer = adam(1e-5)\nepochs = 1",
        ),
        Declaration(
            SWEEP,
            "runs of a stage that are compared",
            SWEEP_FIELDS,
            aliases="tune hyperparameters",
            noun="a sweep",
            reusable=False,
            example="of = main\nover = { main.optimizer.learning_rate = [1e-5, 4e-5, 1e-4] }\n"
            "seeds = 3\nbudget = $50",
        ),
        Declaration(
            EXPECT,
            "what must hold before the run, or after it",
            aliases="assert require ensure check",
            form="expect main.cost.high < $20",
        ),
    )
}
# Values of all other kinds can have a name, too.
DECLARATIONS |= {
    kind.name: Declaration(kind.name, f"{kind.noun} with a name", value=kind.name)
    for kind in KINDS.values()
    if kind.nameable and kind.name not in DECLARATIONS
}

STAGES = {d.kind: d.traits for d in DECLARATIONS.values() if d.traits is not None}
TRAINING = tuple(kind for kind, traits in STAGES.items() if traits.watched is not None)
