"""Agent libraries, unmodified, on a served model: what is refused, and what comes back?

    python benchmarks/agent_libraries.py --python VENV/bin/python [--only smolagents] [--in-runs]

``rlc serve`` runs with this Python and the tiny model, and each library in the Python that is named
and has them (``pip install openai-agents smolagents 'pydantic-ai-slim[openai]' instructor
langchain-openai dspy``). Requests go through a proxy that counts them. The tiny model writes
nonsense: what is seen is the form. Prints a line for each way of asking: how many requests there
were, what they asked for, how many were refused, and what the library made of the replies; the exit
status is 1 if one was refused, or a library could not use what came back.

With ``--in-runs`` each library is what an ``agent(command = …)`` asks with, at its own endpoint: a
step of training on 2 × 2 episodes, each of which asks in every way. Then each request that was
answered has to be a turn with its sampled tokens, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

# What these ask for has no schema that the server could keep: nonsense may not be what they expect.
FREE = ("Mode.JSON", "json_mode", "JSONAdapter", "ChatAdapter")
KNOWN = "gpt-4o-mini"  # the same model under a name that DSPy takes to reply by a schema
MODEL, KEY, MOST = "tiny", os.environ.get("OPENAI_API_KEY", "none"), 160
# Codes of the refusal of a reply that has not its form, and what stands for it.
MISFITS, MISFIT = (b"tool_use_failed", b"json_validate_failed"), 0
QUESTION = "Which city is it, and how large?"
PASSED = ("content-type", "accept", "authorization")  # headers
SHOWN = ("tool_choice", "parallel_tool_calls", "response_format", "text", "stream")


def package(name: str) -> Any:
    return import_module(name)


# The libraries. What they make of the replies is returned, and has the type that they promise.
def openai_agents(url: str, responses: bool, stream: bool = False) -> Any:
    import asyncio

    agents = package("agents")
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    kind = agents.OpenAIResponsesModel if responses else agents.OpenAIChatCompletionsModel
    model = kind(model=MODEL, openai_client=AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0))
    called: list[str] = []

    @agents.function_tool  # type: ignore[untyped-decorator]
    def look(city: str) -> str:
        """Look a city up."""
        called.append(city)
        return "It has 9 inhabitants."

    how = agents.ModelSettings(tool_choice="required", parallel_tool_calls=False, max_tokens=MOST)
    given: Any = {"model": model, "tools": [look], "model_settings": how}
    agent = agents.Agent("one", instructions="Be short.", output_type=city_class(), **given)

    async def work() -> Any:
        if not stream:
            return (await agents.Runner.run(agent, QUESTION, max_turns=6)).final_output
        running = agents.Runner.run_streamed(agent, QUESTION, max_turns=6)
        async for _ in running.stream_events():
            pass
        return running.final_output

    last = asyncio.run(work())
    assert called
    return last


def smolagents_tools(url: str) -> Any:
    smolagents = package("smolagents")

    model = smolagents.OpenAIServerModel(MODEL, api_base=url, api_key=KEY, max_tokens=MOST)
    agent = smolagents.ToolCallingAgent(tools=[], model=model, max_steps=2, verbosity_level=0)
    return agent.run(QUESTION)


def smolagents_code(url: str) -> Any:
    smolagents = package("smolagents")

    model = smolagents.OpenAIServerModel(MODEL, api_base=url, api_key=KEY, max_tokens=MOST)
    agent = smolagents.CodeAgent(
        tools=[],
        model=model,
        max_steps=1,
        verbosity_level=0,
        use_structured_outputs_internally=True,
    )
    agent.run(QUESTION)  # the code is nonsense, and its error an observation
    (step,) = [step for step in agent.memory.steps if getattr(step, "model_output", None)][:1]
    return json.loads(step.model_output)["code"]


def pydantic_ai(url: str, output: str, responses: bool = False) -> Any:
    pydantic_ai = package("pydantic_ai")
    models = package("pydantic_ai.models.openai")
    provider = package("pydantic_ai.providers.openai").OpenAIProvider(base_url=url, api_key=KEY)
    kind = models.OpenAIResponsesModel if responses else models.OpenAIChatModel
    model = kind(MODEL, provider=provider)
    wanted = getattr(pydantic_ai, output)(city_class())
    agent = pydantic_ai.Agent(model, output_type=wanted, model_settings={"max_tokens": MOST})
    return agent.run_sync(QUESTION).output


def instructor_mode(url: str, mode: str) -> Any:
    instructor = package("instructor")
    from openai import OpenAI

    client = instructor.from_openai(
        OpenAI(base_url=url, api_key=KEY), getattr(instructor.Mode, mode)
    )
    limit = "max_output_tokens" if mode.startswith("RESPONSES") else "max_tokens"
    ask: Any = client.chat.completions.create
    asked = [{"role": "user", "content": f"{QUESTION} Answer in JSON."}]
    given: Any = {"model": MODEL, "messages": asked, "max_retries": 0, limit: MOST}
    return ask(response_model=city_class(), **given)


def langchain(url: str, method: str, responses: bool = False) -> Any:
    given: Any = {"base_url": url, "api_key": KEY, "max_tokens": MOST, "max_retries": 0}
    model = package("langchain_openai").ChatOpenAI(
        model=MODEL, use_responses_api=responses, **given
    )
    if method == "bind_tools":
        bound = model.bind_tools([city_class()], tool_choice="any", parallel_tool_calls=False)
        (call,) = bound.invoke(QUESTION).tool_calls
        return city_class()(**call["args"])
    return model.with_structured_output(city_class(), method=method).invoke(f"{QUESTION} JSON.")


def dspy_adapter(url: str, adapter: str, name: str = MODEL) -> Any:
    dspy = package("dspy")

    model = dspy.LM(f"openai/{name}", api_base=url, api_key=KEY, max_tokens=MOST, cache=False)
    with dspy.context(lm=model, adapter=getattr(dspy, adapter)()):
        return dspy.Predict("question -> city: str, people: int")(question=QUESTION).toDict()


def city_class() -> Any:
    from pydantic import BaseModel

    class City(BaseModel):
        name: str
        people: int
        river: str | None

    return City


LIBRARIES: dict[str, tuple[str, list[tuple[str, Callable[[str], Any]]]]] = {
    "openai-agents": (
        "openai-agents",
        [
            ("responses", lambda url: openai_agents(url, responses=True)),
            ("responses, streamed", lambda url: openai_agents(url, True, stream=True)),
            ("chat completions", lambda url: openai_agents(url, responses=False)),
            ("chat completions, streamed", lambda url: openai_agents(url, False, stream=True)),
        ],
    ),
    "smolagents": (
        "smolagents",
        [("ToolCallingAgent", smolagents_tools), ("CodeAgent, structured", smolagents_code)],
    ),
    "pydantic-ai": (
        "pydantic-ai-slim",
        [
            ("ToolOutput", lambda url: pydantic_ai(url, "ToolOutput")),
            ("NativeOutput", lambda url: pydantic_ai(url, "NativeOutput")),
            ("ToolOutput, responses", lambda url: pydantic_ai(url, "ToolOutput", True)),
            ("NativeOutput, responses", lambda url: pydantic_ai(url, "NativeOutput", True)),
        ],
    ),
    "instructor": (
        "instructor",
        [
            (f"Mode.{mode}", lambda url, mode=mode: instructor_mode(url, mode))  # type: ignore[misc]
            for mode in ("TOOLS", "TOOLS_STRICT", "JSON", "JSON_SCHEMA", "RESPONSES_TOOLS")
        ],
    ),
    "langchain-openai": (
        "langchain-openai",
        [
            ("json_schema", lambda url: langchain(url, "json_schema")),
            ("function_calling", lambda url: langchain(url, "function_calling")),
            ("json_mode", lambda url: langchain(url, "json_mode")),
            ("bind_tools(any)", lambda url: langchain(url, "bind_tools")),
            ("json_schema, responses", lambda url: langchain(url, "json_schema", True)),
            ("bind_tools(any), responses", lambda url: langchain(url, "bind_tools", True)),
        ],
    ),
    "dspy": (
        "dspy",
        [
            ("JSONAdapter", lambda url: dspy_adapter(url, "JSONAdapter")),
            ("JSONAdapter, gpt-4o-mini", lambda url: dspy_adapter(url, "JSONAdapter", KNOWN)),
            ("ChatAdapter", lambda url: dspy_adapter(url, "ChatAdapter")),
        ],
    ),
}


def try_library(name: str, url: str) -> Iterator[dict[str, Any]]:
    """Try a library in each of its ways, and yield what came of each."""
    package, ways = LIBRARIES[name]
    for number, (way, ask) in enumerate(ways):
        try:
            made: Any = repr(ask(f"{url}/{number}/v1"))
            problem = None
        except Exception as error:
            made, problem = None, f"{type(error).__name__}: {error}"
        row = {"way": way, "number": number, "made": made, "problem": problem}
        yield {**row, "version": version(package)}


class Proxy(ThreadingHTTPServer):
    """Passes requests on to a server, and keeps what they asked for and how they were answered."""

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server = server
        self.seen: dict[str, list[tuple[int, str]]] = {}
        self.lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        _, way, path = self.path.split("/", 2)
        body = self.rfile.read(int(self.headers["content-length"]))
        kept = {k: v for k, v in self.headers.items() if k.lower() in PASSED}
        asked = urllib.request.Request(f"{self.server.server}/{path}", body, kept)
        try:
            with urllib.request.urlopen(asked) as answer:
                status, content, kind = answer.status, answer.read(), answer.headers["content-type"]
        except urllib.error.HTTPError as error:
            status, content, kind = error.code, error.read(), error.headers["content-type"]
        with self.server.lock:
            what = asked_for(path.removeprefix("v1/"), json.loads(body))
            misfit = status == 400 and any(code in content for code in MISFITS)
            self.server.seen.setdefault(way, []).append((MISFIT if misfit else status, what))
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None: ...


def asked_for(path: str, body: dict[str, Any]) -> str:
    """Return the path of a request with what it asks of the form of its reply."""
    words = [path]
    for name in SHOWN:
        value = body.get(name)
        if isinstance(value, dict):
            value = value.get("type") or value.get("format", {}).get("type")
        if value not in (None, False, "auto", "text") or (name, value) == (SHOWN[1], False):
            words.append(f"{name} {json.dumps(value)}")
    return ", ".join(words)


def try_all(python: str, only: str | None) -> bool:
    """Try the libraries in another Python, and return whether all was well."""
    from serving import started  # the Python of a library has no rlc

    good, words = True, ("--openai", MODEL, f"{KNOWN}={MODEL}")
    with (
        tempfile.TemporaryDirectory() as folder,
        started(*words, cwd=Path(folder)) as (server, _),
    ):
        for name in [only] if only else LIBRARIES:
            proxy = Proxy(server)
            threading.Thread(target=proxy.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{proxy.server_port}"
            command = [python, "-P", __file__, "--try", name, "--url", url]
            own = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
            own |= {"OPENAI_API_KEY": KEY, "OPENAI_AGENTS_DISABLE_TRACING": "1"}
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, env=own, cwd=folder
            ) as ran:
                assert ran.stdout is not None
                for line in ran.stdout:
                    if line.startswith('{"way"'):
                        row = json.loads(line)
                        seen = proxy.seen.get(str(row["number"]), [])
                        good &= show(name, row, seen)
            good &= ran.returncode == 0
            proxy.shutdown()
    return good


KINDS = ("conversations", "rewritten")  # of requests
# Replies to agents are not masked, and the tiny model cannot write a form unaided: here they are.
MASKED_RUN = """\
from rlc.cli.main import main
from rlc.runtime.rollouts.agents import AgentModel
AgentModel._takes = lambda model, name: True
raise SystemExit(main(["run", "agents.rl", "--run-dir", "run", "--quiet"]))
"""
RECIPE = """\
model policy {{ base = "tiny" }}
env asks = agent(command = {command}, tasks = rows("tasks.jsonl"))
train main {{
  model     = policy
  env       = asks
  batch     = groups(2, group_size = 2)
  sampling  = sample(max_tokens = {most})
  advantage = rloo()
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 1
}}
"""


def play(name: str) -> None:
    """Be an agent that tries a library in each of its ways, and likes the letter e."""
    proxy = Proxy(os.environ["OPENAI_BASE_URL"].removesuffix("/v1"))
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    rows = list(try_library(name, f"http://127.0.0.1:{proxy.server_port}"))
    for row in rows:
        row["seen"] = proxy.seen.get(str(row["number"]), [])
    Path(f"{os.getpid()}.json").write_text(json.dumps(rows))
    made = "".join(row["made"] or "" for row in rows)
    Path(os.environ["RLC_RESULT"]).write_text(str(made.count("e") / (len(made) + 1)))


def try_in_runs(python: str, only: str | None) -> bool:
    """Train a step on agents that use the libraries, and return whether all was well."""
    good = True
    for name in [only] if only else LIBRARIES:
        with tempfile.TemporaryDirectory() as place:
            folder, asked = Path(place), 0
            command = json.dumps([python, "-P", os.path.abspath(__file__), "--episode", name])
            (folder / "agents.rl").write_text(RECIPE.format(command=command, most=MOST))
            (folder / "tasks.jsonl").write_text('{"prompt": "One."}\n{"prompt": "Two."}\n')
            words = [sys.executable, "-c", MASKED_RUN]
            ran = subprocess.run(words, cwd=folder, stdout=subprocess.DEVNULL)
            tried = [json.loads(file.read_text()) for file in folder.glob("*.json")]
            for ways in zip(*tried, strict=True):
                seen = [(status, what) for row in ways for status, what in row["seen"]]
                good &= show(name, max(ways, key=lambda row: row["problem"] is not None), seen)
                asked += len(seen)
            lines = (folder / "run" / "rollouts.jsonl").read_text().splitlines()
            turns = [turn for line in lines for turn in json.loads(line)["turns"]]
            sampled = [turn["tokens"] for turn in turns]
            kinds = Counter[str]()
            for turn in turns:
                kinds.update({kind: int(turn["metrics"].get(kind, 0)) for kind in KINDS})
            print(f"  {len(lines)} episodes, {asked} requests, {len(turns)} turns", end=", ")
            print(f"{sum(sampled):,} sampled tokens, {dict(kinds)}", flush=True)
            good &= ran.returncode == 0 and asked == len(turns) and all(sampled)
    return good


def show(name: str, row: dict[str, Any], seen: list[tuple[int, str]]) -> bool:
    """Print what was seen of one way of asking; return whether it was well."""
    misfits = sum(status == MISFIT for status, _ in seen)
    refused = sum(status != 200 for status, _ in seen) - misfits
    asked = "; ".join(f"{count} × {what}" for what, count in Counter(w for _, w in seen).items())
    print(f"| {name} {row['version']} | {row['way']} | {asked} | {refused} refused", end=", ")
    print(f"{misfits} without a form |", end=" ")
    print(f"{row['problem'] or row['made']}"[:160].replace("\n", " "), "|", flush=True)
    return bool(seen) and not refused and (row["problem"] is None or row["way"] in FREE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--python", default=sys.executable, help="which has the libraries")
    parser.add_argument("--only", choices=LIBRARIES)
    parser.add_argument("--try", dest="tried", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--episode", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--in-runs", action="store_true", help="as agents that a run trains on")
    parser.add_argument("--url", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.episode:
        play(given.episode)
    elif given.tried:
        for row in try_library(given.tried, given.url):
            print(json.dumps(row), flush=True)
    else:
        sys.exit(not (try_in_runs if given.in_runs else try_all)(given.python, given.only))
