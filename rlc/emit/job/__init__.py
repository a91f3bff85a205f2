"""Jobs as folders: a saved plan with all that it reads, and one command that runs it anywhere."""
