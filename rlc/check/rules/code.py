"""Code, templates and packages that a recipe names.

Only `rlc check` of a recipe that names some comes here. Code is looked at without being run, and
tried if that is allowed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from inspect import Signature
from typing import TYPE_CHECKING

from rlc.algo import INPUTS, outweighing
from rlc.catalog import (
    Param,
    judges_of,
    max_turns,
    opponent_name,
    opponent_traits,
    roles_of,
    source_traits,
    with_role,
)
from rlc.catalog.packages import ENVIRONMENTS, TASKSETS, lacking, too_new
from rlc.catalog.requirements import requirements_of
from rlc.check.rules.rows import Messages, StageRows, labels
from rlc.check.rules.view import StageView
from rlc.check.scope import known_values
from rlc.data import (
    OWN,
    Code,
    CodeError,
    DataError,
    DataRow,
    FilePlace,
    PackageMissingError,
    UnearnedReply,
    exports_instead,
    lacks,
    module_file,
    parsed_template,
    require_fits,
    returned_numbers,
    returns_text,
    written_signature,
)
from rlc.lang import Label
from rlc.plan import EnvPlan, GraderPlan, file_part
from rlc.records import evolve

if TYPE_CHECKING:
    from rlc.data import SampleBatch  # imported where a batch is made: few recipes need one

NOT_THERE, DOES_NOT_FIT, FAILS, NO_REWARD = "RL0510", "RL0511", "RL0512", "RL0534"
UNREWARDED, NOT_PLAYED, FAILS_ON = "RL0807", "RL0808", "RL0517"


def check_code(
    view: StageView, at: str, code: Code, env: EnvPlan | None = None, rows: StageRows | None = None
) -> None:
    """Report code that is not there, or does not take the arguments of its call: that of an
    environment, or of a stage's data. If modules may be imported, it is also called; a reward
    on the first ``rows``."""
    module, _, name = code.target.rpartition(":")
    in_file = file_part(code.target) == module
    assert view.reader is not None
    # Beside what is installed, modules are searched where a run does.
    folders = [os.getcwd(), os.path.abspath(os.path.dirname(view.origins.span.source.name))]
    try:
        file = view.located(module) if in_file else module_file(module, folders)
        if in_file and not os.path.isfile(str(file)):  # another rule says so
            return
        lists = env is not None and source_traits(env.source).tasksets and file is not None
        if lists and exports_instead(str(file), name):
            _check_taskset(view, env, at, code)
            return
        signature = None if file is None else written_signature(_shown(file), name)
    except PackageMissingError as missing:
        package = (source_traits(env.source).package if env else None) or ""
        if module.partition(".")[0] == package.replace("-", "_"):  # a rule on packages says so
            return
        if view.reader.imports:
            view.error(NOT_THERE, at, missing.what, missing.hint)
        else:
            advice = missing.hint or "it may be installed where the recipe is run"
            view.warning(NOT_THERE, at, missing.what, advice)
        return
    except CodeError as error:
        view.error(NOT_THERE, at, error.what, error.advice)
        return
    except DataError as error:
        shown = module if in_file else error.place.path if error.place else ""
        view.error(NOT_THERE, at, str(error), error.hint, *labels(error.place, shown))
        return
    try:
        require_fits(code, signature)
    except CodeError as error:
        _report_misfit(view, at, code, error)
        return
    script = env.play.script if code.kind == "game" and env and env.play else None
    draws = script is not None and opponent_traits(script.player).needs_moves
    if env and draws and file is not None and lacks(file, name, "legal_moves"):
        unsaid = f"`{code.target}` does not say which moves are legal"
        message = f"{unsaid}, so `{opponent_name(env)}` cannot draw one"
        advice = "give the game an attribute `legal_moves`, a list of texts"
        view.error(NOT_PLAYED, f"envs.{env.name}.play.script", message, advice)
    alone = env is not None and code.kind == "program" and not (env.graders or env.judging)
    if env and alone and (returned := _no_reward(signature, file, name, rows)) is not None:
        message = f"`{code.target}` returns {returned}, and no grader rewards `{env.name}`"
        advice = f"`return` a number at its end, or give `{env.name}` a `grader`"
        view.error(UNREWARDED, at, message, advice)
        return
    if file is not None and code.kind in _REWARDING and signature is not None:
        constants, keys = returned_numbers(file, name)
        _report_constants(view, at, code, constants)
        if env is not None and code.kind == "reward" and keys is not None:
            _report_components(view, env, code, keys)
    if view.reader.imports and not (lists and _is_reported(view, at, ENVIRONMENTS)):
        _try(view, env, at, code, rows)


def _check_taskset(view: StageView, env: EnvPlan | None, at: str, code: Code) -> None:
    """Report a module that has no factory, but lists what it has, as tasksets of verifiers do."""
    assert view.reader is not None
    if view.reader.imports and not _is_reported(view, at, TASKSETS):
        _try(view, env, at, evolve(code, kind="taskset"), None)


def _is_reported(view: StageView, at: str, package: str) -> bool:
    """Return whether a package is lacking here, which is then reported, unless it is already, or
    as one of certain versions."""
    if (wrong := lacking(package)) is None:
        return False
    needed = f"this needs the package {package}"
    if not any(item.message.startswith(needed) for item in view.found):
        advice = too_new(package) or f"`pip install '{package}'`, if it is run here"
        view.found.warning("RL0513", view.at(at), f"{needed}, which is {wrong}", advice)
    return True


def _no_reward(
    signature: Signature | None, file: str | None, name: str, rows: StageRows | None
) -> str | None:
    """Return what a program returns that is no number, as far as its text shows."""
    if signature is not None and signature.return_annotation is None:
        return "nothing"
    first = rows.sound(1) if rows is not None else []
    texts = {
        field for row in first for field, value in row.fields.items() if isinstance(value, str)
    }
    return "text" if file is not None and returns_text(file, name, texts) else None


_REWARDING = {"reward", "reply", "comparison"}


def _report_constants(view: StageView, at: str, code: Code, always: dict[str, float]) -> None:
    """Report a reward, or the components of one, that are the same whatever the reply."""
    if "" in always:
        message = f"`{code.target}` always returns {always['']:g}"
    elif always:
        listed = ", ".join(f"`{name}` is always {value:g}" for name, value in always.items())
        message = f"of what `{code.target}` returns, {listed}"
    else:
        return
    view.warning("RL0681", at, message, "equal rewards teach nothing")


def _report_components(view: StageView, env: EnvPlan, code: Code, keys: tuple[str, ...]) -> None:
    """Report a shaped reward that reads a component which the only grader does not return."""
    others = len(env.graders) > 1 or env.agent or with_role(env, "game")
    if others or env.reward.shaped is None:
        return
    names = [key or env.graders[0].name for key in keys]
    names += [judge.name for _, _, judge in judges_of(env)]
    for name in env.reward.shaped.inputs:
        if name not in (*INPUTS["reward"], *names):
            message = f"`{code.target}` returns no `{name}`, which this reward reads"
            view.error(
                "RL0680", f"envs.{env.name}.reward.shaped", message, known_values(names, name)
            )


_FOUND = {"import": FAILS, "reward": NO_REWARD, "trial": FAILS_ON}
_MOST_MEMBERS = 8  # of a group of a generated batch


def _sample(view: StageView, env: EnvPlan | None) -> SampleBatch:
    """Return a batch like those of a stage, as far as its environments are known."""
    from rlc.check.pipelines import components_of
    from rlc.data import SampleBatch

    envs = tuple(view.parts.get("envs", ())) if env is None else (env,)
    data = view.parts.get("data")
    envs = envs or tuple(data.environments if data is not None else ())
    known = [components_of(one) for one in envs]
    names = None if None in known else {name for one in known for name in one or ()}
    return SampleBatch(
        tuple(one.name for one in envs),
        tuple(dict.fromkeys(role for one in envs for role in roles_of(one))) or ("",),
        None if names is None else tuple(sorted(names)),
        min(_MOST_MEMBERS, max((one.rollouts.group for one in envs), default=1)),
        min(3, max((max_turns(one) or 3 for one in envs), default=1)),
    )


_CHARACTERS, _LONGEST = 3, 10_000  # of a token, and of a reply that is tried


def _try(
    view: StageView, env: EnvPlan | None, path: str, code: Code, rows: StageRows | None
) -> None:
    from rlc.data import SEES, TRIED_OWN, CodeTrial, MisnamedError

    recipe, grader, answer = view.origins.span.source.name, None, None
    target = view.located(code.target) if file_part(code.target) != code.target else code.target
    if env is not None:
        start, answer = f"envs.{env.name}.graders.", env.args.get("answer")
        grader = next((p for p in env.graders if path.startswith(f"{start}{p.name}.")), None)
    if grader is not None:
        grader = evolve(grader, args={**grader.args, path.rpartition(".")[2]: target})
    asked: tuple[tuple[DataRow, Messages], ...] = ()
    if grader is not None and rows is not None and os.path.isfile(view.located(rows.file)):
        asked = tuple((row, rows.asked(row.fields)) for row in rows.sound(TRIED_OWN))
    longest = min(_LONGEST, _CHARACTERS * ((env and env.rollouts.max_tokens) or 0))
    together = () if env is None or grader is None else _together(view, env, grader.name)
    coef = env.args.get("format_coef", 0.0) if env is not None else 0.0
    batch = _sample(view, env) if code.kind in SEES and code.kind != "player" else None
    given = grader, answer, asked, longest, together, coef, batch
    trial = CodeTrial(recipe, evolve(code, target=target), *given)
    assert view.reader is not None
    tried = view.reader.tried(trial)
    if tried.moved and (most := outweighing(tried.moved, tried.moved)) is not None:
        name, times = most
        message = f"`{name}` of `{code.target}` moves the reward {times:,.0f} times as much as all "
        advice = "give it less weight in `weights`; compared are a right, a wrong and a long reply"
        view.warning("RL0685", path, f"{message}else that it returns", advice)
    if tried.unearned:
        payer = f"`{code.target}`" if len(together) == 1 else "the graders together"
        _report_unearned(view, path, tried.unearned, payer)
    if tried.falls:
        message = f"`{code.target}` pays right answers less than `I do not know.`"
        view.warning("RL0683", path, message, "turn the sign around")
    if (failed := tried.failure) is None:
        return
    error, marks = failed.error, list[Label]()
    what = error.what
    for number, place in enumerate(failed.places):
        shown = _shown(place.path)
        marks += labels(place, shown, "called here" if number else "raised here")
        what = what.replace(place.path, shown)
    if failed.step == "call":
        assert isinstance(error, CodeError)
        _report_misfit(view, path, code, error)
    elif isinstance(error, CodeError):
        view.error(NOT_THERE, path, what, error.advice, *marks)
    elif isinstance(error, MisnamedError):
        assert grader is not None
        weights, path = grader.args["weights"], f"{path.rpartition('.')[0]}.weights"
        unknown = next((name for name in weights if name not in error.names), None)
        others = [name for name in error.names if name not in weights]
        advice = f"give {known_values(others)} a weight too"
        if unknown is not None:
            path = f"{path}.{unknown}"
            advice = known_values(others, unknown) if others else f"remove `{unknown}`"
        view.error(NO_REWARD, path, what, advice, *marks)
    else:
        found = _FOUND[failed.step]
        marks += labels(error.place, error.place.path, "for this row") if error.place else []
        view.error(found, path, what, error.hint, *marks)


def _report_unearned(
    view: StageView, path: str, unearned: Sequence[UnearnedReply], payer: str
) -> None:
    first, *others = unearned
    message = f"{first.reply} earns {first.earned:g} from {payer}"
    if first.due is not None:
        message += f", and a right answer {first.due:g}"
    if others:
        does = "does" if len(others) == 1 else "do"
        message += f"; so {does} {', '.join(one.reply for one in others)}"
    advice = "a policy finds that first: pay for an answer alone, and where it has to stand"
    view.warning("RL0686", path, message, advice)


def _together(view: StageView, env: EnvPlan, first: str) -> tuple[GraderPlan, ...]:
    """Return all graders of an environment where nothing else rewards it, and the ``first`` is the
    first function of the user's own among them."""
    own = [part for part in env.graders if part.grader == OWN]
    otherwise = env.judging or env.reward.shaped or env.agent or env.play or with_role(env, "game")
    if otherwise or own[0].name != first:
        return ()
    graders = list[GraderPlan]()
    for part in env.graders:
        target = part.args.get("function", "")
        if file_part(target) != target:
            part = evolve(part, args={**part.args, "function": view.located(target)})
        graders.append(part)
    return tuple(graders)


