# syntax=docker/dockerfile:1
# mobench with the locked versions of all dependencies, and the README's two commands.
#
#   docker build -t mobench .                                        a CPU
#   docker build -t mobench --build-arg BASE=nvidia/cuda:13.0.1-runtime-ubuntu24.04 .      a GPU: docker run --gpus all
#   docker run --rm -v "$PWD/outputs:/mobench/outputs" mobench       one job; rows in outputs/runs
#   docker run --rm -v "$PWD/outputs:/mobench/outputs" mobench make reproduce SCALE=smoke
ARG BASE=python:3.12-slim-bookworm
FROM ${BASE}

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1 VIRTUAL_ENV=/mobench/.venv
ENV PATH=/mobench/.venv/bin:$PATH

# an image of CUDA has no Python; that of Debian 12 is 3.11, that of Ubuntu 24.04 is 3.12
# Debian keeps no older versions of packages that could be pinned
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc git libc6-dev make \
    && if ! command -v python3 > /dev/null; then apt-get install --yes --no-install-recommends python3 python3-dev python3-venv; fi \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /mobench
COPY . .
RUN make install LOCKED=1

CMD ["mobench", "problem=vlmop2", "algorithm=ferero", "preferences=10", "seeds=[0,1,2]", "steps=200"]
