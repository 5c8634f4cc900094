"""Topics and the partitions that this broker keeps of them: sends, ends, retention."""
