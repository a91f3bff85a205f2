"""Rules on tasks and data: what chooses among tasks, what plays them, what rows hold.

Splits of sets that are known by name are looked up; files are read, if the check may read them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rlc.catalog import (
    Param,
    code_of,
    code_of_data,
    env_facts,
    files_of,
    find_builtin,
    functions_of,
    grader_traits,
    have_tasks_in_common,
    names_of,
    prompt_rules,
    seats_of,
    source_traits,
    task_count,
    templates_of,
    with_role,
)
from rlc.check.rules.view import StageView, rule, rule_on_envs, teacher_paths
from rlc.check.scope import advice_for_file, known_values
from rlc.lang import Label
from rlc.plan import EnvPlan, base_split, file_part, hub_dataset
from rlc.records import evolve

if TYPE_CHECKING:
    from rlc.check.rules.rows import (
        StageRows,  # imported where a file is read: few recipes name any
    )


@rule_on_envs()
def _curriculum_chooses(view: StageView, env: EnvPlan) -> None:
    curriculum = with_role(env, "curriculum")
    if curriculum is None:
        return
    path, args = f"envs.{env.name}.wrappers.{curriculum.name}", curriculum.args
    remembers = f"`{curriculum.name}()` remembers tasks, and"
    if not source_traits(env.source).numbered:
        numbered = (n for n in names_of("env") if source_traits(n).numbered)
        message = f"{remembers} those of `{env.source}()` have no numbers"
        advice = f"remove it; it works with {' and '.join(f'`{n}()`' for n in numbered)}"
        view.error("RL0320", path, message, advice)
    elif env_facts(env).uncounted and env.args["samples"] is None:
        message = f"{remembers} it is not known how many `{env.name}` has"
        view.error("RL0320", path, message, "give the number: `samples = 1_000` in its source")
    if "by" in args:
        return
    if "args" in args:
        message = f"`{curriculum.name}()` has `args` for a function, and none that weighs tasks"
        view.error("RL0312", f"{path}.args.args", message, "name it: `by = …`, or remove them")
    if args["hopeless"] >= args["solved"]:
        message = "every task that was played is passed over: hopeless, or solved, or both"
        advice = "the share `hopeless` is below `solved`, for example 0% and 100%"
        view.error("RL0443", f"{path}.args.hopeless", message, advice)
    elif args["explore"] == 1:
        message = "all that would be passed over is played all the same"
        view.warning("RL0443", f"{path}.args.explore", message, "10% is enough to look again")


@rule_on_envs("batch", "advantage")
def _tasks_are_compared(view: StageView, env: EnvPlan) -> None:
    curriculum, place, what = with_role(env, "curriculum"), "batch.resample", "`resample`"
    if env.rollouts.group > 1 or not (curriculum or view.batch.resample):
        return
    if curriculum:
        place, what = f"envs.{env.name}.wrappers.{curriculum.name}", f"`{curriculum.name}()`"
    label = Label(view.at(place), "compares the rollouts of a task")
    message = f"`{env.name}` plays each task once, so {what} has nothing to compare"
    advice = "play each task more often, for example `groups(16, group_size = 8)`"
    view.error("RL0308", f"envs.{env.name}.rollouts.group", message, advice, label)


@rule("data")
def _data_can_be_made(view: StageView) -> None:
    is_oracle = getattr(view.data, "policy", None) == "oracle"
    for env in view.data.environments:
        if is_oracle and not env_facts(env).oracle:
            message = f"`{env.name}` has no oracle that could demonstrate it"
            view.error("RL0321", "data.env", message, "use `policy = model`")
        if len(seats_of(env)) > 1:
            message = f"`{env.name}` is a game of several seats, which gives no demonstrations"
            advice = "train on it with a `train` stage, or take the environment of a single player"
            view.error("RL0788", "data.env", message, advice)
    for name in LEARNT:
        path = getattr(view.parts.get(name), "path", None)
        if path is not None and not view.has_file(path):
            message = f'there is no file "{(file := view.located(path))}"'
            view.error("RL0001", f"{name}.path", message, advice_for_file(file))
        if (rows := rows_of_data(view, name)) is not None:
            _check(rows)


@rule_on_envs("optimizer")
def _trains_on_training_tasks(view: StageView, env: EnvPlan) -> None:
    if env_facts(env).held_out:
        path = f"envs.{env.name}.args.split" if "split" in env.args else f"envs.{env.name}.id"
        message = f"`{env.name}` has tasks that are for testing, and this trains on them"
        advice = "nothing is left that would show how good the model is: train on another split"
        view.warning("RL0428", path, message, advice)


@rule_on_envs("metrics")
def _evaluates_on_other_tasks(view: StageView, env: EnvPlan) -> None:
    if not all(view.has_file(path) for _, path in files_of(env)):
        return  # reported elsewhere
    for stage in view.before:
        if any(has_tasks_of(env, trained) for trained in stage.parts.get("envs", ())):
            label = Label(stage.origins.span, "trains on them")
            message = f"`{env.name}` has tasks that the model was trained on"
            advice = "train on `split = first(90%)`, and evaluate on `split = last(10%)`"
            if "test" in (env_facts(env).splits or ()):
                advice = "evaluate on `split = test`"
            view.warning("RL0427", f"envs.{env.name}", message, advice, label)
            return


@rule_on_envs("metrics")
def _evaluates_on_other_rows(view: StageView, env: EnvPlan) -> None:
    for stage in view.before:
        data = stage.parts.get("data")
        if data is None or data.file is None or data.file != env.id or not view.has_file(env.id):
            continue
        split = base_split(env.args["split"]) if data.split is None else data.split
        if have_tasks_in_common(env.args["split"], split):
            message = f"`{env.name}` has rows that the model was trained on"
            label = Label(stage.at("data.path"), "imitates them")
            advice = "imitate `split = first(90%)`, and evaluate on `split = last(10%)`"
            view.warning("RL0505", f"envs.{env.name}.id", message, advice, label)


def has_tasks_of(one: EnvPlan, other: EnvPlan) -> bool:
    """Return whether two environments share tasks; only numbered ones can."""
    if not source_traits(one.source).numbered or env_facts(one).endless:
        return False
    names = ("variant", "base_url")
    mine, its = ((e.source, e.id, *map(e.args.get, names)) for e in (one, other))
    splits = [e.args.get("split", "") for e in (one, other)]  # Harbor's folders have none
    return mine == its and have_tasks_in_common(*splits)


LEARNT = ("data", "heldout")  # the fields of stages that hold data


@rule_on_envs()
def _arguments_fit_known_sets(view: StageView, env: EnvPlan) -> None:
    facts, path = env_facts(env), f"envs.{env.name}.args.split"
    source = find_builtin("env", env.source)
    for param in source.params if source else ():
        if param.name in facts.ignores and env.args[param.name] != param.default:
            message = f"`{param.name}` has no effect on `{env.id}`"
            advice = "it names a field of a file, and this set has fields of its own: remove it"
            view.error("RL0312", f"envs.{env.name}.args.{param.name}", message, advice)
    if facts.splits is None:
        return
    split = env.args["split"]
    if (name := base_split(split)) not in facts.splits:
        message = f"`{env.id}` has no split `{name}`"
        view.report("RL0506", path, message, known_values(facts.splits, name))
    elif facts.uncounted and isinstance(split, Mapping):
        message = f"`{name}` of `{env.id}` has no end, so it has no part"
        advice = f"use another of its splits: {known_values(facts.splits)}"
        view.report("RL0506", path, message, advice)


@rule_on_envs()
def _files_can_be_used(view: StageView, env: EnvPlan) -> None:
    """Rows are read, graders tried on the first of them; code of the user is read, not run."""
    if view.reader is None:
        return
    for rows in rows_of_env(view, env):
        _check(rows)
    for path, code in code_of(env):
        from rlc.check.rules.code import check_code

        check_code(view, f"envs.{env.name}.{path}", code, env, own_rows(view, env))
    for path, param, value in templates_of(env):
        if os.path.isfile(view.located(value)):  # another rule says so
            from rlc.check.rules.code import check_template

            check_template(view, f"envs.{env.name}.{path}", param, value)
    for part in env.graders if source_traits(env.source).answers else ():
        if grader_traits(part.grader).compares:
            from rlc.check.rules.rows import try_grader

            try_grader(view, env, part, [*rows_of_env(view, env)])


@rule("teacher", "envs")
def _rows_have_demonstrations(view: StageView) -> None:
    for path, teacher in teacher_paths(view):
        builtin = find_builtin("teacher", teacher.kind)
        shown = [p for p in builtin.params if p.name == "demonstration"] if builtin else []
        if teacher.demonstration is None or not shown:
            continue
        columns = ((shown[0], teacher.demonstration),)
        for env in view.envs:
            for rows in rows_of_env(view, env) if teacher.name in (None, env.name) else ():
                if not rows.solved:
                    _check(evolve(rows, args=path, columns=columns, require=lambda _: None))


def _check(rows: StageRows) -> None:
    from rlc.check.rules.rows import check_rows

    if os.path.isfile(rows.view.located(rows.file)):  # another rule says so
        check_rows(rows)


def rows_of_env(view: StageView, env: EnvPlan) -> Iterator[StageRows]:
    """Yield the rows of the files that an environment reads: its tasks, and solved ones."""
    source = find_builtin("env", env.source)
    columns = _columns(source.params if source else (), env.args)
    if view.reader is None or source is None or not columns:
        return
    from rlc.check.rules.rows import StageRows
    from rlc.data import Chat, completed, read_prompt, read_solved, require_gradable

    path, fields = f"envs.{env.name}", {param.holds: name for param, name in columns}
    question, answer = fields["asked"], fields.get("answer", "")
    names = [part.grader for part in env.graders] if answer else []
    rules, suffix = prompt_rules(env), env.args.get("suffix") or ""

    def prompt(row: Mapping[str, Any], read: Callable[..., Chat] = read_prompt) -> Chat:
        whole = completed(names, row, question, answer)
        return read(whole, question, **rules).with_suffix(suffix)

    def require(row: Mapping[str, Any], read: Callable[..., Chat] = read_prompt) -> None:
        prompt(row, read)
        for name in names:
            require_gradable(name, answer, row)

    args, (first, *others) = f"{path}.args", source.params
    rows = StageRows(
        *(view, env.id, f"{path}.id", args, columns),
        split=env.args.get("split"),
        key=question,
        most=("samples", env.args.get("samples"), f"{args}.samples"),
        complete=lambda row: completed(names, row, question, answer),
        require=require,
        asked=lambda row: prompt(row).messages,
        code="RL0508",
    )
    if first.names_file(env.id):
        yield rows
    for param in others:
        file = env.args.get(param.name)
        if param.type == "string" and param.names_file(file):
            yield evolve(
                rows,
                file=file,
                path=f"{args}.{param.name}",
                columns=tuple(column for column in columns if column[0].holds != "id"),
                split=None,
                most=("", None, ""),
                require=partial(require, read=read_solved),
                solved=True,
            )


@rule("data", "model")
def _examples_fit(view: StageView) -> None:
    """Prompts and replies alone, without the markup of a chat, may be more than a row can have."""
    data, rows = view.data, rows_of_data(view, "data")
    if rows is None or data.compares or data.too_long != "stop":
        return
    limits = [limit for limit in (data.max_tokens, view.model.context) if limit is not None]
    if not limits or not os.path.isfile(view.located(rows.file)):  # another rule says so
        return
    from rlc.pricing import text_tokens

    for row in rows.used(data.count):
        parts = (row.fields.get(name) for _, name in rows.columns)
        text = "".join(part for part in parts if isinstance(part, str))
        if len(text) > min(limits) and text_tokens(text, view.model, "low") > min(limits):
            message = f'a row of "{rows.file}" has more than {min(limits):,} tokens'
            advice = "the stage would end before its first step: `too_long = drop` leaves it out"
            path = "data.path" if data.max_tokens is None else "data.max_tokens"
            rows.error("RL0407", path, message, advice, row.place)
            return


@rule("data", "heldout")
def _builders_are_there(view: StageView) -> None:
    for name in LEARNT if view.reader is not None else ():
        data = view.parts.get(name)
        if data is not None and (code := code_of_data(data)) is not None:
            from rlc.check.rules.code import check_code

            check_code(view, f"{name}.builder", code)


@rule("advantage")
def _advantages_can_be_made(view: StageView) -> None:
    _check_functions(view, "advantage")


@rule("data")
def _episodes_can_be_chosen(view: StageView) -> None:
    _check_functions(view, "data")


def _check_functions(view: StageView, part: str) -> None:
    """Look at the functions of the user's own that a part of a stage names."""
    for path, code in functions_of({part: view.parts[part]}) if view.reader is not None else ():
        from rlc.check.rules.code import check_code

        file = file_part(code.target)
        if file != code.target and not view.has_file(file):
            message = f'there is no file "{(place := view.located(file))}"'
            view.error("RL0001", path, message, advice_for_file(place))
        else:
            check_code(view, path, code)


