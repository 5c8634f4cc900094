"""The client's end of a conversation: connections over HTTP/2, and links that reconnect."""
