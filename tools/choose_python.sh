#!/usr/bin/env bash
# Prints the Python that .venv is made with: the named program, or else the first from 3.11 on.
# Usage: tools/choose_python.sh [PROGRAM]
set -euo pipefail
named="${1:-}"

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; }

for program in ${named:-python3.11 python3.12 python3.13 python3.14 python3 python}; do
	if new_enough "$program"; then
		echo "$program"
		exit
	fi
done

if [[ -z "$named" ]]; then
	echo "No Python 3.11 or later was found on the PATH." >&2
elif version="$("$named" -c 'import platform; print(platform.python_version())' 2> /dev/null)"; then
	echo "PYTHON=$named is Python $version, and Magnetar needs 3.11 or later." >&2
elif command -v "$named" > /dev/null; then
	echo "PYTHON=$named does not start. Try it: $named --version" >&2
else
	echo "PYTHON=$named was not found." >&2
fi

others="$("$(dirname "$0")/find_pythons.sh" 2> /dev/null)"
if [[ -n "$others" ]]; then
	echo "These work on this machine; name one of them, as in PYTHON=$(head -n 1 <<< "${others#* }"):" >&2
	sed 's/^\([^ ]*\) /  \1  /' <<< "$others" >&2
else
	echo "Install Python 3.11 or later, or name its program with PYTHON=..." >&2
fi
exit 1
