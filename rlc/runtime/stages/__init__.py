"""The stages of a job, one module for each kind.

Read ``base`` (what a training stage offers to the loop), ``train``, ``sft`` and ``preference`` (a
function for each kind of node in their step graphs) and ``evaluation``. ``examples`` has the data
of stages, made by ``file_examples`` and ``samples``.
"""
