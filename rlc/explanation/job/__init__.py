"""What surrounds the stages: the graph, what is written and needed, expectations, sweeps."""
