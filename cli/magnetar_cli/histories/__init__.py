"""Histories of servers, checked against the rules of the protocol. Pure."""
