"""Digests of what decides a result beside the plan: files, folders, Python code, packages, machine.

Code is known by its syntax tree, so that a comment or another layout changes nothing, together with
the modules that it imports, as far as these are files of the user's own, the files and variables of
the environment that it names, and the versions of the packages that it imports. What is computed
while it runs (a name that is put together, a server, the time) nobody sees in a text.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import metadata, util
from pathlib import Path

from rlc.catalog.packages import module_of, name_of
from rlc.data import source_when_imported
from rlc.errors import Error
from rlc.plan import CHECKPOINTS_FOLDER, JOURNAL_FILE
from rlc.records import define, field, frozen

MOST_FILES = 2_000  # of a folder that code names
_LARGE, _BLOCK = 2**26, 2**20  # of a larger file only every so many bytes are read
_OF_EDITORS = re.compile(r"\.DS_Store|\.#.*|\..*\.sw.|.*~")
_LONGEST = 200  # characters of a text of code that may be a path
# What makes code run that no import shows: then all modules beside it are taken to be used.
_RUNS_MORE = {
    *("import_module", "__import__", "exec", "eval", "run_path", "run_module"),
    *("spec_from_file_location", "system", "popen", "Popen", "subprocess"),
    *("create_subprocess_exec", "create_subprocess_shell"),
}
_READS_VARIABLES = {"environ", "getenv"}
_READS_DOTENV = {"dotenv", "load_dotenv", "dotenv_values"}
# The rooms, and modules beside them, whose code takes part in what a stage computes.
_ROOMS = ("algo", "catalog", "chat", "data", "envs", "plan", "pricing", "runtime", "service")
_UNRELATED = (
    *("service/server", "service/conform", "runtime/reuse", "catalog/data", "catalog/kept"),
)


class UnknownContentError(Error):
    """Something decides a result, and what is in it cannot be known."""


def digest_of(parts: Iterable[str | bytes]) -> str:
    """Return the digest of a sequence of texts."""
    whole = blake2b(digest_size=20)
    for part in parts:
        content = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        whole.update(len(content).to_bytes(8, "big") + content)
    return whole.hexdigest()


def file_digest(path: str | Path) -> str:
    """Return the digest of a file's bytes. Raise UnknownContentError if it cannot be read."""
    try:
        found = os.stat(path)
        # Programs can set the time of the last change; that of the inode they cannot.
        state = found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns
        return (_read_digest if found.st_size <= _LARGE else _large_digest)(str(path), *state)
    except OSError as error:
        raise UnknownContentError(f"{path} cannot be read: {error.strerror or error}") from error


@lru_cache(4096)
def _read_digest(path: str, *_state: int) -> str:
    whole = blake2b(digest_size=20)
    with open(path, "rb") as opened:
        while block := opened.read(2**20):
            whole.update(block)
    return whole.hexdigest()


