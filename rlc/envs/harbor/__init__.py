"""Harbor's task folders: an instruction, a container to work in, tests that decide the reward."""