@rule()
def _packages_are_installed(view: StageView) -> None:
    """Without `--import` the recipe may be run on another machine."""
    if view.reader is not None and view.reader.imports:
        from rlc.check.rules.code import check_packages

        check_packages(view)


def own_rows(view: StageView, env: EnvPlan) -> StageRows | None:
    """Return the rows of an environment's tasks; None if it reads no file."""
    return next((rows for rows in rows_of_env(view, env) if rows.path.endswith(".id")), None)


def rows_of_data(view: StageView, name: str) -> StageRows | None:
    """Return the rows of a stage's ``data``, or of what it holds out; None if it reads no file."""
    data = view.parts.get(name)
    if view.reader is None or data is None or data.file is None or hub_dataset(data.file):
        return None
    made = find_builtin("data", data.word) or find_builtin("preferences", data.word)
    assert made is not None
    from rlc.check.rules.rows import StageRows
    from rlc.data import hashed, reader_of

    columns = _columns(made.params, {p.name: getattr(data, p.name, None) for p in made.params})
    most = ("n", data.count, f"{name}.count")
    return StageRows(
        *(view, data.path, f"{name}.path", name, columns, data.split, hashed(data), most),
        require=reader_of(data),
        code="RL0720",
    )


def _columns(params: tuple[Param, ...], args: Mapping[str, Any]) -> tuple[tuple[Param, str], ...]:
    return tuple(
        (param, args[param.name])
        for param in params
        if param.holds is not None and args.get(param.name) is not None
    )


def tasks_of(view: StageView, env: EnvPlan) -> int | None:
    """Return how many tasks an environment has; None if that is unknown, or endless."""
    if (count := task_count(env)) is not None:
        return count
    own = own_rows(view, env)
    return None if own is None else own.size()


def examples_of(view: StageView) -> int | None:
    """Return how many examples a supervised stage has; None if that is unknown."""
    if view.data.count is not None:
        return int(view.data.count)
    rows = rows_of_data(view, "data")
    return None if rows is None else rows.size()
