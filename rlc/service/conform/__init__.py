"""What a server that claims Tinker's protocol has, what differs and by how much: ``rlc conform``.

`suite` runs the checks, in order, each with clients of its own, so that one that fails is the only
one. A check is a function of a `probe.Probe`, through which it asks the official SDK, measures, and
counts the tokens; those of a subject stand in one module. Nothing but arithmetic is believed of a
server: losses and gradients are compared with the float64 formulas of `rlc.algo.losses`, optimiser
steps with Adam's, samplers with trainers; and where the server's model is at hand, its logprobs
with those of that model in float64.
"""
