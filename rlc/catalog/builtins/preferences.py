"""Preferences and the losses over them.

Formulas: s is the score of a reply, σ the logistic function, n the number of a reply's tokens, its
end included. Definitions: :mod:`rlc.algo.preferences`, which names versions.
"""

from __future__ import annotations

from rlc.catalog.builtins.sources import DATA_FILE, ROWS, WHERE_ROWS_ARE
from rlc.catalog.builtins.stages import OF_FILES, data_builder
from rlc.catalog.records import Builtin, Param, builtin, optional
from rlc.catalog.traits import PreferenceTraits
from rlc.plan.parts import PreferenceLossPlan
from rlc.plan.sources import LabelledReplies, Pairs, PreferredPairs


def _source(
    kind: type[Pairs | LabelledReplies], doc: str, *columns: Param, example: str
) -> Builtin:
    name = kind.word
    file = Param("path", "string", WHERE_ROWS_ARE, form=(ROWS, f"{name}.jsonl"), file=DATA_FILE)
    params = (file, *columns, *OF_FILES)
    return Builtin(name, "preferences", doc, data_builder(kind), params, example=example)


def _column(name: str, doc: str, usual: str, **more: str) -> Param:
    return optional(
        name, "string", f"field of {doc}; none: the usual ones, such as {usual}", **more
    )


_PROMPT = _column("prompt", "the prompt, text or messages", "`prompt`, `question`, `instruction`")

SOURCES = (
    _source(
        Pairs,
        "pairs of replies of which one is better, from the rows of a file or data set",
        _PROMPT,
        _column("chosen", "the better reply: text, messages, or a whole chat", "`chosen`"),
        _column("rejected", "the worse reply, of the same form", "`rejected`"),
        example='data = pairs("pairs.jsonl")',
    ),
    _source(
        LabelledReplies,
        "replies that are good or bad, from the rows of a file or data set",
        _PROMPT,
        _column("reply", "the reply: text or messages", "`completion`, `response`, `reply`"),
        _column("label", "whether it is good, true or false", "`label`"),
        example=('data = labelled("rated.jsonl")\nloss = kto()'),
    ),
)


PREFERRED = builtin(
    "preferred",
    "preferences",
    "pairs that a model makes: of several replies to a task the best and the worst",
    data_builder(PreferredPairs),
    Param("model", "model", "who replies: a model, or a stage as it ends"),
    Param("env", "env", "what it is asked, and what rewards the replies"),
    Param("n", "int", "how many pairs; tasks whose rewards are all equal make none", low=1),
    Param(
        "samples",
        "int",
        "replies to each task",
        4,
        low=2,
        high=1_024,
        aliases="num_samples n_samples group_size num_generations best_of",
    ),
    example="data = preferred(policy, env = guess, n = 512, samples = 4)",
)


def _loss(
    name: str,
    doc: str,
    traits: PreferenceTraits,
    formula: tuple[str, ...],
    *params: Param,
    aliases: str = "",
    example: str = "",
) -> Builtin:
    return Builtin(
        name,
        "preference_loss",
        doc,
        lambda args: PreferenceLossPlan(name, dict(args.values)),
        params,
        formula=formula,
        traits=traits,
        aliases=aliases,
        example=example,
    )


def _beta(default: float, doc: str) -> Param:
    return Param("beta", "float", doc, default, above=0, aliases="dpo_beta kto_beta beta_dpo tau")


_SMOOTHING = Param(
    "label_smoothing",
    "float",
    "how many of the pairs are taken for mislabelled",
    0.0,
    low=0,
    below=0.5,
    instead="from 0.5 on the worse reply would be the better one",
)
_HOLDS = "how much it holds to the reference"
_ALPHA = Param(
    "alpha",
    "float",
    "weight of the log-likelihood of the better replies",
    1.0,
    low=0,
    aliases="cpo_alpha sft_coef rpo_alpha",
)
_RATIO = "s = log p(reply) − log p_ref(reply), summed over its n tokens"

