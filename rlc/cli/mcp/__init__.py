"""rlc for coding agents: the tools that ``rlc mcp`` serves by the Model Context Protocol."""
