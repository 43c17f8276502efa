# vlmcli in a container.
#   processors:  docker build -t vlmcli .
#   GPUs:        docker build -t vlmcli --build-arg BASE=nvidia/cuda:13.0.0-runtime-ubuntu24.04 --build-arg EXTRAS=gpu .
#                docker run --gpus all …
ARG BASE=python:3.11-slim
FROM ${BASE}

# The CUDA base brings no Python; the slim one has its own.
RUN python3 -m venv --help >/dev/null 2>&1 || \
    (apt-get update && apt-get install -y --no-install-recommends python3 python3-venv && \
     rm -rf /var/lib/apt/lists/*)
RUN python3 -m venv /opt/vlmcli
ENV PATH=/opt/vlmcli/bin:$PATH

# The index of torch's builds for processors, a tenth of the size of those for GPUs, where one is wanted:
# PyTorch's installation page names it.
ARG TORCH_INDEX=
ARG EXTRAS=
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY vlmcli ./vlmcli
RUN if [ -n "${TORCH_INDEX}" ]; then \
        pip install --no-cache-dir -c constraints.txt --index-url "${TORCH_INDEX}" torch; \
    fi && \
    pip install --no-cache-dir -c constraints.txt ".${EXTRAS:+[${EXTRAS}]}"

# Results are kept here; mount a volume to keep them from run to run.
ENV VLMCLI_CACHE_DIR=/cache
RUN useradd --uid 10001 --create-home reader && mkdir -p /cache /data && chown reader /cache /data
# By number: whoever runs it can see that this is not root.
USER 10001
WORKDIR /data
VOLUME /cache
ENTRYPOINT ["vlmcli"]
CMD ["--help"]
