"""An MCP server with one tool, for `mcp_tools.rl`. It speaks over standard input and output."""

from __future__ import annotations

import ast
import operator

try:
    from mcp.server.mcpserver import MCPServer
except ImportError:  # mcp before 2
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("calculator")
OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.USub: operator.neg,
}


def value(node: ast.AST) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return OPERATIONS[type(node.op)](value(node.operand))
    if isinstance(node, ast.BinOp):
        return OPERATIONS[type(node.op)](value(node.left), value(node.right))
    raise ValueError("only whole numbers, + - * and brackets")


@server.tool()
def calculate(expression: str) -> str:
    """Compute an expression of whole numbers with +, -, * and brackets, such as 12 * (3 + 4)."""
    return str(value(ast.parse(expression, mode="eval").body))


if __name__ == "__main__":
    server.run()