@lru_cache(256)
def _large_digest(path: str, size: int, changed: int, *_state: int) -> str:
    """Return what a large file, such as the weights of a model, is known by: its size, when it was
    changed, and a block of every part of it."""
    whole = blake2b(f"{size} {changed}".encode(), digest_size=20)
    with open(path, "rb") as opened:
        for start in range(0, size, _LARGE // 4):
            opened.seek(start)
            whole.update(opened.read(_BLOCK))
    return whole.hexdigest()


def folder_digest(path: Path) -> str:
    """Return the digest of all files below a folder, hidden folders and what editors keep beside a
    file aside. Raise UnknownContentError if it has more than :data:`MOST_FILES`."""
    files, seen = list[Path](), set[str]()
    for folder, inside, names in os.walk(path, followlinks=True):
        inside[:] = sorted(n for n in inside if not n.startswith(".") and n != "__pycache__")
        if (real := os.path.realpath(folder)) in seen:  # a link to a folder around it
            inside.clear()
            continue
        seen.add(real)
        files += [Path(folder, name) for name in sorted(names) if not _OF_EDITORS.fullmatch(name)]
        if len(files) > MOST_FILES:
            raise UnknownContentError(f"{path} has more than {MOST_FILES:,} files")
    pairs = ((str(one.relative_to(path)), file_digest(one)) for one in files)
    return digest_of(part for pair in pairs for part in pair)


@cache
def rlc_digest() -> str:
    """Return the digest of the part of rlc that computes results, whatever its version says."""
    home = Path(__file__).parents[2]
    left_out = tuple(str(home / name) for name in _UNRELATED)
    found = [*home.glob("*.py"), *(home / "service" / "tiny").rglob("*")]
    for room in _ROOMS:
        found += [*(home / room).rglob("*.py"), *(home / room).rglob("*.rl")]
    files = sorted(one for one in set(found) if one.is_file() and not str(one).startswith(left_out))
    files = [
        one
        for one in files
        if one.name not in ("version.py", "api.py", "rewards.py", "spending.py")
    ]
    return digest_of(p for one in files for p in (str(one.relative_to(home)), one.read_bytes()))


@lru_cache(256)
def package_version(name: str) -> str:
    """Return the version of a package, by the name of its distribution or of its module; empty if
    it is not installed. Of one that is installed from a folder or a repository, whose versions say
    little, its content, too. Raise UnknownContentError if that cannot be read."""
    with suppress(metadata.PackageNotFoundError):
        return _version(name_of(name))
    return " ".join(map(_version, _distributions().get(name, ())))


def _version(distribution: str) -> str:
    version = f"{distribution} {metadata.version(distribution)}"
    found = metadata.distribution(distribution)
    origin = found.read_text("direct_url.json")
    if origin is None:
        return version
    if json.loads(origin).get("dir_info", {}).get("editable"):
        spec = util.find_spec(module_of(distribution))
        inside = [] if spec is None else [*(spec.submodule_search_locations or ())]
        files = sorted(file for one in inside for file in Path(one).rglob("*.py"))
        if len(files) > MOST_FILES:
            raise UnknownContentError(f"{distribution} has more than {MOST_FILES:,} files")
        return " ".join([version, *map(file_digest, files)])
    return f"{version} {digest_of([found.read_text('RECORD') or ''])}"


@cache
def _distributions() -> dict[str, list[str]]:
    return {name: sorted(set(by)) for name, by in metadata.packages_distributions().items()}


@cache
def machine() -> tuple[str, ...]:
    """Return what numbers of the embedded engine depend on beside its code: processor, device,
    threads, and the type of numbers."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.is_file() else []
    cores = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "")
    shown, cards = os.environ.get("CUDA_VISIBLE_DEVICES"), Path("/proc/driver/nvidia/gpus")
    names = [line for one in sorted(cards.glob("*/information")) for line in _model_lines(one)]
    device = names if shown not in ("", "-1") else []
    threads = os.environ.get("OMP_NUM_THREADS") or str(min(len(os.sched_getaffinity(0)), 8))
    dtype = os.environ.get("RLC_DTYPE", "")
    return (os.uname().machine, cores, *device, shown or "", threads, dtype)


def _model_lines(information: Path) -> list[str]:
    lines = information.read_text(errors="replace").splitlines()
    return [line for line in lines if line.startswith("Model")]


def code_digest(file: str | Path, beside: Iterable[Path]) -> str:
    """Return the digest of a Python file and of what it uses; ``beside`` are the folders in which
    modules and files are looked for after its own. Raise UnknownContentError if any of it cannot be
    read."""
    return _digest_of_code(file, beside)


def own_code_digest(file: str | Path, beside: Iterable[Path]) -> str:
    """Return the digest of a Python file with the modules and files of the user's own that it uses:
    the same on every machine, and of what a new process would import. Raise UnknownContentError as
    :func:`code_digest` does."""
    return _digest_of_code(file, beside, own_only=True)


def _digest_of_code(file: str | Path, beside: Iterable[Path], own_only: bool = False) -> str:
    walk = _CodeWalk(tuple(dict.fromkeys(folder.resolve() for folder in beside)), own_only)
    walk.add("", Path(file))
    while walk.waiting:
        walk.read(*walk.waiting.pop())
    if not own_only:
        walk.end()
    return digest_of(part for pair in sorted(walk.found) for part in pair)


def named_files(texts: Iterable[str], folders: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield the files and folders among ``texts``, each with the digest of its content. A text that
    begins a path names the folder of it, one that ends a path what is below one of the ``folders``.
    A folder with runs in it, or one that holds the ``folders``, is no data of anybody's."""
    homes = [folder.resolve() for folder in folders]
    for text in sorted(set(texts)):
        if not 0 < len(text) <= _LONGEST or "\n" in text or "\0" in text or not text.strip("./\\ "):
            continue
        for place in dict.fromkeys(place for home in homes for place in _places(text, home)):
            if os.path.isfile(place) and place.suffix != ".py":
                yield text, file_digest(place)
            elif os.path.isdir(place) and not _is_around(place.resolve(), homes):
                yield text, folder_digest(place)


def _places(text: str, home: Path) -> Iterator[Path]:
    """Yield what a text of code may name in a folder."""
    place = home / os.path.expanduser(text)  # `os` has no errors for what cannot be a path
    if os.path.exists(place):
        yield place
    elif text.startswith("*."):
        yield from sorted(home.glob(text))
    elif "/" in text.strip("/"):  # f"data/part_{number}.txt"
        yield (home / text.lstrip("/")).parent
    if text.startswith("/"):  # f"{HERE}/words.txt"
        yield home / text.lstrip("/")


def _is_around(folder: Path, homes: Iterable[Path]) -> bool:
    """Return whether a folder holds one of ``homes``, or runs, which nobody's code reads."""
    runs = any(folder.glob(f"*/{JOURNAL_FILE}")) or (folder / JOURNAL_FILE).is_file()
    return runs or folder.name == CHECKPOINTS_FOLDER or any(h.is_relative_to(folder) for h in homes)


@frozen
class _CodeFacts:
    """What the text of a file of Python says: the digest of its syntax tree, the modules that it
    imports (with the dots of a relative name), its texts, all names in it, and whether it changes
    where modules are looked for."""

    digest: str
    imports: tuple[tuple[int, str, tuple[str, ...]], ...]
    texts: frozenset[str]
    names: frozenset[str]
    moves_modules: bool


@lru_cache(1024)
def _facts(file: str, *_state: int) -> _CodeFacts:
    tree = ast.parse(Path(file).read_bytes(), file)
    imports, texts, names = list[tuple[int, str, tuple[str, ...]]](), set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(0, alias.name, ()) for alias in node.names]
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported = tuple(alias.name for alias in node.names)
            imports.append((node.level, node.module or "", imported))
            names |= {*imported, *(node.module or "").split(".")}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
    moves = {"sys", "path"} <= names and any(map(_is_search_path, ast.walk(tree)))
    digest = digest_of([ast.dump(tree)])
    return _CodeFacts(digest, tuple(imports), frozenset(texts), frozenset(names), moves)


