"""The client that an environment of verifiers gets its replies from: the policy that is trained.

The environment sees messages; their tokens and logprobs stay with the runtime, which sampled them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlc.envs.base import EnvError, PolicyClient, PolicyReply, PolicyRequest
from rlc.envs.transcripts import Plain

MODEL = "policy"  # the name of the model that environments see


def verifiers_client(policy: PolicyClient) -> Any:
    """Return a client of verifiers for one rollout."""
    from verifiers.clients import Client
    from verifiers.types import Response, ResponseMessage, ToolCall

    class VerifiersClient(Client):  # type: ignore[misc]
        def setup_client(self, _: Any) -> Any:
            raise EnvError("the policy that is trained has no address")

        async def to_native_tool(self, tool: Any) -> Plain:
            return {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            }

        async def to_native_prompt(self, messages: Any) -> tuple[list[Plain], dict[str, Any]]:
            return [plain_message(message) for message in messages], {}

        async def get_native_response(
            self,
            prompt: Sequence[Plain],
            model: str,  # noqa: ARG002
            sampling_args: Mapping[str, Any],  # noqa: ARG002 (the recipe's count)
            tools: Sequence[Plain] | None = None,
            **_: Any,
        ) -> PolicyReply:
            return await policy.reply(PolicyRequest(prompt, tools or ()))

        async def raise_from_native_response(self, response: PolicyReply) -> None:
            """Whatever the policy says is a reply."""

        async def from_native_response(self, response: PolicyReply) -> Any:
            said = response.message
            calls = [
                ToolCall(id=call["id"], **call["function"]) for call in said.get("tool_calls", ())
            ]
            finished = "length" if response.cut_off else "tool_calls" if calls else "stop"
            message = ResponseMessage(
                content=said["content"],
                reasoning_content=said.get("reasoning_content"),
                tool_calls=calls or None,
                finish_reason=finished,
                is_truncated=response.cut_off,
            )
            return Response(id="", created=0, model=MODEL, message=message)

        async def close(self) -> None:
            """Nothing is held."""

    return VerifiersClient(policy)


def plain_message(message: Any) -> Plain:
    """A message of verifiers in OpenAI's form. Raise EnvError for what is no message of a chat."""
    plain: Plain = message if isinstance(message, dict) else message.model_dump(exclude_none=True)
    if plain.get("role") not in ("system", "user", "assistant", "tool"):
        raise EnvError("the environment asks for completions of a text, and this trains on chats")
    calls = [
        call
        if "function" in call
        else {
            "type": "function",
            "id": call["id"],
            "function": {"name": call["name"], "arguments": call["arguments"]},
        }
        for call in plain.get("tool_calls") or ()
    ]
    known = ("role", "content", "tool_call_id")
    shown: Plain = {name: plain[name] for name in known if name in plain}
    return {**shown, "tool_calls": calls} if calls else shown
