"""The packages and keys that a job needs on the machine that runs it; and the rlc that writes it,
as a wheel, since a version alone would not identify a checkout."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tomllib
import zipfile
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import rlc
from rlc.catalog import TINY, provider
from rlc.catalog.packages import ENVIRONMENTS, NEWEST_PYTHON, TASKSETS, lacking, name_of
from rlc.catalog.requirements import requirements
from rlc.errors import Error
from rlc.plan import Plan, is_hosted
from rlc.plan.leaves import models_of
from rlc.version import __version__

PACKAGE = Path(rlc.__file__).resolve().parent
CHECKOUT = PACKAGE.parent
_TIME = (1980, 1, 1, 0, 0, 0)  # the same code makes the same file
_CONSTRAINTS = "constraints.txt"
_OF_TASKSETS = (
    name_of(TASKSETS),
    "mcp",
    "sse-starlette",
)  # the first pins mcp, which needs the last
WHEEL = f"rlc-{__version__}-py3-none-any.whl"


class WheelError(Error):
    """An installation of rlc that no wheel can be made of."""


def in_checkout() -> bool:
    """Return whether this rlc is that of a checkout, and not of an installed wheel."""
    return (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "grammar").is_dir()


def is_from_index() -> bool:
    """Return whether this rlc came from a package index, which then has its version."""
    try:
        origin = metadata.distribution("rlc").read_text("direct_url.json")  # of PEP 610
    except metadata.PackageNotFoundError:
        return False
    return origin is None and not in_checkout()


def constraints() -> str:
    """Return the versions that rlc was tested with, as a file of constraints for pip."""
    place = CHECKOUT if in_checkout() else PACKAGE / "emit"
    return (place / _CONSTRAINTS).read_text(encoding="utf-8")


def constraints_here() -> str:
    """Return these versions, but those of verifiers and what it asks for as they are here if it
    plays tasksets: the tested version does not."""
    text = constraints()
    for name in _OF_TASKSETS if lacking(TASKSETS) is None else ():
        text = re.sub(rf"(?m)^{name}==.*$", f"{name}=={metadata.version(name)}", text)
    return text


def rlc_requirements() -> list[str]:
    """Return what rlc requires, as its metadata says it: ``numpy>=1.26; extra == "local"``."""
    return re.findall(r"(?m)^Requires-Dist: (.+)$", _metadata())


def write_wheel(folder: Path) -> str:
    """Write the wheel into a folder, and return its name. Raise WheelError without metadata."""
    (folder / WHEEL).write_bytes(_wheel())
    return WHEEL


@cache
def _wheel() -> bytes:
    info = f"rlc-{__version__}.dist-info"
    files = {
        path.relative_to(PACKAGE.parent).as_posix(): path.read_bytes()
        for path in sorted(PACKAGE.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    if in_checkout():  # what pyproject.toml puts into a wheel from other places
        files["rlc/lang/syntax/rl.lark"] = (CHECKOUT / "grammar" / "rl.lark").read_bytes()
        files[f"rlc/emit/{_CONSTRAINTS}"] = constraints().encode()
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nrlc = rlc.cli.main:entry\n"
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
        record += f"{path},sha256={digest.decode()},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _TIME)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            wheel.writestr(entry, data)
    return made.getvalue()


def _metadata() -> str:
    if not in_checkout():
        try:
            found = metadata.distribution("rlc").read_text("METADATA")
        except metadata.PackageNotFoundError:
            found = None
        if found is None:
            raise WheelError(f"{PACKAGE} has no metadata of a package: install rlc with pip")
        return found
    text = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    project: dict[str, Any] = tomllib.loads(text)["project"]
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {__version__}"]
    lines += [f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {one}" for one in project["dependencies"]]
    for extra, needed in project["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {_of_extra(one, extra)}" for one in needed]
    return "\n".join(lines) + "\n"


def _of_extra(requirement: str, extra: str) -> str:
    package, _, marker = requirement.partition(";")
    return f'{package}; {f"({marker.strip()}) and " if marker else ""}extra == "{extra}"'


_PACKAGES = ("package", "client")


def newest_python(plans: Iterable[Plan]) -> list[int]:
    """Return the newest Python that has all packages that plans need, in the versions of the job;
    nothing if every one does."""
    packages = {one.name for plan in plans for one in requirements(plan) if one.kind in _PACKAGES}
    if name_of(ENVIRONMENTS) in packages and lacking(TASKSETS):
        packages.add(ENVIRONMENTS)
    return list(min((NEWEST_PYTHON[name] for name in packages & {*NEWEST_PYTHON}), default=()))


def extras(plans: Iterable[Plan], sweeps: bool) -> list[str]:
    """Return the extras of rlc that plans need, in order."""
    found = {"sweep"} if sweeps else set[str]()
    found |= {one.extra for plan in plans for one in requirements(plan) if one.extra}
    return sorted(found)


def computes_here(plan: Plan) -> bool:
    """Return whether the machine itself trains or samples from a model, other than the tiny one."""
    models = (model for stage in plan.stages for _, model in models_of(stage))
    return any(not model.hosted and model.base != TINY for model in models)


def packages(plans: Iterable[Plan], own: Iterable[str]) -> list[str]:
    """Return the packages that plans and the user's ``own`` code need beside rlc's extras, in the
    versions that rlc was tested with, or else in those installed here."""
    found = dict.fromkeys(own)
    for plan in plans:
        every = [one for one in requirements(plan) if one.kind in _PACKAGES]
        in_extras = {one.name for one in every if one.extra and one.path.split(".")[2] != "model"}
        found |= {one.name: None for one in every if not one.extra and one.name not in in_extras}
    return sorted(filter(None, map(_pinned, found)))


def variables(plan: Plan) -> list[str]:
    """Return the variables of the environment that hold what the plan needs to be secret."""
    return list(dict.fromkeys(one.name for one in requirements(plan) if one.kind == "key"))


def addresses(plan: Plan) -> list[str]:
    """Return the variables that name the servers whose addresses nobody else knows."""
    services = dict.fromkeys(one.name for one in requirements(plan) if one.kind == "service")
    hosts = (provider(name) for name in services if is_hosted(name))
    return [one.url_variable for one in hosts if one.url is None and not one.finds_itself]


def commands(plan: Plan) -> list[str]:
    """Return the commands of the machine that agents run."""
    return list(dict.fromkeys(one.name for one in requirements(plan) if one.kind == "command"))


def servers(plan: Plan) -> list[str]:
    """Return the servers that a plan asks, for people."""
    return list(dict.fromkeys(one.purpose for one in requirements(plan) if one.kind == "server"))


def _pinned(package: str) -> str | None:
    """Return a package as a requirement; None for rlc."""
    name = _plain(package)
    if name == "rlc":
        return None
    if name in map(_plain, constraints().splitlines()):
        return package
    required = next((line for line in rlc_requirements() if _plain(line) == name), None)
    if required is not None:
        return required.partition(";")[0].strip()
    try:
        return f"{package}=={metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return package


def _plain(requirement: str) -> str:
    """Return the normalised name in a requirement."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement.strip())[0]).lower()
