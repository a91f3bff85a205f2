"""A recipe as it is in a commit of its repository, with what git does not keep as it is now."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rlc.errors import Error

_SECONDS = 60  # that git may take


class EarlierRecipeError(Error, ValueError):
    """An earlier version of a recipe that cannot be found."""

    exit_status = 2


@contextmanager
def recipe_at(recipe: str, revision: str, also: Iterable[str] = ()) -> Iterator[str | None]:
    """Yield the path of a recipe in a copy of its repository at a ``revision``, or None if it was
    not there. The copy lasts until the block ends. Files named in ``also``, beside the recipe, that
    git does not keep are linked into it. Raise EarlierRecipeError if there is no such revision."""
    folder = os.path.dirname(os.path.abspath(recipe))
    try:
        root = Path(_git(folder, "rev-parse", "--show-toplevel").decode().strip())
    except EarlierRecipeError as error:
        raise EarlierRecipeError(
            f"{revision} is no file, and {recipe} is in no repository of git",
            "compare with a recipe, a saved plan, or a commit, branch or tag",
        ) from error
    if revision.startswith("-") or not revision:
        raise EarlierRecipeError(f"`{revision}` is no commit")
    try:
        commit = _git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    except EarlierRecipeError as error:
        raise EarlierRecipeError(
            f"{revision} is neither a file nor a commit of {root}",
            "`git fetch` gets commits; in GitHub's checkout action, `fetch-depth: 0` does",
        ) from error
    within = Path(os.path.realpath(recipe)).relative_to(root.resolve())
    with TemporaryDirectory(prefix="rlc-") as made:
        content = _git(str(root), "archive", "--format=tar", commit.decode().strip())
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(made, filter="data")
        known = {name for name in _git(str(root), "ls-files", "-z").decode().split("\0") if name}
        for file in also:
            place = Path(os.path.realpath(file))
            if not place.is_relative_to(root.resolve()) or not place.exists():
                continue
            name = place.relative_to(root.resolve())
            copy = Path(made) / name
            if str(name) not in known and not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.symlink_to(place)
        earlier = Path(made) / within
        yield str(earlier) if earlier.is_file() else None


def _git(folder: str, *arguments: str) -> bytes:
    """Return what git prints. Raise EarlierRecipeError if it fails, or is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", folder, *arguments],
            check=True,
            capture_output=True,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise EarlierRecipeError("git is not installed") from error
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        raise EarlierRecipeError(f"git failed: {said or error}") from error
    return done.stdout
