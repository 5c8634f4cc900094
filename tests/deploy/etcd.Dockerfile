# etcd, where its own image cannot be pulled. The test puts the programs beside this.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY etcd etcdctl /usr/local/bin/
