"""The embedded engine behind Tinker's HTTP protocol, for the unmodified SDK (tinker 0.38).

Read ``app`` first: the paths, and the models that chats name. The handlers are in
``client_requests`` and ``account_requests``. They share a ``backend`` with sessions, ``runs`` and
``futures``, the promises of answers; ``wire`` encodes protobuf. ``faults`` simulates the delays and
failures of a hosted service; an extension (``backend``) adds to a server.
"""
