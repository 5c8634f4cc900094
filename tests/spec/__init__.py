"""Checks the models of the protocol in spec/, and finds the mistakes that are planted in them."""
