"""The stages of a job, one module for each kind.

Read ``base`` (what a training stage offers to the loop), ``train`` and ``sft`` (a function for each
kind of node in their step graphs) and ``evaluation``. ``weights`` has the adapter that a stage
trains; ``examples`` and ``demonstrations`` make what a supervised stage imitates.
"""
