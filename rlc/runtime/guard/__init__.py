"""What keeps a run within its limits: deadlines, concurrency, budgets, error limits."""
