"""Links to servers: who is where, requests and replies, what is sent again after a break."""
