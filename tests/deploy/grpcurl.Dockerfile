# grpcurl, where its own image cannot be pulled. The test puts the program beside this.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY grpcurl /bin/grpcurl
