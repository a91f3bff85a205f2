"""A plan, or a sweep, as a folder that runs on any machine with Python, with the texts in it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import evolve, frozen

from rlc.catalog import plan_to_file
from rlc.compile import CompileResult, Sweep
from rlc.emit.errors import EmitError
from rlc.emit.job import entry, needs
from rlc.emit.job.contents import TREE, Contents, files_in
from rlc.emit.job.servers import JobServer, find_server
from rlc.explanation import summary_text
from rlc.lang import Diagnostics
from rlc.plan import Plan
from rlc.version import PYTHON, __version__

_OLDEST = ".".join(map(str, PYTHON))  # every package that rlc knows has it
_RUN = ("python3 run.py --prepare", "python3 run.py --quiet")
_RUN_WITH_SERVER = ("bash skyrl.sh prepare", "bash skyrl.sh run")


@frozen
class JobDescription:
    """A job as the texts describe it. ``secrets``: variables of the environment; ``commands``: what
    the machine has to have; ``servers``: what it has to reach; ``accelerator``: whether it computes
    with a model of its own; ``python``: the versions that will do; ``addresses``: variables that
    name servers; ``server``: the one that it starts."""

    name: str
    command: str
    recipe: str
    secrets: Sequence[str]
    commands: Sequence[str]
    servers: Sequence[str]
    accelerator: bool
    python: str
    addresses: Sequence[str] = ()
    server: JobServer | None = None

    @property
    def in_docker(self) -> str:
        gpus = " --gpus all" if self.accelerator else ""
        exports = "".join(f" -e {name}" for name in (*self.secrets, *self.addresses))
        run = f'docker run{gpus}{exports} -v "$PWD/run:/job/run" {self.name}'
        return f"docker build -t {self.name} . && {run}"

    @property
    def on_sky(self) -> str:
        given = "".join(f" --secret {name}" for name in self.secrets)
        named = "" if self.server else "".join(f" --env {name}" for name in self.addresses)
        return f"sky launch -c {self.name}{given}{named} sky.yaml"


def readme(job: JobDescription, plan: Plan, sweeps: Sequence[Sweep] = ()) -> str:
    """Return the page that says what the job is, and how it is run, with the price of a plan whose
    recipe names its place, so that its files are found, and of the sweep that it runs."""
    summary = summary_text(plan, Diagnostics(), sweeps=sweeps).rpartition("\n\n")[0]
    summary = summary.replace(plan.recipe, job.recipe, 1)
    needs = [f"Python {job.python}, or [uv](https://docs.astral.sh/uv), which fetches it"]
    needs += [f"`{name}` in the environment" for name in job.secrets]
    unless = f", unless `{job.server.script.name}` starts it" if job.server else ""
    address = f"in the environment: the address of a server{unless}"
    needs += [f"`{name}` {address}" for name in job.addresses]
    needs += [f"the command `{name}`" for name in job.commands]
    needs += [f"{name}, as it is reached from there" for name in job.servers]
    needs += ["a GPU, unless its model is a small one"] if job.accelerator else []
    listed = "\n".join(f"- {one}" for one in needs)
    started = f"`{job.server.script.name}`, " if job.server else ""
    return f"""\
# {job.name}

```
{summary}
```

Run it, and run it again to go on with it, wherever it was stopped:

```sh
python3 run.py
```

It makes an environment in `.venv` (`--here` uses the packages of the Python at hand), does what
`{job.command}` does, and keeps the run in `run/` (`--folder` names another place).
It needs

{listed}

| file | what it is |
|---|---|
| `plan.json` | the plan, with every value decided |
| `recipe/` | the recipe `{job.recipe}`, and the files that it reads |
| `SHA256SUMS` | what these files have to be; the job refuses others |
| `requirements.txt`, `constraints.txt` | the packages it needs, and their versions |
| `wheels/` | the rlc that wrote it |
| `Dockerfile`, {started}`sky.yaml` | ways to run it elsewhere; change them to fit |

In a container:

```sh
{job.in_docker}
```

