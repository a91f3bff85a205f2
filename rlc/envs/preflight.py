"""What can be wrong with environments outside of the recipe, found before anything is paid for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlc.envs.build import ADAPTERS
from rlc.envs.python.attributes import search_beside
from rlc.plan.environments import EnvPlan


def source_problems(envs: Sequence[EnvPlan], recipe: str) -> Iterator[str]:
    """One sentence for each: Python code that a recipe names and that does not exist or does not
    take the arguments, servers that do not answer or do not have what is asked. No environment is
    made."""
    search_beside(recipe)
    for source in dict.fromkeys(env.source for env in envs):
        yield from ADAPTERS[source].problems([env for env in envs if env.source == source])
