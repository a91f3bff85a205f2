"""Rules on games and agents: seats and who plays them, programs, tasks and what rewards them."""

from __future__ import annotations

import os

from rlc.catalog import (
    env_facts,
    metric_traits,
    names_of,
    opponent_name,
    opponent_traits,
    seats_of,
    source_traits,
    textarena_facts,
    trained_seats,
    with_role,
)
from rlc.check.rules.view import StageView, rule, rule_on_envs
from rlc.lang import Label
from rlc.plan import ANY, EnvPlan


@rule_on_envs()
def _has_its_seats(view: StageView, env: EnvPlan) -> None:
    seats, players = env.args.get("seats"), env.args.get("players")
    named = all(isinstance(role, str) and role.isidentifier() for role in seats or ())
    if seats is not None and (len(seats) < 2 or not named or ANY in seats):
        message = "the seats of a game are two roles or more, each with a name"
        advice = 'for example `seats = ["first", "second"]`; several may have the same role'
        view.error("RL0782", f"envs.{env.name}.args.seats", message, advice)
    known = textarena_facts(env.id)["players"] if players is not None else None
    if known is not None and players not in known:
        message = f'"{env.id}" is no game for {players}'
        advice = f"it takes {', '.join(map(str, known[:-1]))} or {known[-1]} players"
        view.error("RL0782", f"envs.{env.name}.args.players", message, advice)
    seats = seats_of(env)
    if len(seats) > 1 and env.play is None:
        message = f"`{env.name}` has {len(seats)} seats, and nothing says who plays them"
        advice = "add `|> play(against = self)`, or an opponent: `|> play(against = policy)`"
        view.error("RL0780", f"envs.{env.name}.id", message, advice)
    elif len(seats) < 2 and env.play is not None and "seats" not in env.args:
        message = f"`{env.name}` is not a game of several seats, so there are no opponents"
        advice = "remove `play()`; games are made by `textarena()` and `python_game()`"
        view.error("RL0781", f"envs.{env.name}.play", message, advice)


@rule_on_envs()
def _leaves_a_seat_to_the_opponent(view: StageView, env: EnvPlan) -> None:
    play, seats, path = env.play, seats_of(env), f"envs.{env.name}.play"
    if play is None or len(seats) < 2:
        return
    given = [n for n in ("seat", "temperature", "max_tokens") if getattr(play, n) is not None]
    if play.is_self_play:
        for name in given:
            message = f"`{name}` is about an opponent, and `self` plays without one"
            advice = "the policy has all seats, and all are trained: remove it"
            view.error("RL0783", f"{path}.{name}", message, advice)
    elif play.seat != ANY and play.seat not in seats:
        message = f"`{env.name}` has no seat `{play.seat}`"
        known = ", ".join(f'"{role}"' for role in dict.fromkeys(seats))
        view.error("RL0782", f"{path}.seat", message, f"its seats are {known}")
    elif len(trained_seats(env)) == len(seats):
        message = f"every seat of `{env.name}` is a `{play.seat}`, so none is left to the opponent"
        view.error("RL0783", f"{path}.seat", message, "`seat = any` trains one of them at a time")


@rule_on_envs()
def _program_can_play(view: StageView, env: EnvPlan) -> None:
    play, path = env.play, f"envs.{env.name}.play"
    if play is None or play.script is None or len(seats_of(env)) < 2:
        return
    for name in ("temperature", "max_tokens"):
        if getattr(play, name) is not None:
            message = f"`{name}` is about a model, and the opponent is a program"
            advice = "a program samples nothing: remove it"
            view.error("RL0783", f"{path}.{name}", message, advice)
    traits, named = opponent_traits(play.script.player), opponent_name(env)
    own = 'a function of your own may: `scripted("players.py:best")`'
    if traits.games is not None and env.id not in traits.games:
        message = f"`{named}` does not know how to play `{env.id}`"
        known = ", ".join(f'textarena("{one}")' for one in traits.games)
        view.error("RL0808", f"{path}.script", message, f"it plays {known}; {own}")
    elif traits.needs_moves and env_facts(env).lists_moves is False:
        message = f"`{env.id}` does not say which moves are legal, so `{named}` cannot draw one"
        view.error("RL0808", f"{path}.script", message, own)


@rule_on_envs()
def _has_a_past(view: StageView, env: EnvPlan) -> None:
    if env.play is not None and env.play.past is not None and "optimizer" not in view.parts:
        message = "an evaluation trains nothing, so it has no past to play against"
        advice = "name the model or the stage that is the opponent: `play(against = policy)`"
        view.error("RL0784", f"envs.{env.name}.play.past", message, advice)


