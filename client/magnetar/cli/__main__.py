"""`python -m magnetar.cli`, as the program that `magnetar` is."""

from magnetar.cli import main

main()
