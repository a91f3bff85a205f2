"""Small projects to begin with: `rlc init` writes one, and all of it works as it is."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rlc.errors import Error
from rlc.version import __version__

VERSION = f"rlc[{{}}]=={__version__}"
_HERE = Path(__file__).parent / "templates"

TEMPLATES = {
    "rl": "reinforcement learning with a reward of your own",
    "sft": "supervised training on chats",
    "preference": "preferences: pairs of replies of which one is better",
    "own-env": "reinforcement learning in an environment of your own",
    "agent": "reinforcement learning of an agent that owns its loop",
}


class ProjectError(Error):
    """A project cannot be written where it is wanted."""


def make_project(folder: Path, template: str, rlc: str = VERSION) -> list[Path]:
    """Write the files of a template; return their paths in the folder, which is made if need be.
    ``rlc`` is how requirements name it, with ``{}`` for its extras; pull requests are checked with
    the version of this Python. Raise ProjectError if a file is
    there already, or cannot be written."""
    files = dict[Path, str]()
    for part in ("common", template.replace("-", "_")):
        for path in sorted((_HERE / part).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                files[path.relative_to(_HERE / part)] = path.read_text(encoding="utf-8")
    if there := [str(path) for path in files if (folder / path).exists()]:
        advice = "name another folder; nothing has been written"
        raise ProjectError(f"{folder} has {', '.join(there)} already", advice)
    for path, text in files.items():
        text = text.replace("PROJECT_NAME", folder.resolve().name)
        text = text.replace("PYTHON_VERSION", "{}.{}".format(*sys.version_info))
        text = re.sub(r"(?m)^rlc\[(.+)\]$", lambda extras: rlc.format(extras[1]), text)
        try:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ProjectError(f"{folder / path} cannot be written: {error.strerror}") from error
    return list(files)
