"""Episodes: which tasks are played, how, and with which tokens.

Read ``tasks`` (the tasks of a mixture in order), ``player`` (one task played by all members of a
group) and ``groups`` (many tasks side by side, in roles, compared). ``games`` and ``agents`` are
played in their own ways, ``tokens`` stores prompts that share a prefix.
"""
