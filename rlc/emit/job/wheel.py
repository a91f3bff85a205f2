"""The rlc that writes a job, as a wheel that the job takes along: a version alone would not say
what a checkout is, and need not be in any index."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import rlc
from rlc.errors import Error
from rlc.version import __version__

PACKAGE = Path(rlc.__file__).resolve().parent
CHECKOUT = PACKAGE.parent
_TIME = (1980, 1, 1, 0, 0, 0)  # the same code makes the same file
_CONSTRAINTS = "constraints.txt"


class WheelError(Error):
    """An installation of rlc that no wheel can be made of."""


def in_checkout() -> bool:
    """Whether this rlc is that of a checkout, and not of an installed wheel."""
    return (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "grammar").is_dir()


def constraints() -> str:
    """Return the versions that rlc was tested with, as a file of constraints for pip."""
    place = CHECKOUT if in_checkout() else PACKAGE / "emit"
    return (place / _CONSTRAINTS).read_text(encoding="utf-8")


def requirements() -> list[str]:
    """Return what rlc requires, as its metadata says it: ``numpy>=1.26; extra == "local"``."""
    return re.findall(r"(?m)^Requires-Dist: (.+)$", _metadata())


def write_wheel(folder: Path) -> str:
    """Write the wheel into a folder, and return its name. Raise WheelError if this installation
    lacks what it takes."""
    name = f"rlc-{__version__}-py3-none-any.whl"
    (folder / name).write_bytes(_wheel())
    return name


@cache
def _wheel() -> bytes:
    info = f"rlc-{__version__}.dist-info"
    files = dict(_files())
    files[f"{info}/METADATA"] = _metadata().encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nrlc = rlc.cli.main:entry\n"
    record = "".join(f"{name},{_digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _TIME)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            wheel.writestr(entry, data)
    return made.getvalue()


def _files() -> Iterator[tuple[str, bytes]]:
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(PACKAGE.parent).as_posix(), path.read_bytes()
    if in_checkout():  # what pyproject.toml puts into a wheel from elsewhere
        yield "rlc/lang/syntax/rl.lark", (CHECKOUT / "grammar" / "rl.lark").read_bytes()
        yield f"rlc/emit/{_CONSTRAINTS}", constraints().encode()


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"


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
        lines += [f'Requires-Dist: {one}; extra == "{extra}"' for one in needed]
    return "\n".join(lines) + "\n"
