#!/usr/bin/env bash
# Puts the program that draws the states of docs/ into a folder, for a site that loads nothing from
# elsewhere. Without npm the site shows the text of these drawings.
set -euo pipefail

VERSION=11.16.0
SHA256=74d7c46dabca328c2294733910a8aa1ed0c37451776e8d5295da38a2b758fb9b
folder=$1
program=mermaid.min.js

is_right() { echo "$SHA256  $folder/$program" | sha256sum --check --status 2> /dev/null; }

mkdir -p "$folder"
if is_right; then exit; fi
if ! command -v npm > /dev/null; then
    echo 'There is no npm: the states are not drawn.' >&2
    exit
fi
(cd "$folder" && npm pack --silent "mermaid@$VERSION" > /dev/null)
tar --extract --gzip --file "$folder/mermaid-$VERSION.tgz" --directory "$folder" \
    --strip-components=2 "package/dist/$program"
rm "$folder/mermaid-$VERSION.tgz"
is_right || { rm -f "$folder/$program"; echo "$program has another checksum" >&2; exit 1; }