LOSSES = (
    _loss(
        "dpo",
        "direct preference optimisation (arXiv 2305.18290; smoothing as in cDPO)",
        PreferenceTraits(reference=True),
        ("L = − (1−ε) log σ(β (s_c − s_r)) − ε log σ(−β (s_c − s_r))", _RATIO),
        _beta(0.1, _HOLDS),
        _SMOOTHING,
        example="loss = dpo(beta = 0.1)",
    ),
    _loss(
        "ipo",
        "identity preference optimisation: a margin to reach and no more (arXiv 2310.12036)",
        PreferenceTraits(reference=True, mean=True),
        ("L = (s_c − s_r − 1/(2β))²", "s = (log p(reply) − log p_ref(reply)) / n"),
        _beta(0.1, _HOLDS),
        example="loss = ipo(beta = 0.1)",
    ),
    _loss(
        "simpo",
        "SimPO: mean logprobs a margin apart, without a reference (arXiv 2405.14734)",
        PreferenceTraits(mean=True, usual_beta=(0.5, 20.0)),
        ("L = − log σ(β (s_c − s_r) − γ)", "s = log p(reply) / n"),
        _beta(2.0, "scale of the mean logprobs"),
        Param(
            "gamma", "float", "margin that is aimed at", 1.0, low=0, aliases="simpo_gamma margin"
        ),
        example="loss = simpo(beta = 2.0, gamma = 1.0)",
    ),
    _loss(
        "cpo",
        "contrastive preference optimisation, without a reference (arXiv 2401.08417)",
        PreferenceTraits(likelihood="reply"),
        (
            "L = − (1−ε) log σ(β (s_c − s_r)) − ε log σ(−β (s_c − s_r)) − α mean(log p)",
            "s = log p(reply); mean(log p): of all tokens of the batch's better replies",
        ),
        _beta(0.1, "scale of the logprobs"),
        _ALPHA,
        _SMOOTHING,
        example="loss = cpo(beta = 0.1)",
    ),
    _loss(
        "orpo",
        "supervised training with an odds ratio, without a reference (arXiv 2403.07691)",
        PreferenceTraits(mean=True, likelihood="all"),
        (
            "L = − β log σ(o_c − o_r) − mean(log p)",
            "o = s − log(1 − exp s), s = log p(reply) / n",
            "mean(log p): of all tokens of the batch's better chats, prompts included",
        ),
        _beta(0.1, "weight of the odds ratio"),
        example="loss = orpo(beta = 0.1)",
    ),
    _loss(
        "brier",
        "Brier's score of how probable the better one of two choices is, without a reference",
        PreferenceTraits(),
        (
            "L = (1 − p_c)² + p_r² = 2 σ(−β (s_c − s_r))²",
            "p = exp(β s), as a share of both; s = log p(reply)",
        ),
        _beta(1.0, "scale of the logprobs; with 1 they are probabilities"),
        aliases="brier_score decisions",
        example="loss = brier()",
    ),
    _loss(
        "kto",
        "Kahneman-Tversky optimisation: replies that are good or bad (arXiv 2402.01306)",
        PreferenceTraits(reference=True, labelled=True),
        (
            "L = w (1 − σ(± β (s − z))), + for a good reply with w = desirable, − for a bad one",
            _RATIO,
            "z = max(0, mean s of replies to other prompts), without a gradient",
        ),
        _beta(0.1, _HOLDS),
        Param(
            "desirable",
            "float",
            "weight of the good replies",
            1.0,
            low=0,
            aliases="desirable_weight lambda_d",
        ),
        Param(
            "undesirable",
            "float",
            "weight of the bad replies",
            1.0,
            low=0,
            aliases="undesirable_weight lambda_u",
        ),
        example=('data = labelled("rated.jsonl")\nloss = kto(beta = 0.1, undesirable = 1.5)'),
    ),
)
