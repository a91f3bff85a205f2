"""Find the trainer of a command or a configuration, and make a recipe of its options.

Shell text is read as far as training scripts need it: quotes, continuations, comments, assignments
and their use. Nothing is run. Of YAML, duplicates, oversize and mistakes become one clear sentence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from operator import add, floordiv, mul, sub
from typing import Any

from attrs import evolve, frozen

from rlc.imports import gem, openreward, rllm, trl, trl_script, verl
from rlc.imports.settings import SCRIPT, InputError, Settings, shown

GEM, COOKBOOK, OPENREWARD, RLLM = "gem", "gem-cookbook", "openreward", "rllm"
VERL, VERL_SFT = "verl", "verl-sft"
SOURCES = (GEM, COOKBOOK, OPENREWARD, RLLM, *trl.TABLES, VERL, VERL_SFT)

_SCRIPTS = {
    "tinker_cookbook_train": COOKBOOK,
    "run_gem_train": COOKBOOK,
    "tinker_train": GEM,
    **dict.fromkeys(("main_ppo", "main_ppo_v0", "main_dapo"), VERL),
    **dict.fromkeys(("fsdp_sft_trainer", "sft_trainer", "sft_trainer_ray"), VERL_SFT),
    **{f"trl {method}": f"trl-{method}" for method in trl_script.METHODS},
}
_DOTTED = [name for name in rllm.LEGACY | rllm.UNIFIED if "." in name]
_SECTIONS = {"rllm", *(name.partition(".")[0] for name in _DOTTED)}
_YAML = re.compile(r"(?m)^[\w\"'][\w./\"'-]*:(\s|$)")
_CONFIG_FLAGS = ("--config_path", "--config-path", "--config")


@frozen
class ForeignJob:
    """A job as it was given: the script's name, its options in order, and its configuration."""

    script: str = ""
    pairs: tuple[tuple[str, Any], ...] = ()
    config: dict[str, Any] | None = None
    config_path: str | None = None
    unknown: tuple[str, ...] = ()


def convert(
    job: ForeignJob, source: str | None = None, env: str | None = None, keep_going: bool = False
) -> str:
    """Return the recipe of a job. ``source`` is one of SOURCES; None finds it out. ``env`` is the
    environment of an rLLM job, as an expression of the language.

    Raises:
        InputError: the input cannot become a recipe.
    """
    source = source or _guess(job)
    if env is not None and source != RLLM:
        raise InputError(f"--env is for rllm, and this is {source}", "leave it out")
    settings = _settings(job, source, keep_going)
    if source in trl.TABLES:
        return trl.recipe(settings, job.unknown)
    for word in job.unknown:
        advice = "options are written name=value"
        settings.problem(f"`{shown(word)}` is no option of the script", advice)
    if source == RLLM:
        return rllm.recipe(settings, job.script, env)
    if source in (VERL, VERL_SFT):
        return verl.recipe(settings)
    importers = {GEM: gem.recipe, COOKBOOK: gem.cookbook_recipe, OPENREWARD: openreward.recipe}
    return importers[source](settings)


def job_of_text(text: str) -> ForeignJob:
    """Read a file: a configuration in YAML, or a shell script with one training command."""
    lines = (line for line in text.splitlines() if line.strip())
    first = next((line for line in lines if not line.startswith(("#", "---"))), "")
    if trl_script.is_script(text):
        return _job_of_script(text)
    if _YAML.match(first):
        return ForeignJob(config=read_yaml(text))
    found = []
    for words in commands(text):
        # A command trains if it has a Python script, and options; or nothing but options.
        if _script_at(words) is not None or _trl_at(words) or all("=" in word for word in words):
            job = job_of_command(words)
            if job.pairs or job.config_path:
                found.append(job if _lenient(job.script) else _complete(job))
    if not found:
        advice = "it is a line such as `python tinker_train.py env_id=… num_env=64`"
        raise InputError("there is no training command in this text", advice)
    if len(found) > 1:
        advice = "give one of them: `rlc import -- python …`"
        raise InputError(f"this text holds {len(found)} training commands", advice)
    return found[0]


def _job_of_script(text: str) -> ForeignJob:
    """Read a script of TRL, and the command in its docstring if that holds one."""
    method, pairs, unread, docstring = trl_script.read_script(text)
    with suppress(StopIteration):  # no command
        words = next(words for words in _in_prose(docstring) if _trl_at(words) is not None)
        pairs = [*job_of_command(words).pairs, *pairs]
    return ForeignJob(f"trl {method}", tuple(pairs), unknown=tuple(unread))


