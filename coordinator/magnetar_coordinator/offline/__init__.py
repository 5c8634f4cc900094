"""Checks of a coordinator's store that no server has open."""