@rule("metrics", "envs")
def _wins_something(view: StageView) -> None:
    other = next((env for env in view.envs if env.play is None), None)
    for index, metric in enumerate(view.metrics):
        if metric_traits(metric.name).of_games and other is not None:
            message = f"`{metric.name}()` counts matches that are won, and `{other.name}` has none"
            advice = "use `pass_at(1)` for tasks that are solved, or `mean_reward()`"
            view.error("RL0785", f"metrics.{index}", message, advice)


@rule_on_envs("metrics")
def _evaluates_against_another(view: StageView, env: EnvPlan) -> None:
    """Any policy wins half of its matches against itself."""
    if env.play is not None and env.play.is_self_play and len(seats_of(env)) > 1:
        message = "an evaluation against itself does not tell a good policy from a bad one"
        advice = "use a fixed opponent, such as the model that it began as: `against = policy`"
        view.warning("RL0786", f"envs.{env.name}.play", message, advice)


@rule("batch", "advantage", "envs")
def _seats_have_peers(view: StageView) -> None:
    """A role of which a task has one rollout has nobody to compare with."""
    for env in view.envs:
        if env.play is None or len(seats_of(env)) < 2 or not trained_seats(env):
            continue
        seats, group = seats_of(env), env.rollouts.group
        trained = [seats[seat] for seat in trained_seats(env)]
        of_a_role = group * min(trained.count(role) for role in trained)
        if env.play.seat == ANY:
            of_a_role = group // len(seats)
        fewest = {"role": of_a_role, "group": group * len(trained)}
        for path, over, keeps_single in view.compared():
            if fewest.get(over, 2) > 1 or keeps_single:
                continue
            label = Label(view.at(path), f"this compares within a {over}")
            if over == "role" and env.play.seat == ANY:
                need = 2 * len(seats)
                message = f"a seat of `{env.name}` has too few rollouts of a task to be compared"
                advice = f"the seats are taken in turn: `group_size = {need}`, or a fixed `seat`"
            else:
                message = (
                    f"a group of 1 of `{env.name}` compares nothing: every advantage would be 0"
                )
                advice = "play each task more often, for example `group_size = 8`, or use `rae()`"
            view.error("RL0787", f"envs.{env.name}.rollouts.group", message, advice, label)
            return


_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb")


@rule_on_envs()
def _has_a_program(view: StageView, env: EnvPlan) -> None:
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
        view.error("RL0802", f"{path}.folder", message, "remove it")
    elif agent.command is None and agent.secrets:
        message = "`secrets` are given to a command, and this is a function, which has them all"
        view.error("RL0802", f"{path}.secrets", message, "remove it")
    elif agent.command is not None and agent.args:
        message = "`args` are the arguments of a function, and this is a command"
        advice = "write them as words of the command"
        view.error("RL0802", f"{path}.args", message, advice)
    if agent.reward != "result" and agent.command is None:
        message = "a function has no exit status"
        advice = "let it return its reward, and leave this out"
        view.error("RL0806", f"{path}.reward", message, advice)
    elif agent.reward != "result" and env.graders:
        message = f"the exit status is not read: graders reward `{env.name}`"
        advice = "remove the `grader`, or leave `reward` out"
        view.error("RL0806", f"{path}.reward", message, advice)


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
        file = os.path.join(folder, script)
        if script.endswith(_SCRIPTS) and not os.path.isfile(file):
            message = f'there is no file "{file}", which `{program}` is given'
            advice = "words of a command that are paths start at its `folder`"
            view.warning("RL0805", f"{path}.command", message, advice)


@rule_on_envs()
def _has_rows_as_tasks(view: StageView, env: EnvPlan) -> None:
    wrapper = with_role(env, "chat", "template", "game")
    if env.agent is not None and not source_traits(env.source).graded:
        graded = [f"`{name}(…)`" for name in names_of("env") if source_traits(name).graded]
        message = f"an agent works on rows, and `{env.source}()` has none"
        advice = f"use {' or '.join(graded)} as its tasks"
        view.error("RL0801", f"envs.{env.name}.id", message, advice)
    elif env.agent is not None and wrapper is not None:
        message = f"the agent writes the prompts of `{env.name}`, so `{wrapper.name}()` has no part"
        path = f"envs.{env.name}.wrappers.{wrapper.name}"
        view.error("RL0804", path, message, "remove it, and let the agent say it")


def _is_command(words: list[str]) -> bool:
    return bool(words) and all(isinstance(word, str) and word for word in words)
