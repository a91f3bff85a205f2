"""Sources of environments that other frameworks define, and that own their loop or their server."""

from __future__ import annotations

from rlc.catalog.builtins.sources import ARGS, GRADER, SHUFFLE, TASK_LIMIT, USUAL, environment
from rlc.catalog.records import Args, Param, builtin, code, optional, word
from rlc.catalog.traits import EnvFacts, SourceTraits
from rlc.data import module_of_package
from rlc.plan import AgentPlan, EnvPlan
from rlc.records import evolve, fields

AGENT = "agent"
_PACKAGE = r"(?:[\w.-]+/)?[A-Za-z_][\w-]*(?:@[\w.]+)?|.+\.py"


def _verifiers(args: Args) -> EnvPlan:
    module = module_of_package(args.id.data).removesuffix(".py").rpartition("/")[2]
    return environment("verifiers", args, name=module)


def _harbor(args: Args) -> EnvPlan:
    parts = [part for part in args.id.data.split("/") if part.strip("*.")]
    return environment("harbor", args, args.turns, parts[-1] if parts else "harbor")


def _agent(args: Args) -> EnvPlan:
    """Its tasks, with the agent that works on them instead of a single reply."""
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


FRAMEWORKS = (
    builtin(
        AGENT,
        "env",
        "a program that owns its loop, and asks the model at an address of its own, as it would "
        "ask OpenAI",
        _agent,
        code("program", "the function that is called", "program", default=None, optional=True),
        Param("tasks", "env", "what it works on: `rows(…)` or `problems(…)`", None),
        Param(GRADER, "grader", "what rewards its answer; none: its own result", (), named=True),
        optional("command", "list", "a program that is run, in place of a function"),
        ARGS,
        Param(
            "folder",
            "string",
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
        Param("concurrency", "int", "most of them at a time", 64, low=1, high=100_000),
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
    builtin(
        "harbor",
        "env",
        "Harbor's task folders: the model works in a shell, and the task's tests reward it",
        _harbor,
        Param(
            "id",
            "string",
            "the folders of tasks, as a pattern",
            form=(r".+", "tasks/*"),
            file=r".+",
            folders=True,
        ),
        SHUFFLE,
        TASK_LIMIT,
        Param("turns", "int", "most replies, after which the tests run", 30, low=1, high=1_000),
        Param("timeout", "duration", "longest command", 60, above=0),
        word(
            "runtime",
            "what commands run in; `container`: docker or podman; `subprocess` is a stand-in that "
            "isolates nothing",
            ("container", "docker", "podman", "subprocess"),
            "container",
            noun="runtime",
        ),
        Param("boxes", "int", "most containers at a time", 8, low=1, high=1_000),
        traits=SourceTraits(
            "own", numbered=True, blocks=False, facts=lambda _: EnvFacts(uncounted=True)
        ),
        example='env = harbor("tasks/*", turns = 20, timeout = 2m)',
    ),
    builtin(
        "openenv",
        "env",
        "an environment of an OpenEnv server",
        lambda args: environment("openenv", args, name="openenv"),
        Param(
            "server",
            "string",
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
        Param(
            "sessions",
            "int",
            "most sessions at a time; many servers have one",
            1,
            low=1,
            high=100_000,
        ),
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
    builtin(
        "verifiers",
        "env",
        "an environment of Prime Intellect's verifiers: a package of the Environments Hub, or one "
        "of one's own",
        _verifiers,
        Param(
            "id",
            "string",
            "its package, as it is installed, or a Python file",
            form=(_PACKAGE, "primeintellect/wordle"),
            file=r".+\.py",
            code="factory",
            calls="load_environment",
        ),
        ARGS,
        Param("split", "string", "its training or its evaluation tasks", USUAL[0], choices=USUAL),
        SHUFFLE,
        TASK_LIMIT,
        Param(
            "weights",
            "record",
            "of the functions of its rubric, by name; the others keep their own",
            {},
        ),
        traits=SourceTraits(
            "own",
            numbered=True,
            blocks=False,
            package="verifiers",
            extra="verifiers",
            code=True,
            unknown_turns="its own code decides; `rollouts(max_turns = …)` limits them",
            facts=lambda env: EnvFacts(uncounted=True, held_out=env.args["split"] == "test"),
        ),
        example='env = verifiers("primeintellect/wordle", args = { max_turns = 6 })',
    ),
)
