"""Tests of histories and of the follower that checks them."""
