"""Episodes: which tasks are played, how, and with which tokens.

Read ``tasks`` (the tasks of a mixture in order, chosen by a ``curriculum``), ``player`` (one task
played by all members of a group), ``groups`` (many tasks side by side) and ``streamed_groups``
(parts of a batch as groups come in). ``roles`` plays a task in several roles, ``tokens`` stores
prompts that share a prefix, and ``environments`` makes and closes what is played.
"""
