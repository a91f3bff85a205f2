"""Whole-process time of ``rlc check`` beside the tools that validate configurations elsewhere.

    python benchmarks/check_peers.py [--runs 7] [--sizes 1 10 100 1000]

Every tool gets the same job description (a model, an environment, a training stage; with size n,
n of each) in its own language, with its types declared in its own way, and says whether it is
valid. The tools run in turn, so that a busy machine slows all of them. They are installed into an
environment of their own, in a temporary folder, with ``--install`` or at the first use.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

PEERS = (
    "omegaconf==2.3.1",
    "hydra-core==1.3.8",
    "kcl-lib==0.13.2",
    "python-hcl2==8.1.4",
    "pydantic==2.14.3",
    "PyYAML==6.0.3",
)
PYTHON = Path(tempfile.gettempdir()) / "rlc-check-peers" / "bin" / "python"
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
SLOW = 100  # sizes from here on are for tools that take seconds, not minutes

RECIPE = """\
model policy{i} {{
  base          = "Qwen/Qwen3-8B"
  lora_rank     = 32
  train_mlp     = true
  train_attn    = true
  train_unembed = true
}}

env sums{i} = gem("rg:simple_equations")
  |> template(qwen3_general)
  |> rollouts(temperature = 1.0, max_failures = 2)
  |> reward(sum, nonterminal = 0.0)

train main{i} {{
  model     = policy{i}
  env       = sums{i}
  batch     = groups(32, group_size = 8)
  sampling  = sample(
    max_tokens  = 1_024,
    temperature = 1.0,
    top_p       = 1.0,
  )
  advantage = grpo(
    scale = std,
    eps   = 1e-6,
  )
  loss      = importance_sampling()
  optimizer = adam(
    learning_rate = 4e-5,
    beta1         = 0.9,
    beta2         = 0.95,
  )
  steps     = 200
  save      = every(20, keep = 3, ttl = 7d)
  on_error  = retry(3) then drop
  budget    = limit(tokens = 1_000_000_000)
}}

