"""Links to servers: addresses, requests and replies, and repetition after a broken link."""
