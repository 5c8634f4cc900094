"""The server's end of a conversation: gRPC, handlers of commands, and their replies."""
