"""What a process has from its operating system: settings, logs, metrics, memory and files."""
