"""Types of what commands print with `--json`, of which json_schema.py makes schemas."""
