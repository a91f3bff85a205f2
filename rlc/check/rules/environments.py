"""Rules on environments: what the model sees, whether they can be made, context."""

from __future__ import annotations

import os

from rlc.catalog import (
    TEMPLATES,
    chat_history_of,
    drops_thinking,
    env_facts,
    files_of,
    find_builtin,
    find_model,
    goes_on,
    history_of,
    is_chat,
    max_turns,
    played_as,
    players_of_role,
    renderer_fits,
    source_traits,
    with_role,
    wrapper_traits,
)
from rlc.check.rules.view import StageView, rule_on_envs
from rlc.check.scope import advice_for_file
from rlc.lang import is_variable, masked
from rlc.plan import WHERE_PATHS_START, EnvPlan

_CHARACTERS_PER_TOKEN = 4


@rule_on_envs()
def _wrappers_apply(view: StageView, env: EnvPlan) -> None:
    bare = source_traits(env.source).prompts == "text"
    if bare and with_role(env, "chat", "template") is None:
        message = f"no wrapper turns what `{env.name}` shows into a prompt"
        advice = "end it with `|> chat()`, or with `|> template(qwen3_game)`"
        view.error("RL0307", f"envs.{env.name}", message, advice)
    player = played_as(env)
    source = source_traits(player)
    shows_tools = is_chat(env) and with_role(env, "game") is None and source.prompts != "own"
    for name in (wrapper.name for wrapper in env.wrappers):
        wraps, path = wrapper_traits(name).wraps, f"envs.{env.name}.wrappers.{name}"
        if wraps == "text" and source.prompts != "text":
            message = f"`{name}()` wraps environments of GEM, and this is from `{player}()`"
            advice = "remove it: its prompts are chats through the model's renderer already"
            view.error("RL0305", path, message, advice)
        elif wraps == "chats" and not shows_tools:
            message = (
                f"`{name}()` needs an environment that is shown as a chat, and `{env.name}` is not"
            )
            advice = "end it with `|> chat()`, without `template()` and `solver_judge()`"
            if source.prompts == "own":
                message = f"`{player}()` makes prompts of its own, with tools of its own"
                advice = f"remove `{name}()`"
            view.error("RL0700", path, message, advice)
        elif wraps == "blocks" and source.blocks is False:
            message = f"`{player}()` waits without blocking, so `{name}()` has nothing to do"
            view.error("RL0305", path, message, "remove it")
    chat = with_role(env, "chat")
    for name in ("instruction", "system") if source.tokens and chat is not None else ():
        if chat is not None and chat.args.get(name):
            message = f"`{player}()` writes its messages itself, and has no use for `{name}`"
            advice = "remove it; what the data set takes is written in its `args`"
            view.error("RL0305", f"envs.{env.name}.wrappers.chat.args.{name}", message, advice)


@rule_on_envs()
def _servers_can_be_started(view: StageView, env: EnvPlan) -> None:
    tools = with_role(env, "server_tools")
    if tools is None:
        return
    from rlc.data import DataError, is_command, server_command

    path = f"envs.{env.name}.wrappers.{tools.name}.args.{wrapper_traits(tools.name).server}"
    try:
        command = server_command(tools.args["server"])
    except DataError as error:
        view.error("RL0701", path, str(error), "write it as in a shell")
        return
    if command is not None and view.is_run_here and not is_command(command[0]):
        message = f"there is no command `{command[0]}` here, which starts the server"
        view.warning("RL0701", path, message, "install it, if the recipe is run here")