def _is_search_path(node: ast.AST) -> bool:
    """Return whether a node is `sys.path`, or its import."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "sys" and any(alias.name == "path" for alias in node.names)
    module = node.value if isinstance(node, ast.Attribute) and node.attr == "path" else None
    return isinstance(module, ast.Name) and module.id == "sys"


@define
class _CodeWalk:
    """Collects what a file of Python uses, from file to file. ``own_only``: nothing of the machine
    and of this process."""

    beside: tuple[Path, ...]
    own_only: bool = False
    found: set[tuple[str, str]] = field(factory=set)
    waiting: list[tuple[str, Path]] = field(factory=list)
    _seen: set[Path] = field(factory=set)
    _texts: set[str] = field(factory=set)  # of all files: one may read the variables of another
    _reads_variables: bool = False
    _moved_by: Path | None = None  # the file that changes where modules are looked for
    _lost: set[str] = field(factory=set)  # modules that are nowhere

    def add(self, name: str, file: Path) -> None:
        real = file.resolve()
        if real not in self._seen:
            self._seen.add(real)
            self.waiting.append((name, real))

    def read(self, name: str, file: Path) -> None:
        try:
            state = file.stat()
            changed = state.st_mtime_ns, state.st_ctime_ns
            facts = _facts(str(file), state.st_size, state.st_ino, *changed)
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            raise UnknownContentError(f"{file} cannot be read: {error}") from error
        source = None if self.own_only else source_when_imported(str(file))
        if source is not None and digest_of([ast.dump(ast.parse(source))]) != facts.digest:
            raise UnknownContentError(f"{file} has changed since this process imported it")
        folders = (file.parent, *self.beside)
        self.found.add((f"module {name}", facts.digest))
        for level, module, imported in facts.imports:
            homes = (file.parents[level - 1],) if level else folders
            named = [".".join(filter(None, (module, one))) for one in imported]
            own = [self._local(one, homes) for one in filter(None, (module, *named))]
            if not (level or any(own) or self.own_only):
                self._installed(module, named)
        dotenv = {".env"} if facts.names & _READS_DOTENV else set()
        for text, digest in named_files(facts.texts | dotenv, folders):
            self.found.add((f"file {text}", digest))
        for text in facts.texts:  # a script that is started, or imported by its path
            if text.endswith(".py") and len(text) <= _LONGEST and "\0" not in text:
                for folder in (one for one in folders if os.path.isfile(one / text)):
                    self.add(text, folder / text)
        self._texts |= facts.texts
        self._reads_variables |= bool(facts.names & _READS_VARIABLES)
        if facts.moves_modules:
            self._moved_by = file
        if facts.names & _RUNS_MORE:
            for other in sorted(file.parent.glob("*.py")):
                self.add(f"{name}/{other.stem}", other)

    def end(self) -> None:
        """Note what only the files together say. Raise UnknownContentError if a module is where the
        code alone knows."""
        if self._reads_variables:
            known = {one for one in os.environ if one in self._texts} - {"_"}  # the shell's
            self.found |= {(f"variable {one}", os.environ[one]) for one in known}
        if self._moved_by is not None and self._lost:
            raise UnknownContentError(
                f"{self._moved_by} changes sys.path, and `{min(self._lost)}` is found only there"
            )

    def _installed(self, name: str, named: Iterable[str]) -> None:
        """Note the version of a package, or follow it if it is a folder of the user's own that is
        found by PYTHONPATH, or installed to be edited."""
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top == "rlc":
            return
        try:
            spec = util.find_spec(top)
        except (ImportError, ValueError):
            spec = None
        inside = [] if spec is None else [*(spec.submodule_search_locations or ())]
        place = Path(inside[0] if inside else (spec and spec.origin) or "")
        if not place.name or {"site-packages", "dist-packages"} & {*place.parts}:
            self.found.add((f"package {top}", package_version(top)))
            self._lost |= {top} if spec is None else set()
            return
        followed = [self._local(one, (place.parent,)) for one in (name, *named)]
        if not any(followed):
            digest = (folder_digest if place.is_dir() else file_digest)(place)
            self.found.add((f"compiled {top}", digest))

    def _local(self, name: str, folders: Iterable[Path]) -> bool:
        """Follow a module, with its packages, and return whether it is in one of the folders."""
        parts = name.split(".")
        for folder in folders:
            places = [folder.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
            files = [file for p in places for file in (p.with_suffix(".py"), p / "__init__.py")]
            if there := [file for file in files if os.path.isfile(file)]:
                for file in there:
                    self.add(str(file.relative_to(folder)), file)
                return True
        return False
