"""What is wrong with a recipe's OpenReward environments, found before anything is paid for.

Each is asked for its splits, its tasks, its tools and the secrets that it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches

from rlc.chat import EnvError
from rlc.envs.openreward.client import KEY, Connection, ServerAddress, end_session
from rlc.envs.openreward.source import task_order
from rlc.plan import EnvPlan


def openreward_problems(envs: Sequence[EnvPlan]) -> list[str]:
    """One sentence for each thing that is wrong with OpenReward environments. Blocks, and may be
    called from within a running event loop."""

    async def ask_all() -> list[str | None]:
        return await asyncio.gather(*map(_problem, envs))

    with ThreadPoolExecutor(max_workers=1) as pool:
        found = pool.submit(asyncio.run, ask_all()).result()
    return list(dict.fromkeys(filter(None, found)))


async def _problem(env: EnvPlan) -> str | None:
    """The first thing that is wrong with an environment."""
    address = ServerAddress.of(env.id, env.args)
    if missing := address.missing():
        return f"`{env.name}` needs {', '.join(missing)} in the environment, and it is not set"
    connection = Connection(address)
    try:
        await _ask(env, connection)
    except EnvError as error:
        return f"`{env.name}` cannot be played: {error}"
    finally:
        await connection.close()
    return None


async def _ask(env: EnvPlan, connection: Connection) -> None:
    """Raise EnvError for the first thing that is wrong."""
    split = env.args["split"]
    if split not in (splits := await connection.splits()):
        raise EnvError(f"it has no split {_unknown(split, splits)}")
    task_order(await connection.count(split), env.args["shuffle"], env.args["samples"])
    given = {"api_key", KEY.lower(), *(name.lower() for name in env.args["secrets"])}
    asked = [name for name in await connection.required_secrets() if name.lower() not in given]
    if asked:
        quoted = ", ".join(f'"{name}"' for name in asked)
        raise EnvError(f"it asks for secrets: `secrets = [{quoted}]`")
    if env.args["tools"]:
        session = await connection.session(split, 0)  # an environment may have tools of a task
        try:
            names = [tool.name for tool in await connection.call(session.list_tools)]
        finally:
            await end_session(session)
        for name in env.args["tools"]:
            if name not in names:
                raise EnvError(f"it has no tool {_unknown(name, names)}")


def _unknown(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    advice = f"; did you mean `{close[0]}`?" if close else ""
    listed = ", ".join(f"`{one}`" for one in known) or "none"
    return f"`{name}`: there is {listed}{advice}"