@rule_on_envs()
def _tasks_can_be_run(view: StageView, env: EnvPlan) -> None:
    source = find_builtin("env", env.source)
    if source is None or not source.params[0].folders:
        return
    from rlc.data import CONTAINERS, DataError, harbor_tasks, is_command

    path = f"envs.{env.name}"
    try:
        tasks = harbor_tasks(view.located(env.id))
    except DataError as error:
        view.error("RL0703", f"{path}.id", str(error), error.hint or WHERE_PATHS_START)
        return
    if (asked := env.args["samples"] or 0) > len(tasks):
        message = f"there are {len(tasks):,} tasks, and {asked:,} are asked for"
        view.error("RL0327", f"{path}.args.samples", message, "leave `samples` out for all of them")
    if (runtime := env.args["runtime"]) == "subprocess":
        message = f"nothing isolates the commands of `{env.name}`: they run as you, on this machine"
        advice = "for tests alone: a policy tries anything; `runtime = container` isolates it"
        view.warning("RL0704", f"{path}.args.runtime", message, advice)
    elif view.is_run_here and not any(
        map(is_command, programs := CONTAINERS.get(runtime, (runtime,)))
    ):
        message = f"`{env.name}` runs in containers, and there is no {' or '.join(programs)} here"
        advice = "install it, if it is run here; `runtime = subprocess` is a stand-in for tests"
        view.warning("RL0702", f"{path}.args.runtime", message, advice)


@rule_on_envs()
def _can_be_made(view: StageView, env: EnvPlan) -> None:
    if library := env_facts(env).broken_in:
        message = f'{library} registers "{env.id}" but cannot make it'
        view.error("RL0404", f"envs.{env.name}.id", message, "use another environment")
    for path, value in files_of(env):
        if not os.path.isfile(file := view.located(value)):
            message = f'there is no file "{file}"'
            view.error("RL0001", f"envs.{env.name}.{path}", message, advice_for_file(file))
    # A secret itself would be shown by `explain`, and kept in the plan and in every run.
    for name in env.args.get("secrets") or ():
        if not is_variable(name) and masked(str(name)) == name:  # else it was reported as a key
            message = "these are names of variables of the environment, and one is no name"
            advice = 'put the secret into a variable, and write its name: `["OPENAI_API_KEY"]`'
            view.error("RL0323", f"envs.{env.name}.args.secrets", message, advice, hides=True)


@rule_on_envs()
def _turns_fit_the_wrappers(view: StageView, env: EnvPlan) -> None:
    path, turns = f"envs.{env.name}.wrappers", max_turns(env)
    game, history = with_role(env, "game"), with_role(env, "history")
    template = with_role(env, "template")
    if game is not None and env.max_turns != 1:
        message = f"`{env.name}` has several turns, and a solver's answer is one reply"
        advice = f"`{game.name}()` takes `problems(…)`, or a single-turn environment"
        view.error("RL0315", f"{path}.{game.name}", message, advice)
    if game is not None and players_of_role(env) == 1:
        message = f"the judge of `{env.name}` has one answer to choose from"
        advice = "it is right whenever that is: `solvers = 2`, or leave the judge out"
        view.warning("RL0441", f"{path}.{game.name}", message, advice)
    if history is not None and turns == 1 and not wrapper_traits(history.name).chat_template:
        message = f"`{env.name}` has one turn, so `{history.name}()` changes nothing"
        view.warning("RL0414", f"{path}.{history.name}", message, "leave it out")
    # A template of the user's own may repeat the task.
    known = template is not None and template.args["name"] in TEMPLATES
    if template is not None and known and turns != 1 and history_of(env) == "latest":
        message = f"from its second turn on `{env.name}` shows the latest observation, no task"
        advice = "keep the history: `chat()` instead of the template, or `concat()` before it"
        view.warning("RL0434", f"{path}.{template.name}", message, advice)


@rule_on_envs("model")
def _earlier_turns(view: StageView, env: EnvPlan) -> None:
    """Where the model's template would show earlier turns otherwise, the recipe says so."""
    renderer, path = view.model.renderer, f"envs.{env.name}"
    if chat := with_role(env, "chat"):
        path = f"{path}.wrappers.{chat.name}"
    differs = drops_thinking(renderer) and renderer_fits(view.model.base, renderer)
    one_reply = (max_turns(env) or 1) == 1 or with_role(env, "game") is not None
    if one_reply or env.agent is not None or not differs or not goes_on(env, renderer):
        return
    if not view.is_given(f"{path}.args.history"):
        message = (
            f"in later turns of `{env.name}` the model sees its earlier thinking, which the "
            f'template of "{renderer}" leaves out'
        )
        advice = (
            "say which it is: `chat(history = sampled)`, an episode is one sequence, or "
            "`chat(history = template)`, as servers show it, at the price of a sequence a turn"
        )
        view.warning("RL0405", path, message, advice)


