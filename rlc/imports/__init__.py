"""Recipes from command lines and configurations of other trainers.

`convert` reads a command or a configuration and finds its trainer: `gem`, `openreward`, `rllm`,
`trl` (with `trl_script`) or `verl`. The options of each stand in `options.toml`; `settings`
accounts for each option given. `write` writes the recipe, and the parts that all trainers have,
`objectives` the losses and optimisers that several have.
"""
