# syntax=docker/dockerfile:1
# Elapse in a container. The first stage builds Debian packages, the second installs them; docs/install.md
# says how to run it, with GPUs too.
#
#   docker build -t elapse .
#   docker run --rm --shm-size=2g -v "$PWD:/jobs" -u "$(id -u):$(id -g)" elapse train job.json -n 2 --out run
#
#   BUILD_BASE, BASE   images to build and to run in: of one release, Debian 12 or Ubuntu 24.04
#   ARCH               what the trainer is compiled for: any processor with AVX2, or native for this one
#   CUDA, CUDA_ARCH    1 and "80 90": with the backend for those GPUs; the images must have CUDA
ARG BUILD_BASE=debian:12-slim
ARG BASE=debian:12-slim

FROM ${BUILD_BASE} AS build
ARG ARCH=x86-64-v3
ARG CUDA=0
ARG CUDA_ARCH="80 90"
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y --no-install-recommends make dpkg-dev
WORKDIR /elapse
# The packages first: a change of the sources does not install them again.
COPY tests/deps.sh tests/
RUN tests/deps.sh
COPY . .
RUN make -j"$(nproc)" deb ARCH="$ARCH" CUDA="$CUDA" CUDA_ARCH="$CUDA_ARCH"

FROM ${BASE}
RUN --mount=type=bind,from=build,source=/elapse/build/deb,target=/deb \
    apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /deb/elapse_*.deb gnuplot-nox \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --home-dir /jobs elapse
# Profiles stay in the folder that is mounted. A container may not read other processes' memory, by which
# Open MPI would copy messages between ranks (github.com/open-mpi/ompi/issues/4948).
ENV ELAPSE_DB=/jobs/profiles.db OMPI_MCA_btl_vader_single_copy_mechanism=none
USER elapse
WORKDIR /jobs
ENTRYPOINT ["elapse"]
CMD ["--help"]
