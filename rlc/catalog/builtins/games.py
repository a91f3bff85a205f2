"""Games for several seats, who plays them, and against whom."""

from __future__ import annotations

from typing import Any

from rlc.catalog.builtins.sources import ARGS, environment
from rlc.catalog.facts.environments import textarena_facts, textarena_ids, textarena_signature
from rlc.catalog.records import Args, Builtin, Param, builtin, code, optional
from rlc.catalog.traits import EnvFacts, OpponentTraits, SourceTraits, WrapperTraits
from rlc.plan import ANY, EnvPlan, PastPlan, PlayPlan, ScriptPlan
from rlc.records import evolve


def _against(opponent: str) -> str:
    """An example of a game against an opponent."""
    env = f'textarena("TicTacToe-v0") |> chat() |> play(against = {opponent})'
    return f"env       = {env}\nadvantage = rae()"


def _textarena_env(env: EnvPlan) -> EnvFacts:
    facts = textarena_facts(env.id)
    return EnvFacts(
        chars={"prompt": facts["prompt"]} if facts["prompt"] else {},
        needs=tuple(facts["needs"]),
        uncounted=True,
        broken_in=facts["broken_in"],
        endless=True,
        lists_moves=facts["lists_moves"],
    )


GAMES = (
    builtin(
        "textarena",
        "env",
        "a game of TextArena, by its id; its seats are `player_0`, `player_1` …",
        lambda args: environment("textarena", args),
        Param("id", "string", "id of the game", choices=textarena_ids, noun="game of TextArena"),
        more=textarena_signature,
        traits=SourceTraits(
            "chat",
            package="textarena",
            extra="games",
            facts=_textarena_env,
            seats=lambda env: tuple(f"player_{n}" for n in range(env.args["players"])),
        ),
        example=_against("self"),
    ),
    builtin(
        "python_game",
        "env",
        "a game of one's own for several seats",
        lambda args: environment("python_game", args),
        code("game", "what begins it", "game"),
        ARGS,
        Param("seats", "list", "the role of each seat, in order", ["first", "second"]),
        traits=SourceTraits(
            "chat",
            code=True,
            facts=lambda _: EnvFacts(uncounted=True, endless=True),
            seats=lambda env: tuple(map(str, env.args["seats"])),
        ),
        example=(
            'env       = python_game("tug.py:TugOfWar") |> play(against = self)\nadvantage = rae()'
        ),
    ),
)


def _play(args: Args) -> PlayPlan:
    given: Any = args.against.data
    past = args.against if isinstance(given, PastPlan) else None
    script = args.against if isinstance(given, ScriptPlan) else None
    opponent = None if past or script or given is None else args.against
    in_turn = given is not None and args.seat.data is None
    return PlayPlan(
        opponent=opponent,
        past=past,
        seat=evolve(args.seat, data=ANY) if in_turn else args.seat,
        temperature=args.temperature,
        max_tokens=args.max_tokens,
        script=script,
    )


PLAY = Builtin(
    "play",
    "wrapper",
    "who plays a game of several seats: the policy all of them, or some against an opponent",
    _play,
    (
        Param("against", "opponent", "who plays the other seats; `self`: all seats are trained"),
        optional(
            "seat",
            "string",
            "the role that is trained; `any`: one seat of a match, each in turn",
            choices=(ANY,),
            noun="seat",
            form=(r"\w+", "judge"),
        ),
        optional(
            "temperature",
            "float",
            "of the opponent's sampling; none: that of the policy's",
            above=0,
            high=10,
        ),
        optional("max_tokens", "int", "longest reply of the opponent; none: the policy's", low=1),
    ),
    traits=WrapperTraits("setting"),
    example=_against("past(every = 20)"),
)

OPPONENTS = (
    Builtin(
        "self",
        "opponent",
        "the policy itself, which is trained on the episodes of all seats",
        lambda _: None,
        word=True,
        example=_against("self"),
    ),
    builtin(
        "past",
        "opponent",
        "the policy as it was: its weights after the last step that is a multiple of `every`",
        lambda args: PastPlan(args.every),
        Param("every", "int", "steps for which the opponent stays as it is", low=1, high=100_000),
        example=_against("past(every = 20)"),
    ),
    builtin(
        "scripted",
        "opponent",
        "a function of one's own, which is shown what its seat sees and returns a move",
        lambda args: ScriptPlan("scripted", args.function, args.args),
        code("function", "what is called for each move", "player"),
        ARGS,
        traits=OpponentTraits(),
        example=(
            'env       = python_game("tug.py:TugOfWar") '
            '|> play(against = scripted("players.py:pull"))\nadvantage = rae()'
        ),
    ),
    builtin(
        "random",
        "opponent",
        "a legal move, all as likely, in a game that says which are legal",
        lambda _: ScriptPlan("random", None, {}),
        traits=OpponentTraits(needs_moves=True),
        example=_against("random()"),
    ),
    builtin(
        "perfect",
        "opponent",
        "a move that cannot be bettered, by minimax, in a game that is small enough to be solved",
        lambda _: ScriptPlan("perfect", None, {}),
        traits=OpponentTraits(games=("TicTacToe-v0",)),
        example=_against("perfect()"),
    ),
)