On a cluster or a cloud, with [SkyPilot](https://docs.skypilot.co):

```sh
{job.on_sky}
```
{_beside(job)}"""


def _beside(job: JobDescription) -> str:
    """Return what the page says of the server that the job starts."""
    if job.server is None:
        return ""
    settings = " ".join(f"{name}={value}" for name, value in job.server.settings.items())
    return f"""
That starts a server of SkyRL beside the job, with its engine {job.server.engine}: `skyrl.sh` gets
SkyRL, starts Ray on the machines and the server on the first, runs the job on it, and stops them.
On one machine without SkyPilot:

```sh
export {settings}
bash skyrl.sh prepare && bash skyrl.sh run
```

The server answers on its own machine alone. What a resumed run needs is in `server/state`: on
several machines or preemptible ones, mount a volume and name it in `SKYRL_STATE`, and a place on it
after `run --folder`. This was tried with Ray on loopback and a server on a CPU; it has never been
launched on GPUs.
"""


def dockerfile(job: JobDescription) -> str:
    """Return the recipe of a container's image."""
    installed = "".join(f"# Install {name} here: the agent needs it.\n" for name in job.commands)
    return f"""\
# {job.in_docker}
FROM python:{_OLDEST}-slim
{installed}WORKDIR /job
COPY wheels wheels
COPY requirements.txt constraints.txt ./
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
# The run is kept in /job/run: mount a folder there to go on with it elsewhere.
ENTRYPOINT ["python", "run.py", "--here"]
"""


def sky(job: JobDescription) -> str:
    """Return a task of SkyPilot (https://docs.skypilot.co/en/latest/reference/yaml-spec.html)."""
    resources, names, run = {"cpus": "4+", "memory": "16+"}, dict.fromkeys(job.addresses), _RUN
    envs: Mapping[str, str | None] = names
    if job.accelerator:
        resources["accelerators"] = "H100:1"
    if job.server is not None:
        resources, envs, run = dict(job.server.resources), job.server.settings, _RUN_WITH_SERVER
    lines = [
        f"# {job.on_sky}",
        f"name: {job.name}",
        "workdir: .",
        *(["num_nodes: 1"] if job.server else []),
        "",
        *_section("resources", resources),
        *_section("envs", envs),
        *_section("secrets", dict.fromkeys(job.secrets)),
        "# On a preemptible machine, mount a volume and run with --folder on it.",
        "setup: |",
        f"  command -v python{_OLDEST} || command -v uv || {{",
        "    curl -LsSf https://astral.sh/uv/install.sh | sh",
        "  }",
        f"  {run[0]}",
        "",
        "run: |",
        f"  {run[1]}",
    ]
    return "\n".join(lines) + "\n"


def _section(name: str, values: Mapping[str, str | None]) -> list[str]:
    """Return the lines of a section, and an empty one; nothing if it is empty."""
    lines = (f"  {key}: {'null' if value is None else value}" for key, value in values.items())
    return [f"{name}:", *lines, ""] if values else []


PLAN_FILE, JOB_FILE = "plan.json", "job.json"
WHEELS = "wheels"
REQUIREMENTS, CONSTRAINTS = entry.PACKAGES


@frozen
class WrittenJob:
    """A written job: the paths of its ``files``, the variables of the environment it ``needs``."""

    folder: Path
    files: tuple[str, ...]
    size: int
    needs: tuple[str, ...]


def emit_job(
    compiled: CompileResult,
    folder: Path,
    options: Mapping[str, Any],
    sweep: Sweep | None = None,
    extra: Sequence[Path] = (),
    engine: str | None = None,
) -> WrittenJob:
    """Write the job of a recipe into a new folder, which appears whole or not at all.

    Args:
        options: what the recipe was compiled with (:meth:`rlc.Recipe.options`); a sweep is compiled
            with them again where it is run.
        sweep: the sweep to run in place of the plan.
        extra: files and folders to take along that neither the recipe nor its code names.
        engine: the engine of a server of SkyRL that the job starts beside itself.

    Raises:
        EmitError: a file cannot be taken along, or the folder has content.
        JobServerError: the plan does not train on such a server, or not on one alone.
        rlc.Error: weights of an earlier run cannot be read, or no wheel of rlc can be made.
    """
    assert compiled.plan is not None
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise EmitError.of_file(str(folder), "this already has content", "choose another folder")
    if not Path(compiled.plan.recipe).is_file():
        problem = "the recipe came from standard input, and a job takes it along"
        raise EmitError.of_file(compiled.plan.recipe, problem, "save it in a file")
    for path in extra:
        if not path.exists():
            raise EmitError.of_file(str(path), "there is no such file", "correct --include")
    plans = [compiled.plan, *(_varied(sweep) if sweep else ())]
    server = None if engine is None else find_server(plans, engine)
    contents = Contents(plans, sweep is not None, extra)
    command = ["run", PLAN_FILE]
    if sweep is not None:
        command = ["sweep", contents.recipe, sweep.plan.name, *_as_arguments(options)]
        if options["overrides"]:
            contents.keeps_cwd = True
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as made:
        job = Path(made) / "job"
        job.mkdir()
        contents.write(job)
        _write(job, contents, command, sweep, server)
        if folder.exists():
            folder.rmdir()
        job.rename(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = tuple(path.relative_to(folder).as_posix() for path in files)
    size = sum(path.stat().st_size for path in files)
    named = [*needs.variables(compiled.plan), *([] if server else needs.addresses(compiled.plan))]
    return WrittenJob(folder, names, size, tuple(named))


def _write(
    job: Path,
    contents: Contents,
    command: Sequence[str],
    sweep: Sweep | None,
    server: JobServer | None,
) -> None:
    start, plans = contents.folder, contents.plans
    command = [os.path.relpath(word, start) if (job / word).is_file() else word for word in command]
    plan = contents.moved(plans[0], job)
    _write_json(job / PLAN_FILE, plan_to_file(plan, job))
    if sweep is None:
        command = [command[0], os.path.relpath(PLAN_FILE, start)]
    newest = needs.newest_python(plans)
    pythons = {"oldest": PYTHON, "newest": newest}
    described = {"rlc": __version__, "python": pythons, "command": command, "folder": start}
    _write_json(job / JOB_FILE, described)
    (job / WHEELS).mkdir()
    extras = ",".join(needs.extras(plans, sweep is not None))
    wheel = f"./{WHEELS}/{needs.write_wheel(job / WHEELS)}[{extras}]"
    required = [wheel, *needs.packages(plans, contents.code.packages)]
    (job / REQUIREMENTS).write_text("\n".join([f"-c {CONSTRAINTS}", *required]) + "\n")
    (job / CONSTRAINTS).write_text(needs.constraints_here(), encoding="utf-8")
    shutil.copyfile(entry.__file__, job / "run.py")
    (job / "run.py").chmod(0o755)
    kept = (PLAN_FILE, JOB_FILE, WHEELS, TREE)  # the rest may be changed to fit a machine
    summed = sorted(path for name in kept for path in files_in(job / name))
    sums = (f"{entry.sha256(path)}  {path.relative_to(job).as_posix()}\n" for path in summed)
    (job / entry.SUMS).write_text("".join(sums), encoding="utf-8")
    words = "-".join([Path(plan.recipe).stem, *([sweep.plan.name] if sweep else [])])
    about = JobDescription(
        name=re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "job",  # for any launcher
        command=f"rlc {' '.join(command)}",
        recipe=contents.recipe,
        secrets=needs.variables(plan),
        addresses=needs.addresses(plan),
        commands=needs.commands(plan),
        servers=needs.servers(plan),
        accelerator=any(needs.computes_here(one) for one in plans),
        server=server,
        python=f"{_OLDEST} to {'.'.join(map(str, newest))}" if newest else f"{_OLDEST} or later",
    )
    named = evolve(plan, recipe=str(job / contents.recipe))
    page = readme(about, named, [sweep] if sweep else ())
    (job / "README.md").write_text(page, encoding="utf-8")
    (job / "Dockerfile").write_text(dockerfile(about), encoding="utf-8")
    (job / "sky.yaml").write_text(sky(about), encoding="utf-8")
    made_there = [".venv", "run", *(["server"] if server else [])]
    for name, start in ((".gitignore", "/"), (".dockerignore", "")):
        # SkyPilot copies what git does not ignore
        (job / name).write_text("".join(f"{start}{one}\n" for one in made_there))
    if server is not None:
        shutil.copyfile(server.script, job / server.script.name)
        (job / server.script.name).chmod(0o755)


def _varied(sweep: Sweep) -> list[Plan]:
    """Return the plans of a sweep that may need other files or packages than the recipe."""
    if not any(axis.values for axis in sweep.plan.axes):
        return []
    return [sweep.plan_of(configuration, sweep.seed) for configuration in sweep.configurations()]


def _as_arguments(options: Mapping[str, Any]) -> list[str]:
    """Return the options that a recipe was compiled with, as words of a command."""
    words = [word for override in options["overrides"] for word in ("--set", override)]
    words += [] if options["seed"] is None else ["--seed", str(options["seed"])]
    words += ["--rehearse"] if options["rehearse"] else []
    return words + ([] if options["service"] is None else ["--service", options["service"]])


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
