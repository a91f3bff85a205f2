"""From rollouts to optimiser updates.

Read ``datums`` (sequences to train on) and ``optimizer`` (gradients submitted and awaited).
``preferences`` makes gradients of preferences, ``scorers`` asks other models for logprobs.
"""
