"""Sources of environments that other frameworks define, and that own their loop or their server;
games for several seats, and the opponents in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlc.catalog.builtins.sources import ARGS, GRADER, SECRETS, SHUFFLE, TASK_LIMIT, USUAL, source
from rlc.catalog.facts import TINY, textarena_facts, textarena_ids, textarena_signature
from rlc.catalog.records import (
    Args,
    Builtin,
    EnvFacts,
    OpponentTraits,
    Param,
    SourceTraits,
    WrapperTraits,
    builtin,
    code,
    count,
    optional,
    text,
    word,
)
from rlc.data import module_of_package
from rlc.plan import ANY, AgentPlan, EnvPlan, PastPlan, PlayPlan, ScriptPlan
from rlc.records import evolve, fields

AGENT = "agent"
_PACKAGE = r"(?:[\w.-]+/)?[A-Za-z_][\w-]*(?:@[\w.]+)?|.+\.py"


def _folder_name(args: Args) -> str:
    parts = [part for part in args.id.data.split("/") if part.strip("*.")]
    return parts[-1] if parts else "harbor"


def _agent(args: Args) -> EnvPlan:
    """Return the environment of its tasks, with the agent that works on them."""
    (tasks,) = args.tasks.data
    given = args.values[GRADER]
    return evolve(  # type: ignore[no-any-return]
        tasks,
        name=AGENT,
        weight=1.0,
        max_turns=None,
        graders=given if given.data else tasks.graders,
        agent=AgentPlan(**{field.name: args.values[field.name] for field in fields(AgentPlan)}),
    )


def _against(opponent: str) -> str:
    """Return an example of a game against an opponent."""
    env = f'textarena("TicTacToe-v0") |> chat() |> play(against = {opponent})'
    return f"env       = {env}\nadvantage = rae()"


def _lengths(shown: Mapping[str, Sequence[int]]) -> Mapping[str, Sequence[int]]:
    """Return the lengths of what a game shows. Tried without knowing its moves it may not go on, so
    that what it shows later may be as long as what it shows at first."""
    if "observation" not in shown:
        return shown
    (mean, longest), first = shown["observation"], shown["prompt"][1]
    return {**shown, "observation": (mean, max(longest, first))}


def _textarena_env(env: EnvPlan) -> EnvFacts:
    facts = textarena_facts(env.id)
    return EnvFacts(
        chars=_lengths(facts["chars"] or {}),
        tokens={TINY: _lengths(facts["tiny"] or {})},
        repeats=env.args["players"],
        needs=tuple(facts["needs"]),
        uncounted=True,
        broken_in=facts["broken_in"],
        endless=True,
        lists_moves=facts["lists_moves"],
    )


FRAMEWORKS = (
    builtin(
        AGENT,
        "env",
        "a program that owns its loop, and asks the model at an address of its own, as it would "
        "ask OpenAI",
        _agent,
        code(
            "program",
            "the function that is called, or a class of rLLM's workflows",
            "program",
            default=None,
            optional=True,
        ),
        Param("tasks", "env", "what it works on: `rows(…)` or `problems(…)`", None),
        Param(GRADER, "grader", "what rewards its answer; none: its own result", (), named=True),
        optional("command", "list", "a program that is run, in place of a function"),
        ARGS,
        text(
            "folder",
            "where the command is run",
            ".",
            form=(r".+", "agents"),
            file=r".+",
            folders=True,
        ),
        word(
            "reward",
            "without a grader: what it returns or writes, or 1 for the exit status 0 and 0 for 1",
            ("result", "exit_status"),
            "result",
        ),
        count("concurrency", "most of them at a time", 64, high=100_000),
        optional(SECRETS, "list", "names of keys in the environment that a command is given"),
        example="env = agent(\n"
        '  "shopper.py:solve",\n'
        '  tasks = rows("shop.jsonl"),\n'
        '  grader = grade_with("shopper.py:grade"),\n'
        ")",
        traits=SourceTraits(
            "own",
            blocks=False,
            package="uvicorn",
            extra="serve",
            unknown_turns="the agent decides; `rollouts(max_turns = …)` limits them",
        ),
    ),
    source(
        "harbor",
        "Harbor's task folders: the model works in a shell, and the task's tests reward it",
        text(
            "id",
            "the folders of tasks, as a pattern",
            form=(r".+", "tasks/*"),
            file=r".+",
            folders=True,
        ),
        SHUFFLE,
        TASK_LIMIT,
        count("turns", "most replies, after which the tests run", 30, high=1_000),
        Param("timeout", "duration", "longest command", 60, above=0),
        word(
            "runtime",
            "what commands run in; `container`: docker or podman; `subprocess` is a stand-in that "
            "isolates nothing",
            ("container", "docker", "podman", "subprocess"),
            "container",
            noun="runtime",
        ),
        count("boxes", "most containers at a time", 8, high=1_000),
        turns=lambda args: args.turns,
        env_name=_folder_name,
        traits=SourceTraits(
            "own", numbered=True, blocks=False, facts=lambda _: EnvFacts(uncounted=True)
        ),
        example='env = harbor("tasks/*", turns = 20, timeout = 2m)',
    ),
    source(
        "openenv",
        "an environment of an OpenEnv server",
        text(
            "server",
            "its address; or, to start it here, its package, or a command with {port} in it",
            form=(
                r"https?://[^/\s]+(/[^\s]*[^/\s])?|[A-Za-z_]\w*|(?!https?://)[^\n]*\{port\}[^\n]*",
                "http://127.0.0.1:8000",
            ),
            formerly=("url",),
        ),
        optional(
            "text",
            "string",
            "field of an action that takes the text of a reply; without it, and without `encode`, "
            "actions are calls of a tool",
            only_if=("encode", ("none",)),
        ),
        code(
            "encode",
            "a function of one's own that makes an action of the text of a reply",
            "reply",
            default=None,
            optional=True,
        ),
        optional("show", "string", "field of an observation that the model sees; none: all of it"),
        Param("reset", "record", "arguments of its reset, besides the seed", {}),
        count("sessions", "most sessions at a time; many servers have one", 1, high=100_000),
        optional(SECRETS, "list", "names of keys in the environment that its server is given"),
        env_name=lambda _: "openenv",
        traits=SourceTraits(
            "own",
            blocks=False,
            package="websockets",
            extra="openenv",
            unknown_turns="the server decides; `rollouts(max_turns = …)` limits them",
            facts=lambda _: EnvFacts(uncounted=True),
        ),
        example=('env = openenv("http://127.0.0.1:8000", text = "message", show = "text")'),
    ),
    source(
        "verifiers",
        "an environment or a taskset of Prime Intellect's verifiers: a package of the Environments "
        "Hub, or one of one's own",
        text(
            "id",
            "its package, as it is installed, or a Python file",
            form=(_PACKAGE, "primeintellect/wordle"),
            file=r".+\.py",
            code="factory",
            calls="load_environment",
        ),
        ARGS,
        text("split", "its training or its evaluation tasks", USUAL[0], choices=USUAL),
        SHUFFLE,
        TASK_LIMIT,
        Param(
            "weights",
            "record",
            "of the functions of its rubric, by name; the others keep their own",
            {},
        ),
        env_name=lambda args: (
            module_of_package(args.id.data).removesuffix(".py").rpartition("/")[2]
        ),
        traits=SourceTraits(
            "own",
            numbered=True,
            blocks=False,
            package="verifiers",
            extra="verifiers",
            code=True,
            tasksets=True,
            unknown_turns="its own code decides; `rollouts(max_turns = …)` limits them",
            facts=lambda env: EnvFacts(uncounted=True, held_out=env.args["split"] == "test"),
        ),
        example='env = verifiers("primeintellect/wordle", args = { max_turns = 6 })',
    ),
    source(
        "textarena",
        "a game of TextArena, by its id; its seats are `player_0`, `player_1` …",
        text("id", "id of the game", choices=textarena_ids, noun="game of TextArena"),
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
    source(
        "python_game",
        "a game of one's own for several seats",
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
    seat = evolve(args.seat, data=ANY) if in_turn else args.seat
    return PlayPlan(opponent, past, seat, args.temperature, args.max_tokens, script)


PLAYERS = (
    Builtin(
        "play",
        "wrapper",
        "who plays a game of several seats: the policy all of them, or some against an opponent",
        _play,
        (
            Param(
                "against", "opponent", "who plays the other seats; `self`: all seats are trained"
            ),
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
            optional(
                "max_tokens", "int", "longest reply of the opponent; none: the policy's", low=1
            ),
        ),
        traits=WrapperTraits("setting"),
        example=_against("past(every = 20)"),
    ),
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
        count("every", "steps for which the opponent stays as it is", high=100_000),
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
