"""What both ends of a conversation share: frames, the streams that carry them, and their limits."""