"""

JOB = {
    "model": {
        "base": "Qwen/Qwen3-8B",
        "lora_rank": 32,
        "train_mlp": True,
        "train_attn": True,
        "train_unembed": True,
    },
    "env": {
        "source": "gem",
        "id": "rg:simple_equations",
        "template": "qwen3_general",
        "temperature": 1.0,
        "max_failures": 2,
        "reduce": "sum",
        "nonterminal": 0.0,
    },
    "train": {
        "groups": 32,
        "group_size": 8,
        "max_tokens": 1024,
        "temperature": 1.0,
        "top_p": 1.0,
        "scale": "std",
        "adv_eps": 1e-6,
        "loss": "importance_sampling",
        "learning_rate": 4e-5,
        "beta1": 0.9,
        "beta2": 0.95,
        "steps": 200,
        "save_every": 20,
        "keep": 3,
        "ttl_days": 7,
        "retries": 3,
        "budget_tokens": 1_000_000_000,
    },
}
TYPES = {bool: "bool", int: "int", float: "float", str: "str"}


def recipe(size: int) -> str:
    return "".join(RECIPE.format(i=i) for i in range(size))


def yaml_text(size: int) -> str:
    """The jobs as YAML; floats with a point, as YAML 1.1 wants them."""

    def scalar(value: object) -> str:
        return f"{value:.8f}" if isinstance(value, float) else json.dumps(value)

    lines = ["jobs:"]
    for _ in range(size):
        for index, (part, fields) in enumerate(JOB.items()):
            lines.append(f"{'- ' if index == 0 else '  '}{part}:")
            lines += [f"    {name}: {scalar(value)}" for name, value in fields.items()]
    return "\n".join(lines) + "\n"


def hcl_text(size: int) -> str:
    lines = []
    for i in range(size):
        for part, fields in JOB.items():
            lines.append(f'{part} "job{i}" {{')
            lines += [f"  {name} = {json.dumps(value)}" for name, value in fields.items()]
            lines.append("}\n")
    return "\n".join(lines)


def kcl_text(size: int) -> str:
    lines = []
    for part, fields in JOB.items():
        lines.append(f"schema {part.title()}:")
        lines += [f"    {name}: {TYPES[type(value)]}" for name, value in fields.items()]
    lines.append("schema Job:")
    lines += [f"    {part}: {part.title()}" for part in JOB]
    for i in range(size):
        lines.append(f"job{i} = Job {{")
        for part, fields in JOB.items():
            lines.append(f"    {part} = {{")
            lines += [f"        {n} = {_kcl(v)}" for n, v in fields.items()]
            lines.append("    }")
        lines.append("}")
    return "\n".join(lines) + "\n"


def _kcl(value: object) -> str:
    return str(value) if isinstance(value, bool) else json.dumps(value)


def classes(header: str, decorator: str, base: str) -> str:
    """The types of the jobs as Python classes."""
    lines = [header]
    for part, fields in JOB.items():
        lines += [decorator, f"class {part.title()}{base}:"]
        lines += [f"    {name}: {TYPES[type(value)]}" for name, value in fields.items()]
    lines += [decorator, f"class Job{base}:", *(f"    {part}: {part.title()}" for part in JOB)]
    lines += [decorator, f"class Jobs{base}:", "    jobs: list[Job]"]
    return "\n".join(lines) + "\n"


OMEGACONF = (
    classes("import sys\nfrom dataclasses import dataclass", "@dataclass", "").replace(
        "list[Job]", "List[Job]"
    )
    + "from omegaconf import OmegaConf\n"
    + "jobs = OmegaConf.merge(OmegaConf.structured(Jobs), OmegaConf.load(sys.argv[1]))\n"
    + "OmegaConf.to_object(jobs)\n"
).replace("import sys\n", "import sys\nfrom typing import List\n")
HYDRA = (
    OMEGACONF.split("from omegaconf import")[0]
    + "import os\nfrom omegaconf import OmegaConf\n"
    + "from hydra import compose, initialize_config_dir\n"
    + "from hydra.core.config_store import ConfigStore\n"
    + "ConfigStore.instance().store(name='schema', node=Jobs)\n"
    + "folder, name = os.path.split(os.path.abspath(sys.argv[1]))\n"
    + "with initialize_config_dir(folder, version_base=None):\n"
    + "    OmegaConf.to_object(compose(name.removesuffix('.yaml')))\n"
)
PYDANTIC = (
    classes("import sys\nimport yaml\nfrom pydantic import BaseModel", "", "(BaseModel)")
    + "Jobs.model_validate(yaml.safe_load(open(sys.argv[1])))\n"
)
HCL = "import sys, hcl2\nhcl2.load(open(sys.argv[1]))\n"
KCL = "import sys\nfrom kcl_lib import api\n" + (
    "api.API().exec_program(api.ExecProgramArgs(k_filename_list=[sys.argv[1]]))\n"
)

Tool = tuple[str, Callable[[int], str], str]
TOOLS: Mapping[str, Tool] = {
    "OmegaConf": (OMEGACONF, yaml_text, "yaml"),
    "Hydra": (HYDRA, lambda size: "defaults: [schema, _self_]\n" + yaml_text(size), "yaml"),
    "KCL": (KCL, kcl_text, "k"),
    "python-hcl2": (HCL, hcl_text, "hcl"),
    "YAML + pydantic": (PYDANTIC, yaml_text, "yaml"),
}


def commands(folder: Path, size: int) -> dict[str, list[str]]:
    """Write each tool's file and program; give what to run."""
    text = folder / f"recipe-{size}.rl"
    text.write_text(recipe(size))
    rlc = Path(sys.executable).with_name("rlc")
    found = {
        "bare python": [sys.executable, "-c", "pass"],
        "rlc check": [str(rlc), "check", str(text)],
    }
    for name, (program, write, ending) in TOOLS.items():
        stem = name.replace(" ", "")
        (folder / f"{stem}.py").write_text(program)
        (folder / f"{stem}-{size}.{ending}").write_text(write(size))
        found[name] = [
            str(PYTHON),
            str(folder / f"{stem}.py"),
            str(folder / f"{stem}-{size}.{ending}"),
        ]
    return found


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    return time.perf_counter() - started


def install() -> None:
    """The peers, in an environment of their own."""
    if not PYTHON.exists():
        print("installing the peers …", flush=True)
        venv.create(PYTHON.parent.parent, with_pip=True)
        subprocess.run([str(PYTHON), "-m", "pip", "install", "-q", *PEERS], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 10, 100, 1000])
    args = parser.parse_args()
    install()
    with tempfile.TemporaryDirectory() as name:
        measured: dict[str, dict[int, float]] = {}
        for size in args.sizes:
            runs = args.runs if size < SLOW else max(1, args.runs // 3)
            found = commands(Path(name), size)
            times = {tool: [seconds(command)] for tool, command in found.items()}  # fills caches
            for _ in range(runs):
                for tool, command in found.items():
                    times[tool].append(seconds(command))
            for tool, values in times.items():
                measured.setdefault(tool, {})[size] = median(values[1:]) * 1e3
        print(f"{'ms, whole process':18}" + "".join(f"{s:>8,} ×" for s in args.sizes) + "   × bare")
        bare = measured["bare python"][args.sizes[0]]
        for tool, by_size in measured.items():
            cells = "".join(f"{by_size[size]:>10,.0f}" for size in args.sizes)
            print(f"{tool:18}{cells}{by_size[args.sizes[0]] / bare:>9.1f}")


if __name__ == "__main__":
    main()
