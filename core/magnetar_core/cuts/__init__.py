"""Consistent cuts: what a cut is, the token that names it, and the stamps of commits. Pure."""
