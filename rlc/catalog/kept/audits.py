"""What audits of environments have found, kept beside the recipe and known by content.

``.rlc/audits/RECIPE.json`` has what was found of each environment under the hash of what decides
it: its part of the plan, the files that it reads, the code that it names, with what this imports
of one's own. Files are known by their content, wherever the folder of the recipe is. An environment
that has changed since has another hash, and is not audited: nothing stale counts. :mod:`rlc.proof`
makes audits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from rlc.catalog.builtins.sources import UNDECIDED
from rlc.catalog.environments import code_of, files_of
from rlc.data import DataError, data_files, module_file
from rlc.plan import EnvPlan, Plan, file_part, located
from rlc.records import evolve

PANEL = 2  # the version of what audits try
MOST = 50  # audits that are kept beside new ones


def audit_file(recipe: str) -> str:
    """Return the path of the audits of a recipe."""
    folder, name = os.path.split(recipe)
    return os.path.join(folder, ".rlc", "audits", f"{os.path.splitext(name)[0]}.json")


def audit_key(env: EnvPlan, recipe: str) -> str:
    """Return a hash of all that decides what an audit of an environment finds."""
    read = data_files([path for _, path in files_of(env)], recipe)
    # How many episodes are played, and how replies are sampled, is different for each stage.
    own = evolve(UNDECIDED, max_turns=env.rollouts.max_turns, stop=env.rollouts.stop)
    parts = [
        PANEL,
        repr(evolve(env, weight=0.0, rollouts=own)),
        [(one.path, one.digest) for one in read],
        _code_digests(env, recipe),
    ]
    return blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _code_digests(env: EnvPlan, recipe: str) -> list[tuple[str, str]]:
    """Return the files of Python that an environment names, each as its last name, and a digest of
    it with what it uses of one's own."""
    from pathlib import Path  # `rlc check` mostly does without

    from rlc.catalog.kept.content import UnknownContentError, file_digest, own_code_digest

    folders = [os.getcwd(), os.path.abspath(os.path.dirname(recipe))]
    found = list[tuple[str, str]]()
    for _, code in code_of(env):
        module = code.target.rpartition(":")[0]
        path: str | None = located(module, recipe)
        if file_part(code.target) != module:
            path = None
            with suppress(DataError):  # which others report
                path = module_file(module, folders)
        if path is None:
            continue
        try:
            digest = own_code_digest(path, map(Path, folders))
        except UnknownContentError:  # what can be known of it
            with suppress(UnknownContentError):
                found.append((os.path.basename(path), file_digest(path)))
            continue
        found.append((os.path.basename(path), digest))
    return sorted(found)


def read_audits(recipe: str) -> Mapping[str, Any]:
    """Return what is kept of the audits of a recipe, by the hashes of environments."""
    with suppress(OSError, ValueError):
        with open(audit_file(recipe), encoding="utf-8") as file:
            kept = json.load(file)
        if isinstance(kept, dict) and isinstance(kept.get("audits"), dict):
            found: dict[str, Any] = kept["audits"]
            return found
    return {}


def audited(
    envs: Iterable[EnvPlan], recipe: str, beside: str | None = None
) -> dict[str, int | None]:
    """Return how many findings the audit of each environment has, by its name; None if it is not
    audited, or was another one then. Audits ``beside`` another recipe, such as a later version of
    this one, count as well."""
    kept = {**read_audits(beside or recipe), **read_audits(recipe)}
    found = dict[str, int | None]()
    for env in envs:
        one = kept.get(audit_key(env, recipe)) if kept else None
        findings = one.get("findings") if isinstance(one, dict) else None
        found[env.name] = len(findings) if isinstance(findings, list) else None
    return found


def environments_of(plan: Plan) -> list[EnvPlan]:
    """Return each environment of a plan once."""
    return [*{env.name: env for stage in plan.stages for env in stage.environments}.values()]


def audited_text(found: Mapping[str, int | None], before: Mapping[str, int | None] = {}) -> str:
    """Return what audits say of each environment, with what they said ``before`` if that was
    something else: "`sums` 1 finding (not audited before)"."""

    def text(count: int | None) -> str:
        return "not audited" if count is None else f"{count} finding{'s' * (count != 1)}"

    said = list[str]()
    for name, now in found.items():
        was = before.get(name, now)
        said.append(f"`{name}` {text(now)}" + f" ({text(was)} before)" * (was != now))
    return ", ".join(said)


def audit_line(envs: Iterable[EnvPlan], recipe: str) -> str | None:
    """Return in a line what audits of the environments say; None if there are none."""
    found = audited(envs, recipe)
    if not found:
        return None
    if any(count is None for count in found.values()):
        lacking = [name for name, count in found.items() if count is None]
        return f"{', '.join(lacking)} not audited: `rlc audit {recipe}` tries what can be earned"
    total = sum(filter(None, found.values()))
    listed = ", ".join(f"{name} {count}" for name, count in found.items() if count)
    return f"{total} finding{'s' * (total != 1)}{f': {listed}' if listed else ''}"


def keep_audits(recipe: str, audits: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Write audits by the hashes of environments, beside the newest others; return why that fails,
    or None."""
    path = audit_file(recipe)
    others = {key: one for key, one in read_audits(recipe).items() if key not in audits}
    newest = dict([*others.items()][-MOST:])
    written = json.dumps({"audits": {**newest, **audits}}, indent=1, ensure_ascii=False)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
            file.write(written + "\n")
        os.replace(f"{path}.{os.getpid()}", path)
    except OSError as error:
        return f"{path} cannot be written: {error.strerror or error}"
    return None
