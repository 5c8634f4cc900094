"""Both ends of a conversation share this: frames, the streams that carry them, and their limits."""
