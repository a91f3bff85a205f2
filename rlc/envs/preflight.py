"""What can be wrong with environments outside of the recipe, found before anything is paid for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rlc.envs.base import EnvError
from rlc.envs.python.attributes import load_attribute, require_takes, search_beside
from rlc.plan.records import EnvPlan


def source_problems(envs: Iterable[EnvPlan], recipe: str) -> Iterator[str]:
    """One sentence for each: Python code that a recipe names and is not there, or does not take
    the arguments; a search server that does not answer. Nothing is built yet."""
    search_beside(recipe)
    for env in envs:
        try:
            _require(env)
        except EnvError as error:
            yield f"`{env.name}`: {error}"


def _require(env: EnvPlan) -> None:
    if env.source == "python":
        require_takes(env.id, load_attribute(env.id), env.args["args"])
    if env.source == "cookbook":
        from rlc.envs.cookbook.source import filled_in, require_open

        args = env.args["args"]
        require_open(env.id, args)
        require_takes(env.id, load_attribute(env.id), filled_in(env.id, args))
    tools = [(wrapper.name, wrapper.args) for wrapper in env.wrappers]
    if env.source == "gem" and any(name == "search_tool" for name, _ in tools):
        from rlc.envs.gem.tools import require_search

        require_search(tools)
