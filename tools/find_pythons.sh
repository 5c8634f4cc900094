#!/usr/bin/env bash
# Prints each supported Python that is at hand as "version program", but for the versions given.
# A program called python3.12 may be there and not work: pyenv's are, for versions that are not
# chosen. Then its own folder is searched.
set -euo pipefail

works() { "$1" -c "import sys; sys.exit(sys.version_info[:2] != (3, ${2#3.}))" 2> /dev/null; }

for version in 3.11 3.12 3.13; do
	[[ " $* " == *" $version "* ]] && continue
	found=""
	for program in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
		if works "$program" "$version"; then found="$program"; break; fi
	done
	if [[ -n "$found" ]]; then
		echo "$version $found"
	else
		echo "No Python $version is at hand: not tested there." >&2
	fi
done
