# Prometheus from Debian, where no image of it can be pulled.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update --quiet \
    && apt-get install --quiet --yes --no-install-recommends prometheus \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner=65534 --group=65534 /prometheus
USER 65534:65534
ENTRYPOINT ["/usr/bin/prometheus"]
