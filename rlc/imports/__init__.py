"""Recipes from command lines and configurations of other trainers.

`convert` reads a command or a configuration and finds its trainer: `gem`, `openreward`, `rllm`
(with `rllm_options`, its tables), `trl` (with `trl_script`) or `verl`. Each has a table of the
trainer's options; `settings` accounts for each option given. `write` writes the recipe, and the
parts that all trainers have, `objectives` what the last two have.
"""
