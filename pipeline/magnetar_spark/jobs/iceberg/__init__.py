"""Tables of Iceberg that are brought from cut to cut: docs/design/0018-tables.md."""