def _in_prose(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a text; an apostrophe spoils its own paragraph alone."""
    for paragraph in re.split(r"\n\s*\n", text):
        with suppress(InputError):
            yield from commands(paragraph)


def _complete(job: ForeignJob) -> ForeignJob:
    """Raise InputError if an option has a variable that is not set."""
    for value in (str(value) for _, value in job.pairs):
        if unset := re.search(r"\$([A-Za-z_]\w*)", value):
            message = f"the value of {shown(unset[0])} does not stand in the script"
            raise InputError(message, f"put `{shown(unset[1])}=…` before the command")
    return job


def _trl_at(words: Sequence[str]) -> int | None:
    """Return the index of the method or script of TRL, whose options are `--name value`."""
    for index, (word, after) in enumerate(pairwise(words)):
        if word.rpartition("/")[2] == "trl" and not after.startswith("-"):
            return index + 1
    named = any(word.startswith("--model_name_or_path") for word in words)
    return _script_at(words) if named else None


def _job_of_flags(script: str, words: Sequence[str]) -> ForeignJob:
    """Read `--name value`, `--name=value`, `--name a b`, `--name` and `--no_name`."""
    found: dict[str, list[str]] = {}
    values: list[str] = []  # those of the last name
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            found[name.replace("-", "_")] = values = [value] if equals else []
        else:
            values.append(word)
    config = next(iter(found.pop("config", [])), None)
    pairs: list[tuple[str, Any]] = []
    for name, values in found.items():
        if values:
            pairs.append((name, values if len(values) > 1 else values[0]))
        else:
            pairs.append((name.removeprefix("no_"), not name.startswith("no_")))
    return ForeignJob(script, tuple(pairs), None, config)


def job_of_command(words: Sequence[str]) -> ForeignJob:
    """Read a command, as the words of its command line."""
    if (at := _trl_at(words)) is not None:
        return _job_of_flags(f"trl {words[at]}", [*words[:at], *words[at + 1 :]])
    start = _script_at(words)
    script, rest = ("", words) if start is None else (words[start], words[start + 1 :])
    flags = () if _lenient(script) else _CONFIG_FLAGS  # Hydra's name folders, and no file
    pairs: list[tuple[str, Any]] = []
    unknown: list[str] = []
    config = None
    waiting = iter(rest)
    for word in waiting:
        name, equals, value = word.partition("=")
        if name in flags:
            config = value if equals else next(waiting, None)
        elif equals and name.strip("-+"):
            pairs.append((name.removeprefix("--"), value))
        elif word != "--overrides":
            unknown.append(word)
    return ForeignJob(script, tuple(pairs), None, config, tuple(unknown))


def with_config(job: ForeignJob, text: str) -> ForeignJob:
    """Return the job with the configuration that it names."""
    return evolve(job, config=read_yaml(text), config_path=None)


def with_overrides(job: ForeignJob, overrides: Iterable[str]) -> ForeignJob:
    """Return the job with more ``name=value`` options. Raise InputError for anything else."""
    pairs = []
    for word in overrides:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InputError(f"`{shown(word)}` is no override", "write name=value")
        pairs.append((name, value))
    return evolve(job, pairs=(*job.pairs, *pairs))


def _settings(job: ForeignJob, source: str, keep_going: bool) -> Settings:
    if source == OPENREWARD:
        if job.config is None:
            advice = "give the file: `rlc import tinker-config.yaml`"
            raise InputError("an OpenReward job is described by its configuration", advice)
        config = dict(job.config)
        for name, value in job.pairs:
            config = _overridden(config, name, value)
        return Settings(openreward.OPTIONS, config.items(), keep_going)
    overridden = {name for name, _ in job.pairs}
    config = job.config or {}
    given = list(config.items()) if source in trl.TABLES else flat(config)
    pairs = [pair for pair in given if pair[0] not in overridden]
    pairs = resolved([*pairs, *job.pairs])
    if not pairs and not job.script:
        raise InputError("no options are given", "they are written name=value")
    if source == RLLM:
        return rllm.read_settings(pairs, keep_going)
    if source in trl.TABLES:
        return Settings(trl.TABLES[source], pairs, gathers=True)
    if source in (VERL, VERL_SFT):
        return verl.read_settings(pairs, source == VERL_SFT)
    options = gem.OPTIONS if source == GEM else gem.COOKBOOK_OPTIONS
    return Settings(options, pairs, keep_going, whose=SCRIPT)


def _overridden(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Set the value at a dotted path of a configuration. A key may have dots itself."""
    keys = [key for key in config if path == key or path.startswith(f"{key}.")]
    key = max(keys, key=len, default=path.partition(".")[0])
    rest = path[len(key) + 1 :]
    if not rest:
        return {**config, key: value}
    inner = config.get(key)
    return {**config, key: _overridden(inner if isinstance(inner, dict) else {}, rest, value)}


def _lenient(script: str) -> bool:
    """Return whether what is unknown in a command becomes a comment."""
    return script.startswith("trl ") or _SCRIPTS.get(_last(script)) in (VERL, VERL_SFT)


def _last(script: str) -> str:
    """Return the name of a script, without its folders and packages."""
    return re.split(r"[./\\]", script.removesuffix(".py"))[-1]


def _script_at(words: Sequence[str]) -> int | None:
    """Return the index of the script or module, or None."""
    for index, word in enumerate(words):
        if word.endswith(".py") and "=" not in word:
            return index
        if word == "-m" and index + 1 < len(words):
            return index + 1
    return None


def _guess(job: ForeignJob) -> str:
    """Tell which trainer a job is for: by its script, else by its options."""
    if (name := _last(job.script)) in _SCRIPTS:
        return _SCRIPTS[name]
    if name.startswith("trl ") and not job.script.endswith(".py"):
        advice = f"read are {', '.join(f'`trl {method}`' for method in trl_script.METHODS)}"
        raise InputError(f"`{shown(name)}` has no counterpart here", advice)
    names = {*(job.config or {}), *(name for name, _ in job.pairs)}
    if any(name.lstrip("+").startswith("actor_rollout_ref") for name in names):
        return VERL
    if "partial_pretrain" in ((job.config or {}).get("model") or {}):
        return VERL_SFT
    if _lenient(job.script) or "model_name_or_path" in names:
        return _guess_trl(job.script, names)
    if job.config_path or {"environments", "openreward_run_name"} & names:
        return OPENREWARD
    if any(re.split(r"[./]", name.lstrip("+"))[0] in _SECTIONS for name in names):
        return RLLM
    fits = {
        GEM: len(names & (gem.OPTIONS.keys() - gem.COOKBOOK_OPTIONS.keys())),
        COOKBOOK: len(names & (gem.COOKBOOK_OPTIONS.keys() - gem.OPTIONS.keys())),
    }
    if fits[GEM] != fits[COOKBOOK]:
        return max(fits, key=lambda source: fits[source])
    if not names:
        raise InputError("no options are given", "they are written name=value")
    advice = f"say it with --from: {', '.join(SOURCES)}"
    raise InputError("nothing tells which trainer this is for", advice)


def _guess_trl(script: str, names: set[str]) -> str:
    """Tell which trainer of TRL: by the script's name, else by the options."""
    named = [source for source in trl.TABLES if source.removeprefix("trl-") in _last(script)]
    if not named and names & (trl.TABLES["trl-grpo"].keys() - trl.TABLES["trl-dpo"].keys()):
        return "trl-grpo"
    if len(named) == 1:
        return named[0]
    message = "nothing tells which trainer of TRL this is for"
    raise InputError(message, f"say it with --from: {', '.join(trl.TABLES)}")


_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = (
    r"\$\(\((?P<sum>[^\n]*?)\)\)(?!\))"
    r"|\$\{(?P<braced>[A-Za-z_]\w*)(?::?-(?P<default>([^{}]|\$\{[^{}]*\})*))?\}|\$(?P<name>[A-Za-z_]\w*)"
)
# The pieces of a command, and those of a string in double quotes.
_PLAIN = re.compile(
    rf"""
      (?P<end>[;\n&|])       # of a command
    | (?P<space>[^\S\n]+)
    | (?P<hash>\#)           # begins a comment, if no word has begun
    | \\(?P<escaped>.?)
    | '(?P<single>[^']*)'
    | (?P<open>')            # never closed
    | (?P<quote>")           # a string in double quotes begins
    | {_VARIABLE}
    | (?P<text>\$\([^()]*\)|.)  # a command in a command is left as it is
    """,
    re.DOTALL | re.VERBOSE,
)
_QUOTED = re.compile(
    rf'(?P<quote>")|\\(?P<escaped>["\\$`\n])|{_VARIABLE}|(?P<text>\$\([^()]*\)|.)', re.DOTALL
)


_ARRAY = re.compile(r"(?ms)^(\w+)=\(\s*$(.*?)^\)")  # over several lines
_ELEMENTS = re.compile(r'"?\$\{(\w+)\[@\]\}"?')


def commands(text: str) -> list[list[str]]:
    """Return the words of each command, assignments of the script filled in.

    One of nothing but several assignments is kept whole: it may be options that were given without
    their program. A variable that is not set in the text stays as it is. Raise InputError if a
    quote is not closed.
    """
    variables = {"HOME": "~"}
    found, text = [], text.replace("\r\n", "\n")
    arrays = {name: re.sub(r"(\s#.*)?\n", " ", body) for name, body in _ARRAY.findall(text)}
    text = _ELEMENTS.sub(lambda use: arrays.get(use[1], use[0]), _ARRAY.sub("", text))
    for words in _read(text, variables):
        given = [word for word in words if word != "$@"]
        given = given[1:] if given[:1] == ["export"] else given
        rest = given
        while rest and (match := _ASSIGNMENT.fullmatch(rest[0])):
            variables[match[1]] = match[2]
            rest = rest[1:]
        if rest or len(given) > 1:
            found.append(rest or given)
    return found


def _read(text: str, variables: dict[str, str]) -> Iterator[list[str]]:
    """Yield the words of each command; its caller adds to ``variables`` before the next one."""
    words: list[str] = []
    word: str | None = None  # None between words
    quoted, at = False, 0
    while at < len(text):
        piece = (_QUOTED if quoted else _PLAIN).match(text, at)
        assert piece is not None
        kind, at = piece.lastgroup, piece.end()
        if kind == "open":
            raise InputError("a ' is opened and never closed", "close the quote")
        if kind in ("end", "space"):
            if word is not None:
                words.append(word)
            word = None
            if kind == "end":
                yield words
                words = []
        elif kind == "hash" and word is None:
            at = (text + "\n").index("\n", at)
        elif kind == "quote":
            word, quoted = word or "", not quoted
        elif piece["escaped"] != "\n":  # a line that goes on
            value = _value(piece, variables)
            if word is None and not quoted and kind in ("braced", "default", "name"):
                if not (several := value.split()):
                    continue
                *options, value = several  # words, as the shell makes of it
                words += options
            word = (word or "") + value
    if quoted:
        raise InputError('a " is opened and never closed', "close the quote")
    yield words if word is None else [*words, word]


def _value(piece: re.Match[str], variables: dict[str, str]) -> str:
    name = piece["braced"] or piece["name"]
    if name is None:
        return _sum(piece["sum"], variables) if piece["sum"] else piece[piece.lastgroup or 0]
    if name in variables or piece["default"] is None:
        return variables.get(name, f"${name}")
    return " ".join(next(_read(piece["default"], variables)))


_OPERATORS: dict[type, Any] = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: floordiv}


