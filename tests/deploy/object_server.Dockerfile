# SeaweedFS, where its own image cannot be pulled. The test puts the program beside this.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY weed /usr/bin/weed
