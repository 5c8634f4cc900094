"""`python -m magnetar_cli.pipeline`: the program that runs the jobs, also for spark-submit."""

import sys

from magnetar_cli.program import cli

# Options of the program, as --debug, are not asked for here.
cli(args=["pipeline", *sys.argv[1:]], prog_name="magnetar")
