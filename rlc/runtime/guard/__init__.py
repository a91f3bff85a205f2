"""What keeps a run within the limits of its service.

``service_guard`` has the clients of the service with deadlines and limited concurrency
(``adaptive_concurrency``); ``remote`` probes a remote service before the first step.
"""
