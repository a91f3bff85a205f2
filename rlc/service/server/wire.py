"""Tinker's protobuf messages, in the SDK's schema, to and from the SDK's types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from attrs import frozen
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tinker import types
from tinker.proto import tinker_public_pb2 as pb
from tinker.types.dmel_chunk import DmelChunk
from tinker.types.topk_logprobs import TopkLogprobs

from rlc.service.http import RefusedRequest

PROTOBUF = "application/x-protobuf"

_DTYPES: dict[int, tuple[Literal["float32", "int64"], np.dtype[Any]]] = {
    pb.DTYPE_FLOAT32: ("float32", np.dtype(np.float32)),
    pb.DTYPE_INT64: ("int64", np.dtype(np.int64)),
}
_MOST_DATUMS = 8_192  # the SDK sends 1,024 at a time
_WIRE_DTYPES = {"float32": pb.DTYPE_FLOAT32, "int64": pb.DTYPE_INT64}
_STOP_REASONS = {"stop": pb.STOP_REASON_STOP, "length": pb.STOP_REASON_LENGTH}


@frozen
class Pass:
    """A forward or forward_backward request. Its datums are decoded when it is carried out."""

    model_id: str
    seq_id: int
    forward_only: bool
    loss_fn: str
    config: dict[str, float | str] | None
    _datums: Sequence[Any]

    def read_data(self) -> list[types.Datum]:
        """Decode its datums. Raise RefusedRequest for too many of them, and for tensors that do not
        match their types."""
        if (count := len(self._datums)) > _MOST_DATUMS:
            problem = f"A request has at most {_MOST_DATUMS:,} datums, not {count:,}."
            raise RefusedRequest(413, problem)
        return [_datum(message, f"Datum {i}") for i, message in enumerate(self._datums)]


def read_pass(body: bytes) -> Pass:
    """Decode the body of ``forward_backward``. Raise RefusedRequest if that is not possible."""
    message = pb.ForwardBackwardRequest()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        problem = "The body is not a ForwardBackwardRequest in protobuf."
        raise RefusedRequest(400, problem) from error
    config: dict[str, float | str] = dict(message.loss_fn_config)
    for key, value in message.loss_fn_config_v2.items():
        config[key] = value.text if value.WhichOneof("value") == "text" else value.number
    ids, forward_only = (message.model_id, message.seq_id), message.forward_only
    return Pass(*ids, forward_only, message.loss_fn, config or None, message.data)


def _datum(message: Any, where: str) -> types.Datum:
    chunks = [_chunk(chunk, where) for chunk in message.model_input]
    inputs = {
        name: _tensor(tensor, f"{where}, {name}") for name, tensor in message.loss_fn_inputs.items()
    }
    datum = types.Datum(model_input=types.ModelInput(chunks=chunks), loss_fn_inputs=inputs)
    spans = message.model_input_spans, message.loss_fn_input_spans
    if not any(spans):
        return datum
    try:
        return datum.with_provenance(*([_span(span) for span in field] for field in spans))
    except ValueError as error:  # an invalid span, or spans that do not tile their field
        raise RefusedRequest(400, f"{where}: {error}.") from error


def _span(message: Any) -> types.PromptProvenanceSpan | types.SampledProvenanceSpan:
    """Decode a span. Raise ValueError for one that is empty or out of bounds."""
    is_sampled = message.WhichOneof("span") == "sampled_tokens"
    span = message.sampled_tokens if is_sampled else message.prompt_tokens
    make = types.SampledProvenanceSpan if is_sampled else types.PromptProvenanceSpan
    return make(sequence_id=span.sequence_id, offset=span.offset, length=span.length)


def _chunk(message: Any, where: str) -> types.ModelInputChunk:
    kind = message.WhichOneof("chunk")
    if kind == "encoded_text":
        tokens = _array(message.encoded_text.tokens, np.dtype(np.int32), where)
        return types.EncodedTextChunk(tokens=tokens.tolist())
    if kind == "dmel":
        return DmelChunk(dmel=message.dmel.dmel)
    if kind != "image" or message.image.format not in ("png", "jpeg"):
        raise RefusedRequest(400, f"{where}: a chunk is text, an image (png or jpeg) or dmel.")
    image = message.image
    expected = image.expected_tokens if image.HasField("expected_tokens") else None
    return types.ImageChunk(data=image.data, format=image.format, expected_tokens=expected)


def _tensor(message: Any, where: str) -> types.TensorData:
    """Decode a tensor. A dense one without a shape has one dimension, or none if it has one value:
    on the wire a number looks the same."""
    if message.dtype not in _DTYPES:
        raise RefusedRequest(400, f"{where}: a tensor is float32 or int64.")
    name, dtype = _DTYPES[message.dtype]
    shape = list(message.shape)
    try:
        if message.WhichOneof("encoding") != "sparse_csr":
            values = _array(message.dense, dtype, where)
            if not shape and len(values) != 1:
                shape = [len(values)]
            return types.TensorData(values, name, shape)
        index = np.dtype(np.int64)
        return types.TensorData(
            _array(message.sparse_csr.values, dtype, where),
            name,
            shape,
            sparse_crow_indices=_array(message.sparse_csr.crow_indices, index, where).tolist(),
            sparse_col_indices=_array(message.sparse_csr.col_indices, index, where).tolist(),
        )
    except ValueError as error:
        raise RefusedRequest(400, f"{where}: the values do not have the shape {shape}.") from error


def _array(content: bytes, dtype: np.dtype[Any], where: str) -> np.ndarray:
    if len(content) % dtype.itemsize:
        raise RefusedRequest(400, f"{where}: {len(content)} bytes are no whole number of {dtype}.")
    return np.frombuffer(content, dtype=dtype)


def write_output(output: types.ForwardBackwardOutput) -> bytes:
    """Encode a ForwardBackwardOutput, with a record for each datum, so that shapes may differ."""
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    for datum in output.loss_fn_outputs:
        record = message.loss_fn_outputs.add(type_tag="ArrayRecord", num_datums=1)
        for name, tensor in datum.items():
            array = np.ascontiguousarray(tensor.to_numpy())
            field = record.fields[name]
            field.data = array.tobytes()
            field.offsets = np.array([0, array.nbytes], dtype=np.int64).tobytes()
            field.dtype = _WIRE_DTYPES[tensor.dtype]
            field.trailing_shape.extend(array.shape[1:])
    for name, value in output.metrics.items():
        message.metrics[name] = value
    return bytes(message.SerializeToString())


def write_sample(response: types.SampleResponse) -> bytes:
    """Encode a SampleResponse. The ids of its sequences were sent with the promise."""
    message = pb.SampleResponse(prompt_cache_hit_tokens=response.prompt_cache_hit_tokens or 0)
    for sequence in response.sequences:
        added = message.sequences.add(
            stop_reason=_STOP_REASONS[sequence.stop_reason],
            tokens=np.asarray(sequence.tokens_np, dtype=np.int32).tobytes(),
        )
        if sequence.logprobs_np is not None:
            added.logprobs = np.asarray(sequence.logprobs_np, dtype=np.float32).tobytes()
        _write_topk(sequence.topk_logprobs_np, added.topk_sampled_logprobs)
    if (logprobs := response.prompt_logprobs_np) is not None:
        message.prompt_logprobs = np.asarray(logprobs, dtype=np.float32).tobytes()
    _write_topk(response.topk_prompt_logprobs_np, message.topk_prompt_logprobs)
    if response.target_prompt_logprobs is not None:
        _write_tensor(response.target_prompt_logprobs, message.target_prompt_logprobs)
    if (alternatives := response.prompt_alt_tokens) is not None:
        _write_tensor(alternatives.tokens, message.prompt_alt_tokens.tokens)
        _write_tensor(alternatives.logprobs, message.prompt_alt_tokens.logprobs)
    return bytes(message.SerializeToString())


def _write_tensor(tensor: types.TensorData, message: Any) -> None:
    message.dtype = _WIRE_DTYPES[tensor.dtype]
    message.shape.extend(tensor.shape or [len(tensor.data)])
    content = np.asarray(tensor.data, dtype=tensor.dtype).tobytes()
    if tensor.sparse_crow_indices is None:
        message.dense = content
        return
    message.sparse_csr.values = content
    for name in ("crow_indices", "col_indices"):
        index = np.asarray(getattr(tensor, f"sparse_{name}"), dtype=np.int64)
        setattr(message.sparse_csr, name, index.tobytes())


def _write_topk(topk: TopkLogprobs | None, message: Any) -> None:
    if topk is None:
        return
    message.length, message.k = topk.token_ids.shape
    message.token_ids = np.ascontiguousarray(topk.token_ids, dtype=np.int32).tobytes()
    message.logprobs = np.ascontiguousarray(topk.logprobs, dtype=np.float32).tobytes()
