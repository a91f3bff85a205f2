"""What is known of models, with their prices, and of environments of GEM and games of TextArena:
dated data with a source."""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any

from rlc.catalog.records import Param, Signature, optional
from rlc.plan import LOCAL, TINKER, is_hosted
from rlc.records import frozen

TINY = "tiny"
PRICE_KINDS = ("prefill", "cached", "sample", "train")
_RLC = os.path.dirname(os.path.dirname(__file__))
TINY_TOKENIZER = os.path.join(_RLC, "service", "tiny", "weights", "tokenizer.json")

# With which renderers of tinker-cookbook 0.5.8 end a turn.
END_MARKS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<｜end▁of▁sentence｜>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
)


@frozen(eq=False)
class Price:
    """USD per million tokens of each kind; None if unknown."""

    prefill: float | None
    cached: float | None
    sample: float | None
    train: float | None


FREE, UNKNOWN_PRICE = Price(0.0, 0.0, 0.0, 0.0), Price(None, None, None, None)
# What is plausible as a learning rate of RL with LoRA, which takes about ten times as much as full
# fine-tuning does.
LORA_RATES = (5e-6, 1e-3)


@frozen(eq=False)
class BaseModelFacts:
    """What is known of a base model. ``context`` is in tokens; None if unknown.

    ``learning_rates`` bound what is plausible for RL with LoRA. ``lora`` counts the parameters of
    an adapter of rank 1: in feed-forward, attention and output layers. ``unconfirmed`` names facts
    that no primary source confirms. ``as_of`` and ``source`` are those of its prices.
    """

    base: str
    service: str
    context: int | None
    renderers: tuple[str, ...]
    price: Price
    max_rank: int | None = None
    learning_rates: tuple[float, float] = LORA_RATES
    lora: tuple[int, int, int] | None = None
    unconfirmed: tuple[str, ...] = ()
    as_of: str | None = None
    source: str = ""

    @property
    def hosted(self) -> bool:
        return is_hosted(self.service)

    @property
    def chatml(self) -> bool:
        """Return whether its chat markup is ChatML, which the ``qwen3_`` templates write out."""
        return self.base == TINY or self.base.startswith("Qwen/")


@frozen(eq=False)
class RetiredModel:
    """A model that the service no longer trains, and the nearest that it does."""

    since: str
    use: str


_TINY = BaseModelFacts(TINY, LOCAL, 8192, ("qwen3_instruct",), FREE, 128, (1e-5, 1e-1))


def find_model(base: str) -> BaseModelFacts | None:
    """Return the catalogue's model of that name; None for others, such as a folder."""
    return _models().get(base)


def model_names() -> tuple[str, ...]:
    return tuple(_models())


def find_retired(base: str) -> RetiredModel | None:
    return retired_models().get(base)


@cache
def retired_models() -> dict[str, RetiredModel]:
    models = snapshot("models")["retired"]
    return {name: RetiredModel(**facts) for name, facts in models.items()}


def renderer_names() -> tuple[str, ...]:
    return tuple(name for names in snapshot("models")["renderers"].values() for name in names)


def renderer_keeps_prefix(renderer: str) -> bool | None:
    """Return whether a prompt rendered with it extends the tokens before; None if unknown. It does
    not if it drops earlier reasoning, or ends a turn with text instead of a token."""
    groups = snapshot("models")["renderers"]
    if renderer in groups["keeps_prefix"]:
        return True
    return False if renderer in (*groups["rewrites"], *groups["ends_with_text"]) else None


def ends_with_text(renderer: str) -> bool:
    """Return whether a text ends a turn of a renderer, not a token."""
    return renderer in snapshot("models")["renderers"]["ends_with_text"]


def drops_thinking(renderer: str) -> bool:
    """Return whether a renderer is known to leave the thinking out of earlier turns."""
    return renderer in snapshot("models")["drops_thinking"]


def renderer_fits(base: str, renderer: str) -> bool:
    """Return whether a model knows a renderer's markup; True if its renderers are unknown."""
    if (model := find_model(base)) is None or not model.renderers:
        return True
    known = {_markup(name) for name in (*model.renderers, "role_colon")}  # which has no markup
    return _markup(renderer) in known | ({"qwen"} if model.chatml else set())


def _markup(renderer: str) -> str:
    """Return the family in the name of a renderer; Nemotron's markup is ChatML, as Qwen's is."""
    family = renderer[: next((i for i, c in enumerate(renderer) if not c.isalpha()), None)]
    return {"nemotron": "qwen"}.get(family, family)


def tokenizer_of(base: str) -> str | None:
    """Return the vocabulary of a model of the catalogue; None for others."""
    if base == TINY:
        return TINY
    name = base.partition(":peft:")[0]
    groups = snapshot("models")["tokenizers"].items()
    return next((tokenizer for tokenizer, models in groups if name in models), None)


# Exponents of the hidden size in `get_lr` of tinker-cookbook 0.5.8, for families by their names.
_CALIBRATED = {"llama": 0.781, "qwen": 0.0775}


def recommended_rate(base: str) -> float | None:
    """Return the learning rate of tinker-cookbook's `get_lr` for LoRA; None if it has none."""
    name = base.partition(":")[0]
    hidden = snapshot("models")["hidden"].get(name)
    power = next((power for one, power in _CALIBRATED.items() if one in name.lower()), None)
    return None if None in (hidden, power) else 5e-05 * 10.0 * (2000 / hidden) ** power


