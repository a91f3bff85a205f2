"""From rollouts to optimiser updates.

Read ``datums`` (turns merged into sequences, targets shifted), ``minibatch`` (the datums of each
update, weighted), and ``optimizer`` (gradients submitted and awaited). ``scorers`` asks another
model for logprobs, for a KL penalty.
"""
