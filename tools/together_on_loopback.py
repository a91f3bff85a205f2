"""Together's own client, tried without Together: `python -m tools.together_on_loopback RECIPE`.

A server on loopback has the paths of Together's training API (package together 3.1.1) and computes
with the embedded engine. The recipe, of the model ``tiny``, is trained through it by ``rlc run``
with the provider ``together_here``, which is like ``together``. Needs ``pip install together``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tinker import types

from rlc.service import LOOPBACK, TrainingClient, bind
from rlc.service.engine import open_engine

_LOSSES = ("cross_entropy", "importance_sampling", "ppo", "cispo", "dro")
_SETTINGS = {f"LOSS_TYPE_{loss.upper()}": (loss, f"{loss}_params") for loss in _LOSSES}


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _input(sent: dict[str, Any]) -> types.ModelInput:
    tokens = [t for chunk in sent["chunks"] for t in chunk["encoded_text"]["tokens"]]
    return types.ModelInput.from_ints([int(token) for token in tokens])


def _datum(sent: dict[str, Any]) -> types.Datum:
    """Return the datum of a sample; numbers of 64 bits come as texts."""
    inputs = {}
    for name, tensor in sent["loss_fn_inputs"].items():
        of = int if tensor["dtype"] == "int64" else float
        inputs[name] = types.TensorData(data=[of(x) for x in tensor["data"]], dtype=tensor["dtype"])
    return types.Datum(model_input=_input(sent["model_input"]), loss_fn_inputs=inputs)


class Api:
    """The part of the API that the client uses; each operation is over when it is answered."""

    def __init__(self, folder: Path) -> None:
        self.engine = open_engine(folder)
        self.clients: dict[str, TrainingClient] = {}
        self.samplers: dict[str, Any] = {}
        self.saved: dict[str, tuple[str, int]] = {}
        self.ranks: dict[str, int] = {}
        self.calls: dict[str, int] = {}

    async def resources(self, request: Request) -> JSONResponse:
        stopped = request.url.path.endswith("/stop")
        return JSONResponse(
            {
                "id": request.path_params.get("id", "resources-1"),
                "base_model": "tiny",
                "compute_config": {"num_generator_replicas": 1},
                "created_at": _now(),
                "created_by": "nobody",
                "inactive_timeout": 3600,
                "lora_enabled": True,
                "optimizer_config": {},
                "status": f"MODEL_RESOURCES_STATUS_{'STOPPED' if stopped else 'READY'}",
                "status_details": {},
                "updated_at": _now(),
            }
        )

    async def create(self, request: Request) -> JSONResponse:
        sent, name = await request.json(), uuid4().hex
        lora = sent.get("lora_config", {})
        if resumed := sent.get("resume_from_checkpoint_id"):
            path, self.ranks[name] = self.saved[resumed]
            whole = self.engine.create_training_client_from_state_with_optimizer
            bare = self.engine.create_training_client_from_state
            client = await (whole if sent.get("load_optimizer", True) else bare)(path)
        else:
            seed, self.ranks[name] = int(lora.get("seed", 0)), int(lora.get("rank", 32))
            client = await self.engine.create_lora_training_client("tiny", self.ranks[name], seed)
        self.clients[name] = client
        return self._session(name, "RUNNING")

    async def session(self, request: Request) -> JSONResponse:
        over = request.url.path.endswith("/stop")
        return self._session(request.path_params["id"], "STOPPED" if over else "RUNNING")

    def _session(self, name: str, status: str) -> JSONResponse:
        state: dict[str, Any] = {"applied_weights_version": 0, "pending_publish": False}
        state |= {"target_weights_version": 0, "trainer_step": 0}
        known: dict[str, Any] = {"id": name, "base_model": "tiny", "created_by": "nobody"}
        known["metadata"] = {}
        known |= {"created_at": _now(), "updated_at": _now(), "step": 0, "policy_state": state}
        known |= {"inference_checkpoints": [], "training_checkpoints": []}
        known |= {"model_resources_id": "resources-1"}
        return JSONResponse(known | {"status": f"TRAINING_SESSION_STATUS_{status}"})

    async def checkpoint(self, request: Request) -> JSONResponse:
        name = request.path_params["id"]
        if name not in self.saved:
            return JSONResponse({"error": {"message": "no such checkpoint"}}, 404)
        known = {
            "id": name,
            "base_model": "tiny",
            "created_at": _now(),
            "session_id": "",
            "step": 0,
        }
        known |= {"type": "CHECKPOINT_TYPE_TRAINING", "lora_rank": self.ranks.get(name, 8)}
        return JSONResponse(known | {"lora_rank": self.saved[name][1]})

    async def operation(self, request: Request) -> JSONResponse:
        session, kind = request.path_params["id"], request.path_params["kind"]
        self.calls[kind] = self.calls.get(kind, 0) + 1
        sent = await request.json() if await request.body() else {}
        answer = await getattr(self, kind.replace("-", "_"))(session, sent)
        done = {"id": uuid4().hex, "status": "TRAINING_OPERATION_STATUS_COMPLETED"}
        return JSONResponse(done | {"output": answer})

    async def forward_backward(self, session: str, sent: dict[str, Any]) -> dict[str, Any]:
        client, data = self.clients[session], [_datum(one) for one in sent["samples"]]
        loss, params = _SETTINGS[sent["loss"]["type"]]
        run = client.forward if sent.get("forward_only") else client.forward_backward
        output = await run(data, loss, sent["loss"].get(params) or None)
        found: dict[str, Any] = {"loss": output.metrics["loss:sum"], "metrics": output.metrics}
        if sent.get("return_loss_fn_outputs"):
            tensors = [list(map(float, one["logprobs"].data)) for one in output.loss_fn_outputs]
            found["loss_fn_outputs"] = [
                {"tensors": {"logprobs": {"data": one, "dtype": "float32"}}} for one in tensors
            ]
        return found

    async def optim_step(self, session: str, sent: dict[str, Any]) -> dict[str, Any]:
        await self.clients[session].optim_step(types.AdamParams(**sent["adam_params"]))
        return {}

    async def weights_sync(self, session: str, _: dict[str, Any]) -> dict[str, Any]:
        made = await self.clients[session].save_weights_and_get_sampling_client()
        self.samplers[session] = made
        return {"weights_version": self.calls["weights-sync"]}

    async def training_checkpoint(self, session: str, _: dict[str, Any]) -> dict[str, Any]:
        name = uuid4().hex
        saved = await self.clients[session].save_state(name)
        self.saved[name] = (saved.path, self.ranks[session])
        return {"checkpoint": {"id": name, "created_at": _now(), "step": 0}}

    async def sample(self, session: str, sent: dict[str, Any]) -> dict[str, Any]:
        given = dict(sent.get("sampling_params", {}))
        if "seed" in given:
            given["seed"] = int(given["seed"])
        params = types.SamplingParams(**given)
        scored, sampler = bool(sent.get("prompt_logprobs")), self.samplers[session]
        results = []
        for one in sent["model_inputs"]:
            reply = await sampler.sample(_input(one), sent.get("num_samples", 1), params, scored)
            sequences = [
                {
                    "tokens": list(map(int, s.tokens)),
                    "logprobs": list(map(float, s.logprobs or [])),
                    "stop_reason": f"STOP_REASON_{s.stop_reason.upper()}",
                    "prompt_cache_hit_tokens": reply.prompt_cache_hit_tokens,
                }
                for s in reply.sequences
            ]
            result: dict[str, Any] = {"policy_segments": [], "sequences": sequences}
            if scored:
                result["prompt_logprobs"] = [x or 0.0 for x in reply.prompt_logprobs or []]
            results.append(result)
        return {"results": results}

    def app(self) -> Starlette:
        sessions = "/v1/rl/training-sessions"
        return Starlette(
            routes=[
                Route("/v1/rl/model-resources", self.resources, methods=["POST"]),
                Route("/v1/rl/model-resources/{id}", self.resources),
                Route("/v1/rl/model-resources/{id}/stop", self.resources, methods=["POST"]),
                Route("/v1/rl/checkpoints/{id}", self.checkpoint),
                Route(sessions, self.create, methods=["POST"]),
                Route(f"{sessions}/{{id}}", self.session),
                Route(f"{sessions}/{{id}}/stop", self.session, methods=["POST"]),
                Route(f"{sessions}/{{id}}/operations/{{kind}}", self.operation, methods=["POST"]),
            ]
        )


def main(arguments: list[str]) -> int:
    """Run a recipe through Together's client, with more arguments of `rlc run`."""
    if not arguments:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as name:
        folder, listening = Path(name), bind(LOOPBACK, 0)
        api, url = Api(folder / "states"), f"http://{LOOPBACK}:{listening.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(api.app(), log_level="warning"))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        providers = folder / "rlc" / "providers"
        providers.mkdir(parents=True)
        like = {"like": "together", "title": "Together's client here", "url": url}
        like |= {"scheme": "together-here://", "models": {"tiny": {"context": 8192}}}  # type: ignore[dict-item]
        (providers / "together_here.json").write_text(json.dumps(like), encoding="utf-8")
        environ = {**os.environ, "XDG_CONFIG_HOME": name, "TOGETHER_API_KEY": "none"}
        command = [sys.executable, "-m", "rlc", "run", *arguments, "--service", "together_here"]
        try:
            status = subprocess.run(command, env=environ, check=False).returncode
        finally:
            server.should_exit = True
            thread.join()
        print(f"operations: {api.calls}")
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
