"""Models taken into use: opened by name, talked to, sampled from, and taken away as files.

``named`` says what a name stands for, ``opened`` answers chats, ``model`` is what Python programs
hold. ``export`` writes files for other programs, with ``merged`` and ``card``.
"""
