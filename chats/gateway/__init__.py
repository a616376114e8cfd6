"""The gateway: conversations for programs that speak OpenAI's protocol. See docs/gateway.md."""
