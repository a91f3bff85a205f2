"""Sampling: requests (`sampler`) become rows of a batch (`decoder`), which get a token at a time
(`next_token`) by numbers that depend on seed and place alone (`random_streams`)."""
