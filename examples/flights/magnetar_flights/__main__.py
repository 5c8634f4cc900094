"""`python -m magnetar_flights`; for spark-submit, this file."""

from magnetar_flights.program import main

main(prog_name="python -m magnetar_flights")
