"""Tools of MCP servers, offered to the policy of any environment whose prompts are chats."""
