"""Training services behind one client interface, Tinker's.

Read ``interface`` first. ``hosted/`` is Tinker through its SDK, and finds the service of a plan;
``engine/`` the embedded engine, ``server/`` that engine behind Tinker's protocol, and
``inference/`` models behind OpenAI's and Anthropic's; ``conform/`` checks any server, and
``tiny/`` is the model that is included.
"""
