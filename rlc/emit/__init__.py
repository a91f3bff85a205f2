"""Jobs to take elsewhere: `job` writes a folder that runs any plan, `script` one program without
rlc, put together from `pieces`, for the plans that `script.misfits` finds nothing in."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rlc.emit.job.needs import *
else:
    from rlc.doors import door

    __getattr__ = door(__name__, "job.needs: WHEEL is_from_index write_wheel")
