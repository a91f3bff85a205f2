"""The language, without its vocabulary: text, syntax and diagnostics.

``source`` has texts and spans, ``read`` files, ``ast`` the syntax tree that ``syntax/`` returns,
and ``imports`` adds the declarations of other files to it. ``diagnostics`` are printed by
``render`` and ``formats``, numbered in ``codes``, explained in ``pages/`` and applied by
``fixes``. ``formatter`` is `rlc fmt`.
"""
