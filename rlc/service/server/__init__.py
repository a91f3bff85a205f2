"""The embedded engine behind Tinker's HTTP protocol, for the unmodified SDK (tinker 0.38).

Read ``app`` first: the paths and their handlers, which are in ``client_requests``,
``account_requests`` and ``checkpoint_requests``. They share a ``backend``, with ``sessions``,
``runs`` and ``futures``, the promises of answers; ``wire`` encodes protobuf, ``served_models`` are
those that chats name. ``faults`` simulates the delays and failures of a hosted service; an
extension (``backend``) adds to a server.
"""
