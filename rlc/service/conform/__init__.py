"""Checks of a server that claims Tinker's protocol: what it lacks, what differs and by how much.

`suite` runs the checks in order, each with clients of its own. A check is a function of a
`probe.Probe`, with which it calls the official SDK, measures, and counts the tokens. Losses and
gradients are compared with the float64 formulas of `rlc.algo.served`, optimiser steps with Adam's,
samplers with trainers, and logprobs with those of the server's model in float64 if it is at hand.
"""
