"""The process and its operating system: settings, logs, metrics, memory and files."""
