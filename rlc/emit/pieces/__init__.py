"""The pieces that scripts are put together from: functions and classes that need nothing of rlc but
pure functions of its rooms. `rlc.emit.script.stitch` copies those that a script needs, as they
stand, these functions included. What `job` has are values that every script gives anew.
"""
