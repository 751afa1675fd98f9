# The service with its default model. Two stages: the first has a compiler, the second only what was made.
#   docker build -t runwright .

FROM python:3.11.14-slim-bookworm AS build

# Versions of Debian's packages aren't pinned: the archive keeps only the newest, with its security fixes.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

# The image runs on other machines than the one that builds it: GGML_NATIVE=OFF, and on x86_64 a CPU with AVX2, FMA,
# F16C and BMI2 (x86-64-v3). deploy/llama_wheel.py has the list.
ENV RUNWRIGHT_PORTABLE=1

WORKDIR /src

# First and with only the files it depends on, so that this layer of many minutes is kept when the code changes.
COPY deploy/install.py deploy/llama_wheel.py deploy/
COPY deploy/requirements/build.lock deploy/requirements/llama.lock deploy/requirements/
RUN python deploy/install.py --wheel-only

COPY . .
# Where the environment is made is where it stays: its scripts hold the path.
ARG RUNWRIGHT_PREFIX=/opt/runwright
RUN python deploy/install.py --copy --venv "$RUNWRIGHT_PREFIX" \
    && "$RUNWRIGHT_PREFIX/bin/runwright" --help

FROM python:3.11.14-slim-bookworm

# What the compiled llama.cpp is linked with: OpenMP for its threads, and the C++ library.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 libstdc++6 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --user-group --home-dir /var/lib/runwright --create-home runwright

COPY --from=build /opt/runwright /opt/runwright

ENV PATH=/opt/runwright/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    RUNWRIGHT_DATA_DIR=/var/lib/runwright \
    RUNWRIGHT_HOST=0.0.0.0 \
    RUNWRIGHT_PORT=8080

WORKDIR /var/lib/runwright
USER 10001
EXPOSE 8080

# /livez touches neither model nor database, so a slow model never gets the container restarted.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"RUNWRIGHT_PORT\"]}/livez', timeout=4)"]

ENTRYPOINT ["runwright"]
CMD ["serve"]
