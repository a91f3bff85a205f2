"""Custom losses: functions of a user's own, as the graphs that Tinker's SDK (0.38) traces of them.

A graph is data of a stranger. `graph` reads and checks it against the list of `operations`, and
nothing else is ever executed; `facts` finds out what follows from it before it runs. `per_datum`
computes it for one datum as the SDK does, `joined` for all datums of a batch at once, where that
is the same; `loss` is what the trainer holds.

Custom losses are computed in float64 on the CPU, whatever computes the model: they are one number a
token, and no index of theirs can then bring down a GPU.
"""
