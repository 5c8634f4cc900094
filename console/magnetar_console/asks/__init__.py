"""What viewers ask for by a button: searches and cuts, and actions that are confirmed first."""
