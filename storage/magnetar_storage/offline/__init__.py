"""Stores that no server has open: how they are read, checked, and opened after a loss."""
