"""A server of another API behind Tinker's, for the unmodified SDK: SkyRL's.

Read ``app`` first: the SDK's requests, and how each is answered. ``skyrl`` sends them on, in JSON
or in protobuf, as the version of the server takes them; ``sums`` gives the gradients of Tinker's
API on an engine that averages.
"""
