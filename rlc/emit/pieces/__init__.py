"""The pieces that scripts are put together from: functions and classes with plain
arguments, which need nothing of rlc. `rlc.emit.script.stitch` copies those that a
script needs, as they stand here.
"""
