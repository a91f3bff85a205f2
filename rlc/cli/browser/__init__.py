"""The browser of runs and their episodes that `rlc show --browse` opens, in Textual."""