def storage_price() -> float:
    """Return USD for a GB of checkpoints and month."""
    return float(snapshot("models")["storage"])


def prices_as_of() -> str:
    """Return the date and source of the catalogue's own prices."""
    return f"{snapshot('models')['as_of']}, {snapshot('models')['source']}"


def published_at() -> str:
    """Return where the table of models is published that the catalogue's is from."""
    return str(snapshot("models")["source"])


@cache
def _models() -> dict[str, BaseModelFacts]:
    shipped = snapshot("models")
    hosted = {
        name: BaseModelFacts(
            base=name,
            service=TINKER,
            context=facts["context"],
            renderers=tuple(facts["renderers"]),
            price=Price(facts["prefill"], facts["cached"], facts["sample"], facts["train"]),
            max_rank=facts.get("max_rank"),
            lora=tuple(facts["lora"]) if "lora" in facts else None,
            unconfirmed=tuple(facts.get("unconfirmed", ())),
            as_of=None if "source" in facts else shipped["as_of"],
            source=facts.get("source", shipped["source"]),
        )
        for name, facts in shipped["models"].items()
    }
    return {TINY: _TINY} | hosted


def part_cost(tokens: float, price: float | None) -> float | None:
    """Return the cost of tokens at a price per million; None if unknown, but 0 for no tokens."""
    if tokens == 0 or price == 0:
        return 0.0
    return None if price is None else tokens * price / 1e6


# Environments, without their version, that rlc has a player for (rlc.envs.gem.oracles).
ORACLES = ("game:GuessTheNumber", "game:Mastermind", "game:Sudoku", "rg:spell_backward")
# Those that rlc plays without the library (rlc.envs.gem.guess), unless a wrapper is the library's.
INCLUDED = ("game:GuessTheNumber",)
_BOXED = {
    "gem.envs.math_env:MathEnv",
    "gem.envs.math_visual_env:MathVisualEnv",
    "gem.envs.reasoning_gym:ReasoningGymEnv",
}
_AT_LEAST_ONE = {"max_turns", "size", "max_tests", "max_workers"}


@cache
def snapshot(library: str) -> Any:
    """Return the data on ``models``, or what ``python -m tools.gem_snapshot`` wrote of ``gem``, or
    ``python -m tools.textarena_snapshot`` of ``textarena``."""
    path = os.path.join(os.path.dirname(__file__), "data", f"{library}.json")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def gem_ids() -> tuple[str, ...]:
    return tuple(snapshot("gem")["environments"])


def gem_facts(env_id: str) -> dict[str, Any]:
    """Return ``class, args, chars`` of an environment with its class's ``params, multi_turn,
    needs``. ``boxed``: its answers are read from a box that its questions do not ask for."""
    facts = snapshot("gem")
    environment = facts["environments"][env_id]
    boxed = environment["class"] in _BOXED
    return {**facts["classes"][environment["class"]], **environment, "boxed": boxed}


def is_broken(env_id: str) -> bool:
    """Return whether the library itself cannot make it: nothing is missing, and yet it fails."""
    facts = gem_facts(env_id)
    return facts["chars"] is None and not facts["needs"]


def library() -> str:
    """Return the library and version of the snapshot: ``gem-llm 0.1.0``."""
    stored = snapshot("gem")
    return f"{stored['library']} {stored['version']}"


def gem_signature(env_id: str) -> Signature:
    """Return the keyword arguments of an environment, with its registered values as defaults."""
    facts = gem_facts(env_id)
    params = tuple(
        Param(
            name,
            spec["type"],
            f"argument of {facts['class'].split(':')[1]}",
            facts["args"].get(name, spec["default"]),
            low=1 if name in _AT_LEAST_ONE else None,
            optional=spec.get("optional", False),
            default_of="the environment",
        )
        for name, spec in facts["params"].items()
    )
    reason = "GEM hands reasoning-gym no other argument: it would be dropped without a word"
    return Signature(params, reason if env_id.startswith("rg:") else None)


_MOST_PLAYERS = 15


def textarena_ids() -> tuple[str, ...]:
    return tuple(snapshot("textarena")["games"])


def textarena_facts(env_id: str) -> dict[str, Any]:
    """Return the numbers of ``players`` of a game, None if unknown; its ``needs``, the ``chars`` of
    what it shows, and ``broken_in``, the library that cannot make it."""
    stored = snapshot("textarena")
    game = stored["games"][env_id]
    broken = game["players"] is None and not game["needs"]
    return {**game, "broken_in": f"{stored['library']} {stored['version']}" if broken else None}


def textarena_signature(env_id: str) -> Signature:
    """Return the parameters of a game: its number of players, and the cost of an illegal move."""
    players = textarena_facts(env_id)["players"] or range(1, _MOST_PLAYERS + 1)
    fewest = min(players) if len(players) < _MOST_PLAYERS else 2
    return Signature(
        (
            Param(
                "players",
                "int",
                "seats of the game",
                fewest,
                low=min(players),
                high=max(players),
                default_of="the game",
            ),
            optional(
                "illegal",
                "float",
                "reward of a move that is not allowed, which ends the match; none: the first may "
                "be made again, and the next loses",
            ),
        ),
        "TextArena's variants of a game have ids of their own",
    )
