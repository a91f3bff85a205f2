"""Sources of environments that other frameworks define, and that own their loop or their server."""

from __future__ import annotations

from rlc.catalog.builtins.sources import ARGS, SAMPLES, SHUFFLE, environment
from rlc.catalog.builtins.splits import USUAL
from rlc.catalog.records import Args, Param, builtin, code, optional, word
from rlc.catalog.traits import EnvFacts, SourceTraits
from rlc.data.code.calls import module_of_package
from rlc.plan.environments import EnvPlan

_PACKAGE = r"(?:[\w.-]+/)?[A-Za-z_][\w-]*(?:@[\w.]+)?|.+\.py"


def _verifiers(args: Args) -> EnvPlan:
    module = module_of_package(args.id.data).removesuffix(".py").rpartition("/")[2]
    return environment("verifiers", args, name=module)


def _harbor(args: Args) -> EnvPlan:
    parts = [part for part in args.id.data.split("/") if part.strip("*.")]
    return environment("harbor", args, args.turns, parts[-1] if parts else "harbor")


FRAMEWORKS = (
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
        SAMPLES,
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
    ),
    builtin(
        "openenv",
        "env",
        "an environment of an OpenEnv server",
        lambda args: environment("openenv", args, name="openenv"),
        Param(
            "url",
            "string",
            "the server",
            form=(r"https?://[^/\s]+(/[^\s]*[^/\s])?", "http://127.0.0.1:8000"),
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
        SAMPLES,
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
    ),
)
