"""From rollouts to optimiser updates."""