@rule_on_envs("advantage", "model")
def _each_turn_a_sequence(view: StageView, env: EnvPlan) -> None:
    """Where no turn extends the one before, a long episode is paid for again and again."""
    turns, path = max_turns(env), f"envs.{env.name}.wrappers"
    history, tokens = with_role(env, "history"), source_traits(env.source).tokens
    if (turns is not None and turns <= 2) or goes_on(env, view.model.renderer) is not False:
        return
    if history is not None:
        path, why, instead = f"{path}.{history.name}", f"`{history.name}()`", "`chat()`"
    elif chat_history_of(env) == "template" and env.agent is None and not tokens:
        path, why = f"{path}.chat.args.history", "`history = template`"
        instead = "`history = sampled`"
    else:
        return
    message = f"with {why} every turn of `{env.name}` is a sequence of its own"
    advice = f"the cost grows with the square of the turns; {instead} makes the episode one"
    view.warning("RL0415", path, message, advice)


@rule_on_envs("model")
def _templates_fit(view: StageView, env: EnvPlan) -> None:
    """The tokenizer of a base model may have no chat template; then GEM's chat wrappers fail."""
    model, path = find_model(view.model.base), f"envs.{env.name}.wrappers"
    for wrapper in env.wrappers if model is not None and model.renderers else ():
        traits, name = wrapper_traits(wrapper.name), wrapper.args.get("name", "")
        if model and "role_colon" in model.renderers and traits.chat_template:
            message = (
                f"`{wrapper.name}()` needs a chat template, and `{model.base}` is a base model"
            )
            advice = "use `concat()`, or a model that was trained to chat"
            view.error("RL0418", f"{path}.{wrapper.name}", message, advice)
        known = TEMPLATES.get(name) if traits.role == "template" else None
        if model and not model.chatml and known is not None and known.chatml:
            message = f'the template "{name}" writes Qwen\'s chat markup, not that of this model'
            advice = "use `chat()`, or `concat_chat() |> template(no)`: both write its own"
            view.warning("RL0406", f"{path}.{wrapper.name}.args.name", message, advice)


@rule_on_envs("model", "sampling")
def _context(view: StageView, env: EnvPlan) -> None:
    context = view.model.context
    if context is None:
        return
    reply, path = env.rollouts.max_tokens, f"envs.{env.name}.rollouts.max_tokens"
    if reply >= context:
        message = f"a reply of {reply:,} tokens leaves no room for a prompt in {context:,}"
        view.error("RL0407", path, message, "lower max_tokens")
        return
    turns, history, chars = max_turns(env), history_of(env), env_facts(env).chars
    if turns is None:  # a limit that is written says how many may be
        limit = f"envs.{env.name}.rollouts.max_turns"
        turns = env.rollouts.max_turns if view.is_given(limit) else 1
    # Of the last prompt with its reply, as far as observations were measured.
    replies, observations = turns if history == "all" else 1, 1 if history == "latest" else turns
    prompt, observation = (chars.get(kind, (0, 0))[0] for kind in ("prompt", "observation"))
    seen = prompt + (observations - 1) * observation
    left = context - seen // _CHARACTERS_PER_TOKEN
    if replies * reply > left:
        message = f"{turns} turns of {reply:,} tokens may outgrow the model's context of "
        advice = f"`{env.name}` would be cut off; {max(1, left // replies):,} tokens a turn fit"
        view.warning("RL0407", path, f"{message}{context:,}", advice)
