"""Environments whose calls block, kept off the event loop: ``workers()`` in a recipe.

Read ``async_adapter`` first: it wraps a blocking source for the runtime. Its calls are made in
threads, in processes, by an executor of the user's own, or by actors of Ray.
"""
