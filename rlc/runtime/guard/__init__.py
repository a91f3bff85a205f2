"""What keeps a run within its limits.

Read ``service_guard`` first: the clients of the service with deadlines (``watchdog``) and
limited concurrency (``adaptive_concurrency``). ``meter`` counts what is spent, and ``limits``
decides after each step whether the run goes on. ``remote`` checks a remote service before the
first step, with the small requests of ``probes``.
"""
