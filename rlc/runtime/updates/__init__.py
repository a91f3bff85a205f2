"""From rollouts to optimiser updates: datums, minibatches, gradients."""
