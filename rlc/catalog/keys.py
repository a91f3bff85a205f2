"""Keys of services, and other variables of the environment: those that a plan needs may also stand
in a file ``.env``, in the working directory or in the recipe's folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rlc.catalog.requirements import requirements
from rlc.errors import Error
from rlc.plan import Plan
from rlc.records import frozen

DOTENV = ".env"
# What libraries look for by themselves, though no recipe names it.
_USUAL = (
    "HF_TOKEN",
    "OPENAI_API_KEY",
    "OPENREWARD_API_KEY",
    "TINKER_BASE_URL",
    "TINKER_PROJECT_ID",
    "WANDB_API_KEY",
)
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_SINGLE_QUOTED = re.compile(r"'([^']*)'")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}

_provided = set[str]()


@frozen
class Dotenv:
    """The ``values`` of a ``.env``, and the numbers of its lines that are no assignment."""

    values: dict[str, str]
    malformed: tuple[int, ...] = ()


def parse_dotenv(text: str) -> Dotenv:
    """Read ``KEY=VALUE`` lines, with comments, ``export``, single quotes and double quotes, which
    know escapes such as ``\\n``."""
    values, malformed = dict[str, str](), list[int]()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _ASSIGNMENT.fullmatch(line)
        name, raw = match.groups() if match else ("", "'")
        if quoted := _DOUBLE_QUOTED.match(raw):
            values[name] = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), quoted[1])
        elif quoted := _SINGLE_QUOTED.match(raw):
            values[name] = quoted[1]
        elif raw.startswith(('"', "'")):
            malformed.append(number)
        else:
            values[name] = re.split(r"(?:^|\s)#", raw, maxsplit=1)[0].strip()
    return Dotenv(values, tuple(malformed))


def read_dotenv(path: Path) -> Dotenv:
    """Read a file, which need not exist. Raise Error if it is unreadable."""
    try:
        return parse_dotenv(path.read_text(encoding="utf-8-sig"))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return Dotenv({})
    except OSError as error:
        raise Error(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:  # its text would show what is in the file
        raise Error(f"cannot read {path}: it is not UTF-8") from error


def provide_keys(plan: Plan) -> list[str]:
    """Give this process the variables that a plan needs and its environment does not have. Return a
    sentence for each malformed line. Raise Error if a ``.env`` is unreadable."""
    named = (one.name for one in requirements(plan) if one.kind == "key")
    wanted, said = {*_USUAL, *named}, list[str]()
    for folder in dict.fromkeys((Path.cwd(), Path(plan.recipe).absolute().parent)):
        path = folder / DOTENV
        read = read_dotenv(path)
        said += [f"line {n} of {path} is not NAME=VALUE and is left out" for n in read.malformed]
        for name in sorted(wanted & read.values.keys()):
            if read.values[name] and not os.environ.get(name, "").strip():
                os.environ[name] = read.values[name]
                _provided.add(name)
    return said


def is_provided(variable: str) -> bool:
    """Return whether a variable of this process is from a ``.env``, so that it is a secret."""
    return variable in _provided