def _report_misfit(view: StageView, path: str, code: Code, error: CodeError) -> None:
    if code.kind in ("reward", "comparison"):
        view.error(NO_REWARD, path, error.what, error.advice)
        return
    if error.argument is not None:
        part, _, last = path.rpartition(".")
        path = f"{part}.args.args" if last == "id" else f"{part}.args"
        path += f".{error.argument}"
    view.error(DOES_NOT_FIT, path, error.what, error.advice)


def _shown(file: str) -> str:
    near = os.path.relpath(file)
    return file if near.startswith(os.pardir) else near


def check_template(view: StageView, path: str, param: Param, value: str) -> None:
    """Report a file that is not a template, uses unknown variables, or leaves given ones out."""
    file = view.located(value)
    try:
        read = parsed_template(file)
    except DataError as error:
        message = f'"{value}" cannot be used: {error.what}'
        view.error("RL0514", path, message, None, *labels(error.place, value))
        return
    for name in read.unknown(param.variables):
        line = read.variables[name]
        message = f'"{value}" uses `{name}`, and it is not given that'
        marks = labels(FilePlace(file, line, line), value)
        view.report("RL0515", path, message, known_values(param.variables, name), *marks)
    unused = read.unused(param.variables)
    if unused and not read.unknown(param.variables):
        named = " and ".join(f"`{name}`" for name in unused)
        message = f'"{value}" does not show {named}'
        advice = f"the model would not see it: write `{{{{ {unused[0]} }}}}` where it belongs"
        view.error("RL0516", path, message, advice)


def check_packages(view: StageView) -> None:
    """Warn of each package that is missing, once."""
    for one in requirements_of("", view.parts):
        if one.kind == "package":
            _is_reported(view, one.path, one.name)
