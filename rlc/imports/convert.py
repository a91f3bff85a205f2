"""From a command, a script or a configuration to the text of a recipe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import evolve, frozen

from rlc.imports import gem, gem_cookbook, openreward, rllm
from rlc.imports.errors import InputError, shown
from rlc.imports.rllm_options import LEGACY, UNIFIED
from rlc.imports.settings import SCRIPT, Settings
from rlc.imports.shell import commands
from rlc.imports.yaml_text import flat, read_yaml, resolved

GEM, COOKBOOK, OPENREWARD, RLLM = "gem", "gem-cookbook", "openreward", "rllm"
SOURCES = (GEM, COOKBOOK, OPENREWARD, RLLM)

_SCRIPTS = {"tinker_cookbook_train": COOKBOOK, "run_gem_train": COOKBOOK, "tinker_train": GEM}
_SECTIONS = {name.partition(".")[0] for name in LEGACY | UNIFIED if "." in name} | {"rllm"}
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
    settings = _settings(job, source, keep_going)
    for word in job.unknown:
        message = f"`{shown(word)}` is no option of the script"
        settings.problem(message, "options are written name=value")
    if env is not None and source != RLLM:
        raise InputError(f"--env is for rllm, and this is {source}", "leave it out")
    if source == RLLM:
        return rllm.recipe(settings, job.script, env)
    importers = {GEM: gem.recipe, COOKBOOK: gem_cookbook.recipe, OPENREWARD: openreward.recipe}
    return importers[source](settings)


def job_of_text(text: str) -> ForeignJob:
    """Read a file: a configuration in YAML, or a shell script with one training command."""
    lines = (line for line in text.splitlines() if line.strip())
    first = next((line for line in lines if not line.startswith(("#", "---"))), "")
    if _YAML.match(first):
        return ForeignJob(config=read_yaml(text))
    found = []
    for words in commands(text):
        # A command trains if it has a Python script, and options; or nothing but options.
        if _script_at(words) is not None or all("=" in word for word in words):
            job = job_of_command(words)
            if job.pairs or job.config_path:
                found.append(job)
    if not found:
        raise InputError(
            "there is no training command in this text",
            "it is a line such as `python tinker_train.py env_id=… num_env=64`",
        )
    if len(found) > 1:
        raise InputError(
            f"this text holds {len(found)} training commands",
            "give one of them: `rlc import -- python …`",
        )
    return found[0]


def job_of_command(words: Sequence[str]) -> ForeignJob:
    """Read a command, as the words of its command line."""
    start = _script_at(words)
    script, rest = ("", words) if start is None else (words[start], words[start + 1 :])
    pairs: list[tuple[str, Any]] = []
    unknown: list[str] = []
    config = None
    waiting = iter(rest)
    for word in waiting:
        name, equals, value = word.partition("=")
        if name in _CONFIG_FLAGS:
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
            raise InputError(
                "an OpenReward job is described by its configuration",
                "give the file: `rlc import tinker-config.yaml`",
            )
        config = dict(job.config)
        for name, value in job.pairs:
            config = _overridden(config, name, value)
        return Settings(openreward.OPTIONS, config.items(), keep_going)
    overridden = {name for name, _ in job.pairs}
    pairs = [pair for pair in flat(job.config or {}) if pair[0] not in overridden]
    pairs = resolved([*pairs, *job.pairs])
    if not pairs and not job.script:
        raise InputError("no options are given", "they are written name=value")
    if source == RLLM:
        return rllm.read_settings(pairs, keep_going)
    options = gem.OPTIONS if source == GEM else gem_cookbook.OPTIONS
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
    name = re.split(r"[./\\]", job.script.removesuffix(".py"))[-1]
    if name in _SCRIPTS:
        return _SCRIPTS[name]
    names = {*(job.config or {}), *(name for name, _ in job.pairs)}
    if job.config_path or {"environments", "openreward_run_name"} & names:
        return OPENREWARD
    if any(re.split(r"[./]", name.lstrip("+"))[0] in _SECTIONS for name in names):
        return RLLM
    fits = {
        GEM: len(names & (gem.OPTIONS.keys() - gem_cookbook.OPTIONS.keys())),
        COOKBOOK: len(names & (gem_cookbook.OPTIONS.keys() - gem.OPTIONS.keys())),
    }
    if fits[GEM] != fits[COOKBOOK]:
        return max(fits, key=lambda source: fits[source])
    if not names:
        raise InputError("no options are given", "they are written name=value")
    raise InputError(
        "nothing tells which trainer this is for",
        f"say it with --from: {', '.join(SOURCES)}",
    )
