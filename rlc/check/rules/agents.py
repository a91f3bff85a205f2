"""Rules on agents: that there is a program, that it has tasks, and what rewards it."""

from __future__ import annotations

import os

from rlc.catalog import names_of, source_traits, with_role
from rlc.check.view import StageView, rule_on_envs
from rlc.plan import EnvPlan

_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb")


@rule_on_envs()
def _has_a_program(view: StageView, env: EnvPlan) -> None:
    """A function or a command, with what counts for it alone."""
    agent, path = env.agent, f"envs.{env.name}.agent"
    if agent is None:
        return
    if (agent.program is None) == (agent.command is None):
        both = agent.program is not None
        message = "an agent is a function or a command" + (", not both" if both else "")
        advice = 'for example `agent("shopper.py:solve", …)`, or `command = ["node", "agent.js"]`'
        view.error("RL0802", path, message, advice)
    elif agent.command is not None and not _is_command(agent.command):
        message = "a command is a list of its words, the program first"
        view.error("RL0805", f"{path}.command", message, 'for example `["node", "agent.js"]`')
    elif agent.command is None and agent.folder != ".":
        message = "`folder` is where a command is run, and this is a function"
        view.error("RL0802", f"{path}.folder", message, "take it out")
    elif agent.command is not None and agent.args:
        message = "`args` are the arguments of a function, and this is a command"
        advice = "write them as words of the command"
        view.error("RL0802", f"{path}.args", message, advice)


@rule_on_envs()
def _command_can_be_run(view: StageView, env: EnvPlan) -> None:
    agent, path = env.agent, f"envs.{env.name}.agent"
    if agent is None or agent.command is None or not _is_command(agent.command):
        return
    from rlc.data import is_command

    folder, (program, *_) = view.located(agent.folder), agent.command
    if not os.path.isdir(folder):
        message = f'there is no folder "{folder}"'
        view.error("RL0805", f"{path}.folder", message, "it starts at the file that names it")
    elif os.sep in program and not os.access(os.path.join(folder, program), os.X_OK):
        message = f'"{os.path.join(folder, program)}" is no program that can be run'
        advice = "a program with a `/` in its name starts at the `folder` of the command"
        view.error("RL0805", f"{path}.command", message, advice)
    elif os.sep not in program and not is_command(program) and view.is_run_here:
        message = f"there is no command `{program}` here"
        view.warning("RL0805", f"{path}.command", message, "install it, if the recipe is run here")
    elif view.reader is not None:
        script = next((word for word in agent.command[1:] if not word.startswith("-")), "")
        if script.endswith(_SCRIPTS) and not os.path.isfile(os.path.join(folder, script)):
            message = (
                f'there is no file "{os.path.join(folder, script)}", which `{program}` is given'
            )
            advice = "words of a command that are paths start at its `folder`"
            view.warning("RL0805", f"{path}.command", message, advice)


@rule_on_envs()
def _is_rewarded_once(view: StageView, env: EnvPlan) -> None:
    """The exit status is that of a command, and counts where no grader does."""
    agent, path = env.agent, f"envs.{env.name}.agent.reward"
    if agent is None or agent.reward == "result":
        return
    if agent.command is None:
        message = "a function has no exit status"
        view.error("RL0806", path, message, "let it return its reward, and leave this out")
    elif env.graders:
        message = f"the exit status is not read: graders reward `{env.name}`"
        advice = "take the `grader` out, or leave `reward` out"
        view.error("RL0806", path, message, advice)


@rule_on_envs()
def _has_rows_as_tasks(view: StageView, env: EnvPlan) -> None:
    """An agent is told its task, which is a row."""
    if env.agent is not None and not source_traits(env.source).graded:
        graded = [f"`{name}(…)`" for name in names_of("env") if source_traits(name).graded]
        message = f"an agent works on rows, and `{env.source}()` has none"
        advice = f"take {' or '.join(graded)} as its tasks"
        view.error("RL0801", f"envs.{env.name}.id", message, advice)


@rule_on_envs()
def _writes_its_prompts(view: StageView, env: EnvPlan) -> None:
    """What the model sees is what the agent sends."""
    wrapper = with_role(env, "chat", "template", "game")
    if env.agent is None or not source_traits(env.source).graded:
        return  # or another rule says so
    if wrapper is not None:
        message = f"the agent writes the prompts of `{env.name}`, so `{wrapper.name}()` has no part"
        path = f"envs.{env.name}.wrappers.{wrapper.name}"
        view.error("RL0804", path, message, "take it out, and let the agent say it")


def _is_command(words: list[str]) -> bool:
    return bool(words) and all(isinstance(word, str) and word for word in words)