def _sum(text: str, variables: dict[str, str]) -> str:
    """Return the value of ``$((…))``; its text if that is not plain arithmetic."""

    def number(node: Any) -> int:
        if isinstance(node, ast.BinOp):
            return int(_OPERATORS[type(node.op)](number(node.left), number(node.right)))
        return int(variables[node.id] if isinstance(node, ast.Name) else node.value)

    try:
        return str(number(ast.parse(text.replace("$", "").strip(), mode="eval").body))
    except (SyntaxError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError):
        return f"$(({text}))"


MOST_VALUES = 20_000
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_MISSING = "???"


def read_yaml(text: str) -> dict[str, Any]:
    """Return the mapping that a YAML document holds. Raise InputError if it holds none."""
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise InputError("reading YAML needs PyYAML", "pip install pyyaml") from None
    try:
        value = yaml.load(text, Loader=_loader(yaml))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" on line {mark.line + 1}" if mark else ""
        raise InputError(f"this is not YAML{where}: {shown(error.problem)}", "correct it") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        reason = shown(error).partition("  in ")[0]
        raise InputError(f"this is not YAML: {reason}", "correct it") from None
    if not isinstance(value, dict):
        raise InputError("this YAML holds no options", "options are written `name: value`")
    count, waiting = 0, [value]  # anchors can make a small text huge
    while waiting:
        item = waiting.pop()
        count += 1
        if count > MOST_VALUES:
            raise InputError(f"this YAML has over {MOST_VALUES:,} values", "is it a configuration?")
        if isinstance(item, dict | list):
            waiting += item.values() if isinstance(item, dict) else item
    return {str(name): part for name, part in value.items()}


def flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return nested options by dotted names."""
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        nested = isinstance(value, dict) and value
        found += flat(value, f"{prefix}{name}.") if nested else [(f"{prefix}{name}", value)]
    return found


def resolved(pairs: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return options with their references (``${data.x}``) filled in, less those that are marked as
    missing (``???``), or refer to something that is not there."""
    known = dict(pairs)
    filled = [(name, _resolve(value, known)) for name, value in pairs]
    return [(name, value) for name, value in filled if value != _MISSING]


def _resolve(value: Any, known: dict[str, Any], depth: int = 10) -> Any:
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    names = (match[1], f"rllm.{match[1]}", match[1].removeprefix("rllm."))
    there = next((name for name in names if name in known), None)
    missing = there is None or depth == 0
    return _MISSING if missing else _resolve(known[str(there)], known, depth - 1)


def _loader(yaml: Any) -> Any:
    """Return a safe loader that refuses a key given twice."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        pass

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen and isinstance(key.value, str):
                problem = f"`{shown(key.value)}` is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value if isinstance(key.value, str) else None)
        loader.flatten_mapping(node)
        made: dict[Any, Any] = loader.construct_mapping(node, deep=True)
        return made

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    return Loader
