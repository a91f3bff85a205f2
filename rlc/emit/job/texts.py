"""The files of a job that people read and change: how it is run, here and on other machines."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from rlc.explanation import summary_text
from rlc.lang.diagnostics import Diagnostics
from rlc.plan.records import Plan


@frozen
class JobDescription:
    """What the texts say of a job. ``secrets``: variables of the environment; ``commands``: what
    the machine has to have; ``accelerator``: it computes with a model of its own."""

    name: str
    command: str
    recipe: str
    secrets: Sequence[str]
    commands: Sequence[str]
    accelerator: bool

    @property
    def in_docker(self) -> str:
        gpus = " --gpus all" if self.accelerator else ""
        exports = "".join(f" -e {name}" for name in self.secrets)
        run = f'docker run{gpus}{exports} -v "$PWD/run:/job/run" {self.name}'
        return f"docker build -t {self.name} . && {run}"

    @property
    def on_sky(self) -> str:
        given = "".join(f" --secret {name}" for name in self.secrets)
        return f"sky launch -c {self.name}{given} sky.yaml"


def readme(job: JobDescription, plan: Plan) -> str:
    """Return the page that says what the job is, and how it is run."""
    summary = summary_text(plan, Diagnostics(), False).rpartition("\n\n")[0]
    needs = ["Python 3.11, or [uv](https://docs.astral.sh/uv), which fetches it"]
    needs += [f"`{name}` in the environment" for name in job.secrets]
    needs += [f"the command `{name}`" for name in job.commands]
    needs += ["a GPU, unless its model is a small one"] if job.accelerator else []
    listed = "\n".join(f"- {one}" for one in needs)
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
| `Dockerfile`, `sky.yaml` | ways to run it elsewhere; change them to fit |

In a container:

```sh
{job.in_docker}
```

On a cluster or a cloud, with [SkyPilot](https://docs.skypilot.co):

```sh
{job.on_sky}
```
"""


def dockerfile(job: JobDescription) -> str:
    """Return the recipe of a container's image."""
    lines = [
        f"# {job.in_docker}",
        "FROM python:3.11-slim",
        *(f"# Install {name} here: the agent needs it." for name in job.commands),
        "WORKDIR /job",
        "COPY wheels wheels",
        "COPY requirements.txt constraints.txt ./",
        "RUN pip install --no-cache-dir -r requirements.txt",
        "COPY . .",
        "# The run is kept in /job/run: mount a folder there to go on with it elsewhere.",
        'ENTRYPOINT ["python", "run.py", "--here"]',
    ]
    return "\n".join(lines) + "\n"


def sky(job: JobDescription) -> str:
    """Return a task of SkyPilot (https://docs.skypilot.co/en/latest/reference/yaml-spec.html)."""
    lines = [
        f"# {job.on_sky}",
        f"name: {job.name}",
        "workdir: .",
        "",
        "resources:",
        "  cpus: 4+",
        "  memory: 16+",
        *(["  accelerators: H100:1"] if job.accelerator else []),
        "",
        *(["secrets:", *(f"  {name}: null" for name in job.secrets), ""] if job.secrets else []),
        "# On a machine that may be taken away, mount a volume and run with --folder on it.",
        "setup: |",
        "  command -v python3.11 || command -v uv || {",
        "    curl -LsSf https://astral.sh/uv/install.sh | sh",
        "  }",
        "  python3 run.py --prepare",
        "",
        "run: |",
        "  python3 run.py --quiet",
    ]
    return "\n".join(lines) + "\n"
