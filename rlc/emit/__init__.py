"""Jobs to take elsewhere: `job` writes a folder that runs any plan, `script` one program without
rlc, put together from `pieces`, for the plans that `script.misfits` finds nothing in."""
