"""`python -m magnetar_cli`, as the program that `magnetar` is."""

from magnetar_cli import main

main()
