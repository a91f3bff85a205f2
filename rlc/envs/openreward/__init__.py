"""Environments of OpenReward: ``openreward("GeneralReasoning/WhoDunIt")``.

Read ``source`` first: it opens tasks. ``client`` is the connection to a server through the SDK,
``episode`` plays a task in a session, ``group`` adds scores that compare a group, and ``preflight``
asks the server what is wrong before a run starts.
"""
