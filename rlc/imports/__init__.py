"""Recipes from command lines and configurations of other trainers.

`convert` reads a command (`shell`) or a configuration (`yaml_text`) and finds its trainer: `gem`,
`gem_cookbook`, `openreward`, or `rllm` (with `rllm_options`, its tables, and `rllm_algorithm`, its
advantages and losses). Each holds a table of the trainer's options; `settings` accounts for each
option given. `write` writes the recipe, and `common` the parts that all trainers have.
"""
