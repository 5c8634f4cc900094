"""Checks of a broker's store that no server has open."""
