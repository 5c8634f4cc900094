"""Mutants: mistakes put into copies of the code, to learn whether the tests would notice."""
